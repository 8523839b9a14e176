//! Which pages in a browser may read answers: CORS.
//!
//! Invariants
//! - No credentials of the browser's own are ever asked for: a page must have a key, and send it itself.
//! - The table below `/rest/v1` answers pages of every origin, as its protocol has it, until the settings name some;
//!   then those.
//! - Event streams answer pages of the origins that the settings name, and nothing else of the API answers any.
//!
//! Not here: the socket, to which browsers apply none of this.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Api, stream};

/// How long a browser may remember what is allowed, in seconds.
const REMEMBERED: &str = "600";

/// What a page may do, where it may do anything.
struct Policy {
    methods: &'static str,
    headers: &'static str,
    exposed: &'static str,
    /// Is every origin meant where none is named?
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

    /// The origin that may read the answer; none: this page may not.
    fn allowed(&self, named: &[String], origin: &HeaderValue) -> Option<HeaderValue> {
        match named.is_empty() {
            true => self.open.then(|| HeaderValue::from_static("*")),
            false => named.iter().any(|name| name.as_bytes() == origin.as_bytes()).then(|| origin.clone()),
        }
    }

    fn tell(&self, origin: HeaderValue, asked_first: bool, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let told = |text: &'static str| HeaderValue::from_static(text);
        if asked_first {
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, told(self.methods));
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, told(self.headers));
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, told(REMEMBERED));
        } else {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, told(self.exposed));
        }
    }
}

/// Answers a browser that asks first, and tells it who may read any other answer.
pub(crate) async fn allow(State(api): State<Api>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let Some(policy) = route.as_deref().and_then(Policy::of) else { return next.run(request).await };
    let named = &api.settings.http.cors_origins;
    let origin = request.headers().get(header::ORIGIN).and_then(|origin| policy.allowed(named, origin));
    let asks = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && origin.is_some();
    let mut response = if asks { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    // What is told depends on who asks, whether or not it is told now.
    if !named.is_empty() {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = origin {
        policy.tell(origin, asks, response.headers_mut());
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
        assert!(Policy::of("/api/v1/projection").is_none());
    }
}
