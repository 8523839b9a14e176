//! The request that a tenant asks for, and how redirects change it.
//!
//! Invariants
//! - Users cannot set headers that frame the message, name the host or change the protocol.
//! - When a redirect leaves the origin, only the headers in [`KEPT_HEADERS`] are sent on, because any other header may
//!   contain a key. A dropped header is not restored if a later redirect returns to the origin. A header in the list
//!   that contains a secret is dropped too. A redirect that would send a body with a secret is refused.
//! - A redirect changes the method as in browsers. 303 turns everything but HEAD into a GET; 301 and 302 turn a POST
//!   into a GET; 307 and 308 change nothing. A request that becomes a GET loses its body.
//!
//! Not here: whether a URL may be called (`guard`), how many redirects are followed (`outbound`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel::ids::WorkspaceId;
use kernel::kind::http_request::Method;
use kernel::run::failure::{Class, Failure};
use kernel::signals::trace::TraceParent;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use url::Url;
use url::form_urlencoded;
use zeroize::{Zeroize, Zeroizing};

use super::OutboundPolicy;
use super::guard::{CheckedUrl, Denied, Guard};
use crate::liveness::Liveness;
use crate::mask::Mask;

/// The limits for the number of request headers and for their total size.
const MAX_HEADERS: usize = 100;
const MAX_HEADER_BYTES: usize = 65_536;

/// Headers that a user may not set.
const REFUSED_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
];

/// Headers that follow a redirect to another origin.
const KEPT_HEADERS: [&str; 9] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-language",
    "content-type",
    "idempotency-key",
    "traceparent",
    "user-agent",
];

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The body of a request. Each variant implies a content type, unless the user set that header.
#[derive(Clone, PartialEq)]
pub enum Body {
    /// `application/json`
    Json(Value),
    /// `application/x-www-form-urlencoded`
    Form(Vec<(String, String)>),
    /// `text/plain; charset=utf-8`
    Text(String),
}

/// Whether any byte of a call may have left this process. Both engines use it to stop a call that may be made at most
/// once.
#[derive(Clone, Debug, Default)]
pub struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// One call, as a node requests it.
#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// Added to the query of the URL.
    pub query: Vec<(String, String)>,
    pub body: Option<Body>,
    /// Covers the whole call: name resolution, connections, redirects and the last byte of the body.
    pub timeout: Duration,
    /// The maximum length of the response body, after decompression.
    pub max_response_bytes: usize,
    /// Sent as `Idempotency-Key` unless the user set that header.
    pub idempotency_token: Option<String>,
    /// Sent as `traceparent` unless the user set that header.
    pub trace: Option<TraceParent>,
    /// Checked before each message is sent: whether this process may still act.
    pub liveness: Option<Arc<Liveness>>,
    /// Set just before the first byte may leave this process.
    pub sent: Option<SentFlag>,
    /// The workspace of the call. Connections are reused only within a workspace.
    pub partition: WorkspaceId,
    /// The rules for this call, if they were already read. Otherwise they are read when the call is sent.
    pub policy: Option<OutboundPolicy>,
    /// The secrets in this request. They are removed from the response, not sent to another origin, and wiped at the
    /// end.
    pub secrets: Option<Arc<Mask>>,
    /// Whether redirects are followed. If not, a redirect is an ordinary response.
    pub follows: bool,
    /// Whether a response beyond the limits is truncated instead of rejected, for callers that need only its status and
    /// an excerpt.
    pub cuts: bool,
}

impl Request {
    /// A minimal call with a timeout of 30 seconds and a response limit of 1 MiB. Change the fields for more.
    pub fn new(method: Method, url: impl Into<String>, partition: WorkspaceId) -> Self {
        Self {
            method,
            url: url.into(),
            headers: Vec::new(),
            query: Vec::new(),
            body: None,
            timeout: Duration::from_secs(30),
            max_response_bytes: 1 << 20,
            idempotency_token: None,
            trace: None,
            liveness: None,
            sent: None,
            partition,
            policy: None,
            secrets: None,
            follows: true,
            cuts: false,
        }
    }
}

/// Wipes everything that may contain secrets.
impl Drop for Request {
    fn drop(&mut self) {
        if self.secrets.is_none() {
            return;
        }
        self.headers.iter_mut().chain(&mut self.query).for_each(|(_, value)| value.zeroize());
        match &mut self.body {
            Some(Body::Json(value)) => wipe(value),
            Some(Body::Form(fields)) => fields.iter_mut().for_each(|(_, value)| value.zeroize()),
            Some(Body::Text(text)) => text.zeroize(),
            None => {}
        }
    }
}

/// Overwrites every text in a value.
pub(crate) fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Shows only names and sizes, because headers, query and body may contain secrets.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = Url::parse(&self.url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("host", &host)
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Body::Json(_) => "Json(…)",
            Body::Form(_) => "Form(…)",
            Body::Text(_) => "Text(…)",
        })
    }
}

