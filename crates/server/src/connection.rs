//! Client connections: accepts them, limits their number, and closes those that are inactive for too long.
//!
//!     accepted ──▶ sends a head ──▶ request in progress ──▶ idle ──▶ sends a head …
//!                   │ header_timeout     │ write_timeout      │ idle_timeout
//!                   └────────────────────┴──── closed ◀───────┘
//!
//! Invariants
//! - There are never more connections than `ConnectionLimits` allows, in total and from one address. So file
//!   descriptors are left for the database, for outgoing calls and for files. At the limit, a new connection replaces a
//!   connection without a request in progress. If every connection has a request in progress, the new connection is
//!   closed.
//! - A client that sends no request, sends its request too slowly, or does not read its response is disconnected. An
//!   event stream or WebSocket whose client reads stays open for as long as its handler allows.
//! - After a failed `accept` the listener waits before the next `accept`, so that it does not use all of a core.
//! - A response that is sent before the request's body was read still reaches a client that is sending the body
//!   (`discard_body`).
//! - Only HTTP/1.1 is supported. With HTTP/2 the client controls when each response is sent, so a client could keep
//!   responses in this process's memory without end. A proxy in front can offer HTTP/2 and TLS to browsers.
//!
//! Not here: routes and how long a handler may take (`http`), how many bytes a body may have (`http::body`).

mod client_stream;
mod discard_body;
mod limiter;
mod limits;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use kernel::signals::metrics;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::http::headers;
use client_stream::ClientStream;
use discard_body::DiscardOnDrop;
use limiter::{ActiveRequest, ConnectionLimiter, ConnectionPermit, ConnectionState};
pub(crate) use limits::{ConnectionLimits, Timeouts};

/// The most bytes of a request's head. At most this many bytes of a body are read ahead of the handler.
const MAX_HEAD: usize = 64 << 10;
/// How long to wait before the next `accept` after an `accept` failed because descriptors or memory ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How often a connection with a request in progress is checked.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How long a connection without a request may stay open after the process has begun to shut down.
const IDLE_AFTER_STOP: Duration = Duration::from_secs(1);

/// Why this process closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseReason {
    /// The client's address already had the maximum number of connections.
    Address,
    /// The process already had the maximum number of connections.
    Total,
    /// A new connection replaced this connection.
    Replaced,
    /// The client did not send the head of a request in time.
    Head,
    /// The client did not begin another request in time.
    Idle,
    /// The client did not read its response in time.
    NotRead,
}

impl CloseReason {
    const ALL: [CloseReason; 6] = [
        CloseReason::Address,
        CloseReason::Total,
        CloseReason::Replaced,
        CloseReason::Head,
        CloseReason::Idle,
        CloseReason::NotRead,
    ];

    fn name(self) -> &'static str {
        match self {
            CloseReason::Address => "address_limit",
            CloseReason::Total => "connection_limit",
            CloseReason::Replaced => "replaced",
            CloseReason::Head => "header_timeout",
            CloseReason::Idle => "idle_timeout",
            CloseReason::NotRead => "write_timeout",
        }
    }

    fn count(self, by: u64) {
        ::metrics::counter!(metrics::HTTP_CLOSED.name, "reason" => self.name()).increment(by);
    }
}

/// Serves a router at an address until `stop` is cancelled; returns when no connection is left.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: ConnectionLimits, stop: CancellationToken) {
    CloseReason::ALL.into_iter().for_each(|reason| reason.count(0));
    let timeouts = limits.timeouts;
    let limiter = Arc::new(ConnectionLimiter::new(limits));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, address)) => match limiter.admit(address.ip()) {
                Ok(permit) => {
                    let connection = Connection { stream, address, permit, timeouts, stop: stop.clone() };
                    tasks.spawn(connection.run(router.clone()));
                }
                Err(reason) => reason.count(1),
            },
            Err(error) => pause_after_accept_error(&error, &stop).await,
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Waits after a failed `accept`, unless it failed because the client disconnected before it was accepted.
async fn pause_after_accept_error(error: &io::Error, stop: &CancellationToken) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(error = error as &dyn std::error::Error, "Could not accept a client connection; retrying in 200 ms");
    tokio::select! { () = tokio::time::sleep(ACCEPT_PAUSE) => {}, () = stop.cancelled() => {} }
}

