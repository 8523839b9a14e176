//! The rest of a request's body that nobody reads any more.
//!
//! A request may be answered before its body was read to the end: it is too large, its key is bad, its route unknown.
//! If the connection were closed then, a client that still writes would see a reset instead of the answer. So the rest
//! is read and discarded.
//!
//! Invariants
//! - At most `MOST` bytes are discarded, for at most `LONGEST`.
//! - A client that waits for leave to send its body (`Expect: 100-continue`) is not given it for a body that is
//!   discarded.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// The most bytes that are discarded of one body.
const MOST: usize = 4 << 20;
/// How long the rest of one body is read.
const LONGEST: Duration = Duration::from_secs(2);

/// A request's body whose rest is discarded when it is dropped.
pub(super) struct Discarding {
    body: Option<Incoming>,
    /// Does the client wait for leave to send it?
    held_back: bool,
}

impl Discarding {
    /// The same request, with a body that may be dropped before its end.
    pub(super) fn of(request: hyper::Request<Incoming>) -> hyper::Request<Discarding> {
        let held_back = request.headers().contains_key(header::EXPECT);
        request.map(|body| Discarding { body: Some(body), held_back })
    }
}

impl Body for Discarding {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.held_back = false;
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

impl Drop for Discarding {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !self.held_back && !body.is_end_stream()) else { return };
        // Without a runtime the process ends, and nobody waits for an answer.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(tokio::time::timeout(LONGEST, discard(body))));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut left = MOST;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(read) else { return };
        left = rest;
    }
}