/// One message to one checked target. A redirect turns it into the next message.
#[derive(Clone)]
pub(super) struct HopRequest {
    pub(super) method: reqwest::Method,
    pub(super) target: CheckedUrl,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Zeroizing<Vec<u8>>>,
    /// The headers that contain a secret, and whether the body contains one.
    secret_headers: Vec<HeaderName>,
    secret_body: bool,
}

impl HopRequest {
    /// The first message of a call.
    pub(super) fn first(request: &Request, guard: &Guard) -> Result<Self, Failure> {
        let mut target = guard.parse(&request.url)?;
        if !request.query.is_empty() {
            target.url.query_pairs_mut().extend_pairs(&request.query);
            target = guard.check(target.url)?;
        }
        target.url.set_fragment(None);
        let mut headers = user_headers(&request.headers)?;
        if let Some(token) = &request.idempotency_token
            && !headers.contains_key(IDEMPOTENCY_KEY)
        {
            headers.insert(IDEMPOTENCY_KEY, value(IDEMPOTENCY_KEY.as_str(), token)?);
        }
        if let Some(trace) = &request.trace
            && !headers.contains_key(TRACEPARENT)
        {
            headers.insert(TRACEPARENT, value(TRACEPARENT.as_str(), &trace.to_string())?);
        }
        let body = request.body.as_ref().map(|body| written(body, &mut headers));
        let holds = |bytes: &[u8]| request.secrets.as_ref().is_some_and(|secrets| secrets.is_in(bytes));
        let secret_headers = headers.iter().filter(|(_, value)| holds(value.as_bytes()));
        let secret_headers = secret_headers.map(|(name, _)| name.clone()).collect();
        let secret_body = body.as_ref().is_some_and(|body| holds(body));
        Ok(Self { method: sent_method(request.method), target, headers, body, secret_headers, secret_body })
    }

    /// The message that follows a redirect.
    pub(super) fn redirected(mut self, status: StatusCode, location: &str, guard: &Guard) -> Result<Self, Failure> {
        let url = self.target.url.join(location).map_err(Denied::Url)?;
        let target = guard.check(url)?;
        let leaves = target.url.origin() != self.target.url.origin();
        if leaves {
            self.headers = self.kept();
        }
        if becomes_get(status, &self.method) {
            self.method = reqwest::Method::GET;
            self.body = None;
            for name in ["content-type", "content-language", "content-encoding", "content-location"] {
                self.headers.remove(name);
            }
        }
        if leaves && self.secret_body && self.body.is_some() {
            return Err(Denied::SecretBody(target.host().to_owned()).into());
        }
        self.target = target;
        self.target.url.set_fragment(None);
        Ok(self)
    }