/// An accepted connection.
struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    permit: ConnectionPermit,
    timeouts: Timeouts,
    stop: CancellationToken,
}

impl Connection {
    async fn run(self, router: Router) {
        let Connection { stream, address, permit, timeouts, stop } = self;
        // TCP_NODELAY: data is sent immediately, not collected until more data follows. If the call fails, the
        // connection is already closed.
        let _gone = stream.set_nodelay(true);
        let state = permit.state();
        let io = TokioIo::new(ClientStream::new(stream, permit, timeouts.write));
        let service = {
            let state = Arc::clone(&state);
            hyper::service::service_fn(move |request| answer(router.clone(), request, address, state.begin_request()))
        };
        let mut served =
            pin!(http1::Builder::new().max_buf_size(MAX_HEAD).serve_connection(io, service).with_upgrades());
        let mut stopped = None;
        loop {
            let next_check = next_check(&state, timeouts, stopped);
            tokio::select! {
                _ended = served.as_mut() => {
                    // A connection that was upgraded to WebSocket stays open: its handler now owns the stream.
                    state.mark_upgraded();
                    return;
                }
                () = state.wait_until_replaced() => return CloseReason::Replaced.count(1),
                () = tokio::time::sleep_until(next_check) => {
                    if let Some(reason) = overdue(&state, timeouts, stopped) {
                        return reason.count(1);
                    }
                }
                () = stop.cancelled(), if stopped.is_none() => {
                    stopped = Some(Instant::now());
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// When a connection without a request in progress is closed, and why.
fn deadline(state: &ConnectionState, timeouts: Timeouts, stopped: Option<Instant>) -> Option<(Instant, CloseReason)> {
    let (since, begun) = state.waiting_since()?;
    let (after, reason) = if begun { (timeouts.head, CloseReason::Head) } else { (timeouts.idle, CloseReason::Idle) };
    let by = stopped.map_or(since + after, |at| (since + after).min(at + IDLE_AFTER_STOP));
    Some((by, reason))
}

fn next_check(state: &ConnectionState, timeouts: Timeouts, stopped: Option<Instant>) -> Instant {
    deadline(state, timeouts, stopped).map_or_else(|| Instant::now() + CHECK_EVERY, |(by, _)| by)
}

fn overdue(state: &ConnectionState, timeouts: Timeouts, stopped: Option<Instant>) -> Option<CloseReason> {
    deadline(state, timeouts, stopped).filter(|(by, _)| *by <= Instant::now()).map(|(_, reason)| reason)
}

async fn answer(
    router: Router,
    request: hyper::Request<Incoming>,
    address: SocketAddr,
    active_request: ActiveRequest,
) -> Result<hyper::Response<ResponseBody>, Infallible> {
    if head_bytes(&request) > MAX_HEAD {
        let mut refused = hyper::Response::new(ResponseBody { body: Body::empty(), _busy: active_request });
        *refused.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        headers::set_security_headers(refused.headers_mut());
        return Ok(refused);
    }
    let mut request = DiscardOnDrop::wrap_body(request).map(Body::new);
    request.extensions_mut().insert(ConnectInfo(address));
    let response = router.oneshot(request).await?;
    Ok(response.map(|body| ResponseBody { body, _busy: active_request }))
}

/// The size of a request's head. It is checked here, because hyper itself refuses a request only at about twice
/// `MAX_HEAD`.
fn head_bytes(request: &hyper::Request<Incoming>) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    request.uri().path().len() + request.uri().query().unwrap_or_default().len() + headers.sum::<usize>()
}

/// The body of a response. The request counts as in progress until this body was sent and dropped.
struct ResponseBody {
    body: Body,
    _busy: ActiveRequest,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
