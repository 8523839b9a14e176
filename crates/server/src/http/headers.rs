//! Headers of every response, including errors, streams, and the 404 of an address that does not exist.
//!
//! Invariants
//! - Responses must not be stored by a browser or a proxy, because only the caller may see them.
//! - Browsers must not guess another type than the content type of the response.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

/// Sets the headers on a response. They replace headers of the same name that a handler or the framework set.
pub(super) async fn add_security_headers(mut response: Response) -> Response {
    set_security_headers(response.headers_mut());
    response
}

/// Sets the headers in a map, for a response that no route made.
pub(crate) fn set_security_headers(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
