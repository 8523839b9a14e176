//! The metrics and the trace span of a request.
//!
//! Invariants
//! - Every label has a closed set of values: a route of this service, a standard method or `other`, a status that a
//!   handler returns. No text from a client becomes a label.
//!
//! Not here: the table of metrics and spans (`kernel::signals`).

use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use kernel::signals::trace::TraceParent;
use kernel::signals::{metrics, spans};
use tracing::Instrument as _;
use tracing::field::Empty;

/// Counts and times requests by route. The route is a pattern such as `/keys/{id}`; the path itself would make a label
/// for each id.
pub(super) async fn measure(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = method(request.method());
    let span = span(&request, &route, method);
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    span.record("status", status);
    let status = status.to_string();
    ::metrics::histogram!(metrics::HTTP_DURATION.name, "route" => route, "method" => method, "status" => status)
        .record(started.elapsed());
    response
}

/// The method as a label. A client may invent methods, so all methods that no route has share the label `other`.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// A span for a request to the API, a trigger or an answer link, as a child of the caller's span. Health probes and
/// scrapes of metrics get no span.
fn span(request: &Request, route: &str, method: &str) -> tracing::Span {
    if !["/api/", "/triggers/", "/answers/"].iter().any(|top| route.starts_with(top)) {
        return tracing::Span::none();
    }
    let span = tracing::info_span!(parent: None, spans::HTTP_REQUEST.name, method, route, status = Empty,
        otel.kind = "server");
    if let Some(parent) = traceparent(request.headers()) {
        engine::trace::put_below(&span, parent);
    }
    span
}

/// The trace context that the caller sent.
pub(super) fn traceparent(headers: &HeaderMap) -> Option<TraceParent> {
    headers.get("traceparent").and_then(|value| TraceParent::parse(value.to_str().ok()?))
}
