//! What every answer says about itself, whatever it is: a success, an error, a stream or a page that is not there.
//!
//! Invariants
//! - No answer is stored by a browser or a proxy: it may hold what only its caller may see.
//! - No answer is taken for another type than the one it names.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

/// Adds these headers, over what a handler or the framework said.
pub(super) async fn guard(mut response: Response) -> Response {
    mark(response.headers_mut());
    response
}

/// The same for an answer that no route gives.
pub(crate) fn mark(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
