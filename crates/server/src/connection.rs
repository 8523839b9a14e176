//! Connections of clients: how many there are, and for how long each may do nothing.
//!
//!     accepted ──▶ sends a head ──▶ request under way ──▶ idle ──▶ sends a head …
//!                   │ header_timeout     │ write_timeout    │ idle_timeout
//!                   └────────────────────┴──── let go ◀─────┘
//!
//! Invariants
//! - There are never more connections than `Bounds` says, in total and from one address, so that descriptors are left
//!   for the database, for calls out and for files. A newcomer takes the place of a connection that has no request
//!   under way; if every connection has one, the newcomer is closed.
//! - A client that sends no request, sends it too slowly, or does not read its answer is let go. A stream or socket
//!   that is read stays as long as its own rules say.
//! - A failing `accept` is waited out; it never spins.
//! - An answer that comes before the body was read to its end reaches a client that still sends (`discard`).
//! - Only HTTP/1.1 is spoken. A client of HTTP/2 decides itself when it takes an answer, so it could keep its
//!   connection and its answers in memory without end. What speaks HTTP/2 to browsers is the proxy in front, which ends
//!   TLS as well.
//!
//! Not here: routes and how long a handler may take (`http`), how many bytes a body may have (`http::body`).

mod bounds;
mod discard;
mod room;
mod socket;

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
pub(crate) use bounds::{Bounds, Timeouts};
use discard::Discarding;
use room::{Busy, Peer, Room, Seat};
use socket::Socket;

/// The longest head of a request, and the most that is read ahead of a body.
const MAX_HEAD: usize = 64 << 10;
/// How long to wait before the next `accept` after one that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How often a connection with a request under way is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How long a connection without a request may stay once the process stops.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Why a connection was closed by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    /// Its address has as many as it may.
    Address,
    /// There are as many as there may be.
    Total,
    /// A newcomer took its place.
    Replaced,
    /// It did not send a request in time.
    Head,
    /// It sent no other request.
    Idle,
    /// It did not read its answer.
    Unread,
}

impl Closed {
    const ALL: [Closed; 6] =
        [Closed::Address, Closed::Total, Closed::Replaced, Closed::Head, Closed::Idle, Closed::Unread];

    fn name(self) -> &'static str {
        match self {
            Closed::Address => "address",
            Closed::Total => "total",
            Closed::Replaced => "replaced",
            Closed::Head => "head",
            Closed::Idle => "idle",
            Closed::Unread => "unread",
        }
    }

    fn count(self, by: u64) {
        ::metrics::counter!(metrics::HTTP_CLOSED.name, "reason" => self.name()).increment(by);
    }
}

/// Serves a router at an address until told to stop; answers when no connection is left.
pub(crate) async fn serve(listener: TcpListener, router: Router, bounds: Bounds, stop: CancellationToken) {
    Closed::ALL.into_iter().for_each(|reason| reason.count(0));
    let timeouts = bounds.timeouts;
    let room = Arc::new(Room::new(bounds));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, address)) => match room.enter(address.ip()) {
                Ok(seat) => {
                    let connection = Connection { stream, address, seat, timeouts, stop: stop.clone() };
                    tasks.spawn(connection.run(router.clone()));
                }
                Err(reason) => reason.count(1),
            },
            Err(error) => rest(&error, &stop).await,
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// A client that left before it was accepted is no trouble; anything else is waited out.
async fn rest(error: &io::Error, stop: &CancellationToken) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        return;
    }
    tracing::warn!(error = error as &dyn std::error::Error, "Cannot accept connections; trying again shortly");
    tokio::select! { () = tokio::time::sleep(ACCEPT_PAUSE) => {}, () = stop.cancelled() => {} }
}

/// An accepted connection.
struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    seat: Seat,
    timeouts: Timeouts,
    stop: CancellationToken,
}

impl Connection {
    async fn run(self, router: Router) {
        let Connection { stream, address, seat, timeouts, stop } = self;
        // What is sent must not wait for more to go with it; a socket that cannot be told so is already gone.
        let _gone = stream.set_nodelay(true);
        let peer = seat.peer();
        let io = TokioIo::new(Socket::new(stream, seat, timeouts.write));
        let service = {
            let peer = Arc::clone(&peer);
            hyper::service::service_fn(move |request| answer(router.clone(), request, address, peer.begin()))
        };
        let mut served =
            pin!(http1::Builder::new().max_buf_size(MAX_HEAD).serve_connection(io, service).with_upgrades());
        let mut stopped = None;
        loop {
            let look_at = look_at(&peer, timeouts, stopped);
            tokio::select! {
                _ended = served.as_mut() => {
                    // An upgraded connection lives on in its socket, under the rules of whoever has it.
                    peer.upgrade();
                    return;
                }
                () = peer.replaced() => return Closed::Replaced.count(1),
                () = tokio::time::sleep_until(look_at) => {
                    if let Some(reason) = overdue(&peer, timeouts, stopped) {
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

/// When a connection without a request under way is overdue, and why.
fn deadline(peer: &Peer, timeouts: Timeouts, stopped: Option<Instant>) -> Option<(Instant, Closed)> {
    let (since, begun) = peer.waiting()?;
    let (after, reason) = if begun { (timeouts.head, Closed::Head) } else { (timeouts.idle, Closed::Idle) };
    let by = stopped.map_or(since + after, |at| (since + after).min(at + LEAVE_WITHIN));
    Some((by, reason))
}

fn look_at(peer: &Peer, timeouts: Timeouts, stopped: Option<Instant>) -> Instant {
    deadline(peer, timeouts, stopped).map_or_else(|| Instant::now() + LOOK, |(by, _)| by)
}

fn overdue(peer: &Peer, timeouts: Timeouts, stopped: Option<Instant>) -> Option<Closed> {
    deadline(peer, timeouts, stopped).filter(|(by, _)| *by <= Instant::now()).map(|(_, reason)| reason)
}

async fn answer(
    router: Router,
    request: hyper::Request<Incoming>,
    address: SocketAddr,
    busy: Busy,
) -> Result<hyper::Response<Answer>, Infallible> {
    if head_bytes(&request) > MAX_HEAD {
        let mut refused = hyper::Response::new(Answer { body: Body::empty(), _busy: busy });
        *refused.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        headers::mark(refused.headers_mut());
        return Ok(refused);
    }
    let mut request = Discarding::of(request).map(Body::new);
    request.extensions_mut().insert(ConnectInfo(address));
    let response = router.oneshot(request).await?;
    Ok(response.map(|body| Answer { body, _busy: busy }))
}

/// How long the head of a request is. What is read ahead may be twice as long before hyper itself refuses it.
fn head_bytes(request: &hyper::Request<Incoming>) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    request.uri().path().len() + request.uri().query().unwrap_or_default().len() + headers.sum::<usize>()
}

/// The body of an answer; its request is under way until it was sent.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl http_body::Body for Answer {
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
