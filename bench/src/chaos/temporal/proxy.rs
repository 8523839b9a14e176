//! A proxy in front of Temporal that forwards a start to the server and withholds its answer.
//!
//! Invariants
//! - A start whose answer is withheld was carried out, because the proxy decides after the server has answered.
//! - Everything else passes unchanged, both ways.
//! - Every start whose answer was not delivered is counted, including those lost with a broken connection.
//!
//! The proxy can also act as the mutant that allows duplicate starts: the fields that it appends to a request override
//! those of the service.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::chaos::ms;
use crate::random::Random;

const START: &str = "/temporal.api.workflowservice.v1.WorkflowService/StartWorkflowExecution";
/// How many of a hundred answers are withheld.
const WITHHELD: usize = 30;
/// For one in this many withheld answers, the proxy breaks the connection. For the others it only resets the stream.
const BREAKS: u64 = 10;

/// How long a withheld answer is delayed at most, in ms. The workflow may have ended by then.
const MISSED: u64 = 500;

type Body = Either<Incoming, Full<Bytes>>;

/// A running proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    random: Mutex<Random>,
    /// Starts that were forwarded to the server.
    starts: AtomicUsize,
    answered: AtomicUsize,
    /// The mutant.
    duplicates: bool,
}

/// What happens to an answer. The client notices a withheld answer only after a delay.
enum Fate {
    Passed,
    Reset(Duration),
    Broken(Duration),
}

impl Proxy {
    /// Listens in front of the server at this port.
    pub(super) async fn start(server: u16, random: Random, duplicates: bool) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen in front of Temporal")?;
        let port = listener.local_addr()?.port();
        let (starts, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let shared = Arc::new(Shared { server, random: Mutex::new(random), starts, answered, duplicates });
        let proxy = Proxy { port, shared };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, Arc::clone(&accepting.shared)));
            }
        });
        Ok(proxy)
    }

    pub(super) fn starts(&self) -> usize {
        self.shared.starts.load(Ordering::Relaxed)
    }

    /// Starts whose answer was not delivered.
    pub(super) fn cuts(&self) -> usize {
        self.starts().saturating_sub(self.shared.answered.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn fate(&self) -> Fate {
        let mut random = self.random.lock();
        match random.below(100) < WITHHELD {
            false => Fate::Passed,
            true if random.one_in(BREAKS) => Fate::Broken(ms(random.between(0, MISSED))),
            true => Fate::Reset(ms(random.between(0, MISSED))),
        }
    }
}

/// One connection with its own connection to the server, until either ends or it is broken.
async fn carry(client: TcpStream, shared: Arc<Shared>) -> anyhow::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", shared.server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), TokioIo::new(server)).await?;
    let retrying_client = tokio::spawn(connection);
    let broken = CancellationToken::new();
    let breaks = broken.clone();
    let service = service_fn(move |request| answer(Arc::clone(&shared), sender.clone(), breaks.clone(), request));
    let serving =
        hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(client), service);
    tokio::select! {
        _ended = serving => {}
        () = broken.cancelled() => {}
    }
    retrying_client.abort();
    Ok(())
}

async fn answer(
    shared: Arc<Shared>,
    mut sender: SendRequest<Body>,
    broken: CancellationToken,
    request: Request<Incoming>,
) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
    if request.uri().path() != START {
        return Ok(sender.send_request(request.map(Either::Left)).await?);
    }
    let request = match shared.duplicates {
        false => request.map(Either::Left),
        true => {
            let (head, body) = request.into_parts();
            let message = body.collect().await?.to_bytes();
            Request::from_parts(head, Either::Right(Full::new(allowing_duplicates(&message))))
        }
    };
    shared.starts.fetch_add(1, Ordering::Relaxed);
    let answered = sender.send_request(request).await?;
    match shared.fate() {
        Fate::Passed => {
            shared.answered.fetch_add(1, Ordering::Relaxed);
            Ok(answered)
        }
        Fate::Reset(missed) => {
            tokio::time::sleep(missed).await;
            Err("the answer is withheld".into())
        }
        Fate::Broken(missed) => {
            tokio::time::sleep(missed).await;
            broken.cancel();
            std::future::pending().await
        }
    }
}

/// The same start with another request id, and with permission to run again after it closed. If a field occurs twice,
/// the last one counts.
fn allowing_duplicates(message: &[u8]) -> Bytes {
    let (request_id, reuse_policy, allow_duplicate) = (10 << 3 | 2, 11 << 3, 1);
    let id = store::new_id().to_string();
    let mut changed = message.to_vec();
    changed.extend([request_id, u8::try_from(id.len()).unwrap_or_default()]);
    changed.extend(id.as_bytes());
    changed.extend([reuse_policy, allow_duplicate]);
    // A message is preceded by a flag and its length.
    let length = u32::try_from(changed.len().saturating_sub(5)).unwrap_or_default();
    if let Some(prefix) = changed.get_mut(1..5) {
        prefix.copy_from_slice(&length.to_be_bytes());
    }
    changed.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_counted_in_the_length() {
        let changed = allowing_duplicates(&[0, 0, 0, 0, 2, 8, 1]);
        assert_eq!(&changed[..7], [0, 0, 0, 0, 42, 8, 1]);
        assert_eq!((changed.len(), &changed[7..9], &changed[45..]), (47, &[0x52, 36][..], &[0x58, 1][..]));
    }
}
