//! The HTTP server that workflows call. It counts every call by its path. Calls under `/hold/` wait until the gate
//! opens, calls under `/slow/` are answered slowly, and calls under `/nul/` get a body that no database can store.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::any;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::echo::Echo;
use super::until;

/// How long a call under `/slow/` takes.
pub(crate) const SLOW: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub(crate) struct Receiver {
    address: SocketAddr,
    seen: Seen,
    gate: watch::Sender<bool>,
    /// The requests under `/echo/`.
    pub(crate) echo: Echo,
}

/// The calls to each path, in order.
type Seen = Arc<Mutex<BTreeMap<String, Vec<Call>>>>;

/// What a call carried.
#[derive(Clone, Default)]
struct Call {
    idempotency_key: String,
    traceparent: String,
}

impl Receiver {
    pub(crate) async fn start() -> Receiver {
        Receiver::on(TcpListener::bind("127.0.0.1:0").await.expect("a port"))
    }

    /// One at an address that no other test has: a late call of another test reaches nobody.
    pub(crate) async fn start_apart() -> Receiver {
        Receiver::on(apart().await)
    }

    fn on(listener: TcpListener) -> Receiver {
        let address = listener.local_addr().expect("an address");
        let receiver =
            Receiver { address, seen: Seen::default(), gate: watch::Sender::new(false), echo: Echo::default() };
        let router = Router::new()
            .route("/{kind}/{name}", any(answer))
            .with_state(receiver.clone())
            .merge(receiver.echo.router());
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// These settings, and calls to this receiver allowed.
    pub(crate) fn allowed(&self, settings: &[&str]) -> Vec<String> {
        let allow = format!("outbound.allow={}", self.address);
        settings.iter().map(|setting| (*setting).to_owned()).chain([allow]).collect()
    }

    /// These settings, and calls to this receiver and another allowed.
    pub(crate) fn allowed_beside(&self, other: &Receiver, settings: &[&str]) -> Vec<String> {
        let allow = format!("outbound.allow={},{}", self.address, other.address);
        settings.iter().map(|setting| (*setting).to_owned()).chain([allow]).collect()
    }

    /// Lets every held call go, now and later.
    pub(crate) fn open(&self) {
        self.gate.send_replace(true);
    }

    /// The idempotency keys of the calls to a path, in order.
    pub(crate) fn calls(&self, path: &str) -> Vec<String> {
        self.seen(path).into_iter().map(|call| call.idempotency_key).collect()
    }

    /// The trace contexts of the calls to a path, in order.
    pub(crate) fn traces(&self, path: &str) -> Vec<String> {
        self.seen(path).into_iter().map(|call| call.traceparent).collect()
    }

    fn seen(&self, path: &str) -> Vec<Call> {
        self.seen.lock().get(path).cloned().unwrap_or_default()
    }

    pub(crate) async fn until_called(&self, path: &str, times: usize) {
        until(&format!("{path} is called {times} times"), async || (self.calls(path).len() >= times).then_some(()))
            .await;
    }

    /// A node that calls this path.
    pub(crate) fn node(&self, path: &str) -> Value {
        json!({ "kind": "HTTP_REQUEST", "with": { "url": self.url(path) } })
    }

    /// A node that calls this path once another node is done.
    pub(crate) fn after(&self, needs: &str, path: &str) -> Value {
        json!({ "kind": "HTTP_REQUEST", "needs": needs, "with": { "url": self.url(path) } })
    }
}

/// A port at an address that no other test has. On Linux, all of 127.0.0.0/8 is this machine.
pub(crate) async fn apart() -> TcpListener {
    let random = uuid::Uuid::new_v4().into_bytes();
    let address = std::net::Ipv4Addr::new(127, random[0], random[1], random[2].clamp(2, 254));
    match TcpListener::bind((address, 0)).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("127.0.0.1:0").await.expect("a port"),
    }
}

async fn answer(
    State(receiver): State<Receiver>,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Json<Value> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let call = Call { idempotency_key: header("idempotency-key"), traceparent: header("traceparent") };
    let number = {
        let mut seen = receiver.seen.lock();
        let calls = seen.entry(format!("/{kind}/{name}")).or_default();
        calls.push(call);
        calls.len()
    };
    if kind == "hold" {
        let mut gate = receiver.gate.subscribe();
        let _open = gate.wait_for(|open| *open).await.is_ok();
    }
    if kind == "slow" {
        tokio::time::sleep(SLOW).await;
    }
    match kind.as_str() {
        "nul" => Json(json!({ "call": number, "text": "a\0b" })),
        _ => Json(json!({ "call": number })),
    }
}