    /// The headers that are also sent to another origin.
    fn kept(&self) -> HeaderMap {
        let goes = |name: &HeaderName| KEPT_HEADERS.contains(&name.as_str()) && !self.secret_headers.contains(name);
        let kept = self.headers.iter().filter(|(name, _)| goes(name));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn becomes_get(status: StatusCode, method: &reqwest::Method) -> bool {
    match status.as_u16() {
        303 => method != reqwest::Method::HEAD,
        301 | 302 => method == reqwest::Method::POST,
        _ => false,
    }
}

fn user_headers(pairs: &[(String, String)]) -> Result<HeaderMap, Failure> {
    let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if pairs.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        let limits = format!("a request may have at most {MAX_HEADERS} headers with {MAX_HEADER_BYTES} bytes in total");
        return Err(Failure::new(Class::ValidationError, limits));
    }
    let mut headers = HeaderMap::new();
    for (name, text) in pairs {
        let Ok(parsed) = HeaderName::try_from(name.as_str()) else {
            let short: String = name.chars().take(80).collect();
            return Err(Failure::new(Class::ValidationError, format!("{short:?} is not a valid header name")));
        };
        if REFUSED_HEADERS.contains(&parsed.as_str()) {
            return Err(Denied::Header(parsed.to_string()).into());
        }
        headers.append(parsed, value(name, text)?);
    }
    Ok(headers)
}

/// A header's value, in UTF-8. A value that would break the line is refused, and never shown.
fn value(name: &str, text: &str) -> Result<HeaderValue, Failure> {
    let bad = |_| {
        let message = format!("header {name:?} contains a line break or another character that headers cannot carry");
        Failure::new(Class::ValidationError, message)
    };
    let mut value = HeaderValue::try_from(text.as_bytes()).map_err(bad)?;
    value.set_sensitive(true);
    Ok(value)
}

fn written(body: &Body, headers: &mut HeaderMap) -> Zeroizing<Vec<u8>> {
    let (content_type, bytes) = match body {
        Body::Json(value) => ("application/json", value.to_string().into_bytes()),
        Body::Form(pairs) => {
            let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
            ("application/x-www-form-urlencoded", form.into_bytes())
        }
        Body::Text(text) => ("text/plain; charset=utf-8", text.clone().into_bytes()),
    };
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    Zeroizing::new(bytes)
}

fn sent_method(method: Method) -> reqwest::Method {
    reqwest::Method::from_bytes(method.name().as_bytes()).expect("the name of a method is a token")
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn request(headers: &[(&str, &str)]) -> Request {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut request = Request::new(Method::Post, "https://a.example/x", WorkspaceId(Uuid::nil()));
        request.headers = headers;
        request.body = Some(Body::Text("hello".to_owned()));
        request
    }

    fn first(headers: &[(&str, &str)]) -> Result<HopRequest, Failure> {
        HopRequest::first(&request(headers), &Guard::default())
    }

    fn shown(hop: &HopRequest) -> String {
        let mut names: Vec<&str> = hop.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let body = hop.body.as_ref().map_or(0, |body| body.len());
        format!("{} {} {body} {}", hop.method, hop.target.url, names.join(","))
    }

    #[test]
    fn a_redirect_changes_the_message_as_browsers_do() {
        let headers = [("Authorization", "s"), ("X-Api-Key", "s"), ("Cookie", "s"), ("Idempotency-Key", "mine")];
        let all = "authorization,content-type,cookie,idempotency-key,x-api-key";
        for (status, location, expected) in [
            (301, "/y", "GET https://a.example/y 0 authorization,cookie,idempotency-key,x-api-key".to_owned()),
            (302, "y#z", "GET https://a.example/y 0 authorization,cookie,idempotency-key,x-api-key".to_owned()),
            (303, "https://b.example/", "GET https://b.example/ 0 idempotency-key".to_owned()),
            (307, "/y", format!("POST https://a.example/y 5 {all}")),
            (308, "https://a.example:443/y", format!("POST https://a.example/y 5 {all}")),
            (308, "https://b.example/", "POST https://b.example/ 5 content-type,idempotency-key".to_owned()),
            (307, "http://a.example/x", "POST http://a.example/x 5 content-type,idempotency-key".to_owned()),
            (307, "https://a.example:8443/", "POST https://a.example:8443/ 5 content-type,idempotency-key".to_owned()),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let hop = first(&headers).expect("a message").redirected(status, location, &Guard::default());
            assert_eq!(shown(&hop.expect("a message")), expected, "{status} {location}");
        }
    }

    #[test]
    fn what_was_dropped_does_not_come_back_with_the_origin() {
        let there = first(&[("Authorization", "s")]).expect("a message");
        let there = there.redirected(StatusCode::FOUND, "https://b.example/", &Guard::default()).expect("a message");
        let back = there.redirected(StatusCode::FOUND, "https://a.example/x", &Guard::default()).expect("a message");
        assert_eq!(shown(&back), "GET https://a.example/x 0 ");
    }

    #[test]
    fn what_holds_a_secret_stays_at_its_origin_whatever_it_is_called() {
        let mut request = request(&[("Accept", "text/s3cret"), ("User-Agent", "mine"), ("X-Key", "s3cret")]);
        request.secrets = Some(Arc::new(Mask::new(["s3cret"])));
        let first = |request: &Request| HopRequest::first(request, &Guard::default()).expect("a message");
        let hop = first(&request).redirected(StatusCode::TEMPORARY_REDIRECT, "https://b.example/", &Guard::default());
        assert_eq!(shown(&hop.expect("a message")), "POST https://b.example/ 5 content-type,user-agent");
        request.body = Some(Body::Json(serde_json::json!({"k": "s3cret"})));
        for (status, location, passes) in [
            (StatusCode::TEMPORARY_REDIRECT, "/y", true),
            (StatusCode::TEMPORARY_REDIRECT, "https://b.example/", false),
            (StatusCode::PERMANENT_REDIRECT, "http://a.example/x", false),
            // A request that becomes a GET has no body to send.
            (StatusCode::FOUND, "https://b.example/", true),
            (StatusCode::SEE_OTHER, "https://b.example/", true),
        ] {
            let hop = first(&request).redirected(status, location, &Guard::default());
            assert_eq!(hop.is_ok(), passes, "{status} {location}");
            if let Err(failure) = hop {
                assert_eq!(failure.class, Class::SecurityError);
                assert!(failure.message.starts_with("egress_denied: "), "{failure:?}");
            }
        }
    }

    #[test]
    fn headers_that_change_the_message_are_refused() {
        for name in ["Host", "CONTENT-LENGTH", "Transfer-Encoding", "Connection", "Upgrade", "TE", "Expect"] {
            let failure = first(&[(name, "x")]).err().expect("a refusal");
            assert_eq!(failure.class, Class::SecurityError, "{name}");
            assert!(failure.message.contains("may not set the header"), "{failure:?}");
        }
        let many = vec![("a", "b"); 101];
        let long = "x".repeat(MAX_HEADER_BYTES);
        for headers in [&[("a b", "x")][..], &[("a", "b\r\nHost: c")], &[("", "x")], &many, &[("a", &long)]] {
            let failure = first(headers).err().expect("a refusal");
            assert_eq!(failure.class, Class::ValidationError, "{failure:?}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut request = request(&[("X-Key", "s3cret")]);
        request.url = "https://a.example/s3cret?k=s3cret".to_owned();
        request.body = Some(Body::Text("s3cret".to_owned()));
        let text = format!("{request:?} {:?}", request.body);
        assert!(text.contains("X-Key") && !text.contains("s3cret"), "{text}");
    }
}
