//! CORS: which web pages may read responses.
//!
//! Invariants
//! - Cookies and other credentials of the browser are never used: a page must have a key and send it itself.
//! - Pages of every origin may read `/rest/v1`, as PostgREST allows. If `http.cors_origins` names origins, only pages
//!   of these origins may.
//! - Only pages of the origins in `http.cors_origins` may read event streams. No page may read any other route.
//!
//! Not here: the WebSocket, which browsers exempt from CORS.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Api, stream};

/// How long a browser may cache the policy, in seconds.
const CACHED_FOR: &str = "600";

/// What a page may do on a route.
struct Policy {
    methods: &'static str,
    headers: &'static str,
    exposed: &'static str,
    /// Whether every origin is allowed if `http.cors_origins` is empty.
    open: bool,
}

const TABLE: Policy = Policy {
    methods: "GET, HEAD, PATCH, OPTIONS",
    headers: "apikey, authorization, content-type, prefer, accept-profile, content-profile, x-client-info, \
        x-retry-count",
    exposed: "content-range, preference-applied, retry-after",
    open: true,
};
const STREAM: Policy =
    Policy { methods: "GET, OPTIONS", headers: "authorization, last-event-id", exposed: "retry-after", open: false };

impl Policy {
    fn of(route: &str) -> Option<Policy> {
        let is_stream = |path: &&str| route.strip_prefix("/api/v1") == Some(*path);
        match route {
            _ if route.starts_with("/rest/v1/") => Some(TABLE),
            _ if stream::PATHS.iter().any(is_stream) => Some(STREAM),
            _ => None,
        }
    }

    /// The value of `Access-Control-Allow-Origin`. None: pages of this origin may not read the response.
    fn allowed(&self, named: &[String], origin: &HeaderValue) -> Option<HeaderValue> {
        match named.is_empty() {
            true => self.open.then(|| HeaderValue::from_static("*")),
            false => named.iter().any(|name| name.as_bytes() == origin.as_bytes()).then(|| origin.clone()),
        }
    }

    fn set_headers(&self, origin: HeaderValue, is_preflight: bool, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let value = HeaderValue::from_static;
        if is_preflight {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, value(self.methods));
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, value(self.headers));
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, value(CACHED_FOR));
        } else {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, value(self.exposed));
        }
    }
}

/// Answers preflight requests, and adds the CORS headers to all other responses.
pub(crate) async fn allow(State(api): State<Api>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let Some(policy) = route.as_deref().and_then(Policy::of) else { return next.run(request).await };
    let named = &api.settings.http.cors_origins;
    let origin = request.headers().get(header::ORIGIN).and_then(|origin| policy.allowed(named, origin));
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && origin.is_some();
    let mut response = if is_preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    // The response depends on the origin even if no CORS header was added, so caches must keep one for each origin.
    if !named.is_empty() {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = origin {
        policy.set_headers(origin, is_preflight, response.headers_mut());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_that_are_served_are_those_that_pages_may_read() {
        let served = super::super::streams().into_openapi().paths.paths;
        assert_eq!(served.keys().map(String::as_str).collect::<Vec<_>>(), stream::PATHS);
        assert!(Policy::of("/api/v1/events").is_none(), "that is a list of events");
        assert!(Policy::of("/api/v1/jobs").is_none());
    }
}
