//! The HTTP server that the nodes call. It records when each request began and ended.
//!
//! Invariants
//! - The end of a request is recorded before its response is sent. A slot is reused only after the response, so there
//!   are never more requests in flight here than running nodes.
//! - If the sender of a request dies, the request ends when its connection closes.
//! - The delay of a response depends only on the request and the seed.
//!
//! It also has the paths for poison: `/nul` responds with a value that the database cannot store, and `/deadly` never
//! responds.

use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::random::mix;
use crate::service::now_us;

/// One received request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub execution: Uuid,
    pub workspace: Uuid,
    /// The number of the start request. If one request wrongly ran as two executions, both would send this number.
    pub n: i64,
    pub node: String,
    /// For a node in a loop, the position of the item, from 1; otherwise 0.
    pub iteration: i32,
    pub begin: i64,
    pub end: Option<i64>,
    /// How many earlier requests had the same execution, node and iteration.
    pub nth: u32,
}

/// How long responses take.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub seed: u64,
    /// Most responses take from `fast.0` to `fast.1` ms.
    pub fast: (u64, u64),
    /// One in `slow_every` responses takes from `slow.0` to `slow.1` ms.
    pub slow: (u64, u64),
    pub slow_every: u64,
    /// How long a repeated request takes. It must still be in flight when a paused process is resumed and reports its
    /// own result.
    pub repeat: Duration,
}

/// A running receiver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Receiver {
    pub address: SocketAddr,
    state: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    policy: Policy,
    log: Mutex<Log>,
    /// Calls to `/deadly`. The harness kills the process that makes such a call.
    deadly: AtomicUsize,
}

#[derive(Debug, Default)]
struct Log {
    deliveries: Vec<ReceivedRequest>,
    seen: HashMap<(Uuid, String, i32), u32>,
}

#[derive(Debug, Deserialize)]
struct Hit {
    execution: Uuid,
    workspace: Uuid,
    n: i64,
    node: String,
    #[serde(default)]
    iteration: i32,
    /// The text from which the response value is derived, instead of the node's name.
    i: Option<i64>,
    /// Respond with 500 the first time.
    #[serde(default)]
    flaky: bool,
    /// Respond with 422 each time.
    #[serde(default)]
    refused: bool,
}

impl Receiver {
    pub async fn start(policy: Policy) -> anyhow::Result<Receiver> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen for the nodes' requests")?;
        let address = listener.local_addr()?;
        let state = Arc::new(Shared { policy, log: Mutex::default(), deadly: AtomicUsize::new(0) });
        let router = axum::Router::new()
            .route("/hit", get(hit))
            .route("/nul", get(async || Json(json!({ "text": "a\0b" }))))
            .route("/deadly", get(deadly))
            .with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Receiver { address, state })
    }

    /// True if a request of one of these executions was repeated after the first `skip` requests.
    pub fn repeats(&self, executions: &BTreeSet<Uuid>, skip: usize) -> bool {
        let log = self.state.log();
        log.deliveries.iter().skip(skip).any(|delivery| delivery.nth > 0 && executions.contains(&delivery.execution))
    }

    /// How many requests wait for their response.
    pub fn in_flight(&self) -> usize {
        self.state.log().deliveries.iter().filter(|delivery| delivery.end.is_none()).count()
    }

    /// How many requests were received.
    pub fn count(&self) -> usize {
        self.state.log().deliveries.len()
    }

    /// All requests, in the order of arrival.
    pub fn deliveries(&self) -> Vec<ReceivedRequest> {
        self.state.log().deliveries.clone()
    }

    /// How many deadly calls were received.
    pub fn deadly(&self) -> usize {
        self.state.deadly.load(Ordering::Relaxed)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A node's configuration that calls this receiver.
    pub fn node(&self, node: &str, flaky: bool) -> serde_json::Value {
        json!({
            "url": self.url("/hit"),
            "query": {
                "execution": "${{ execution.id }}",
                "workspace": "${{ workspace.id }}",
                "n": "${{ inputs.n }}",
                "node": node,
                "flaky": flaky,
            },
        })
    }
}

/// The value that the `i`-th call for request `n` returns.
pub fn value_of(n: i64, i: i64) -> i64 {
    n * 1_000 + i
}

/// The value that a node of this name returns for request `n`.
pub fn output_of(node: &str, n: i64) -> i64 {
    let sum: i64 = node.bytes().map(i64::from).sum();
    n * 1_000 + sum
}

async fn hit(State(state): State<Arc<Shared>>, Query(hit): Query<Hit>) -> Response {
    let (guard, nth) = Noted::begin(&state, &hit);
    tokio::time::sleep(state.policy.delay(&hit, nth)).await;
    // Recorded before the response: after it, another run may use the slot at any moment.
    drop(guard);
    if hit.refused {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    }
    if hit.flaky && nth == 0 {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let value = hit.i.map_or_else(|| output_of(&hit.node, hit.n), |i| value_of(hit.n, i));
    Json(json!({ "value": value })).into_response()
}

async fn deadly(State(state): State<Arc<Shared>>) -> Response {
    state.deadly.fetch_add(1, Ordering::Relaxed);
    std::future::pending().await
}

impl Policy {
    fn delay(&self, hit: &Hit, nth: u32) -> Duration {
        if nth > 0 && !hit.flaky {
            return self.repeat;
        }
        let node = hit.node.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let of = hit.n.unsigned_abs() ^ (u64::from(hit.iteration.unsigned_abs()) << 32);
        let drawn = mix(self.seed ^ mix(of) ^ node);
        let (low, high) = if drawn.is_multiple_of(self.slow_every.max(1)) { self.slow } else { self.fast };
        Duration::from_millis(low + (drawn >> 8) % (high - low + 1))
    }
}

impl Shared {
    fn log(&self) -> parking_lot::MutexGuard<'_, Log> {
        self.log.lock()
    }
}

/// A request in flight. Its end is recorded when it is dropped.
struct Noted {
    state: Arc<Shared>,
    at: usize,
}

impl Noted {
    fn begin(state: &Arc<Shared>, hit: &Hit) -> (Noted, u32) {
        let mut log = state.log();
        let seen = log.seen.entry((hit.execution, hit.node.clone(), hit.iteration)).or_default();
        let nth = *seen;
        *seen += 1;
        log.deliveries.push(ReceivedRequest {
            execution: hit.execution,
            workspace: hit.workspace,
            n: hit.n,
            node: hit.node.clone(),
            iteration: hit.iteration,
            begin: now_us(),
            end: None,
            nth,
        });
        (Noted { state: Arc::clone(state), at: log.deliveries.len() - 1 }, nth)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.state.log().deliveries[self.at].end = Some(now_us());
    }
}
