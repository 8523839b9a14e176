//! Reads and discards the part of a request's body that no handler has read.
//!
//! A request may be answered before its body was read to the end: because the body is too large, the key is invalid, or
//! the route is unknown. If the connection were closed at that moment, a client that is still sending the body would
//! see a connection reset instead of the response. Therefore the unread part of the body is read and discarded.
//!
//! Invariants
//! - At most `MAX_BYTES` bytes are discarded, for at most `MAX_TIME`.
//! - A client that sends `Expect: 100-continue` receives no `100 Continue` if its body would be discarded.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// The most bytes that are discarded of one body.
const MAX_BYTES: usize = 4 << 20;
/// How long the unread part of one body is read at most.
const MAX_TIME: Duration = Duration::from_secs(2);

/// A request's body. When it is dropped, its unread part is read from the connection and discarded.
pub(super) struct DiscardOnDrop {
    body: Option<Incoming>,
    /// True while the client waits for the answer to `Expect: 100-continue`.
    awaits_continue: bool,
}

impl DiscardOnDrop {
    /// Wraps the body of a request, so that the body may be dropped before its end.
    pub(super) fn wrap_body(request: hyper::Request<Incoming>) -> hyper::Request<DiscardOnDrop> {
        let awaits_continue = request.headers().contains_key(header::EXPECT);
        request.map(|body| DiscardOnDrop { body: Some(body), awaits_continue })
    }
}

impl Body for DiscardOnDrop {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.awaits_continue = false;
        match self.body.as_mut() {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for DiscardOnDrop {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !self.awaits_continue && !body.is_end_stream()) else { return };
        // Without a runtime the process is exiting, so nothing can be read, and no client waits for a response.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(tokio::time::timeout(MAX_TIME, discard(body))));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut left = MAX_BYTES;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(read) else { return };
        left = rest;
    }
}
