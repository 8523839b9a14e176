//! The other side of our own worker's jobs: their definition has one node, which asks here how its try ends.
//!
//! Invariants
//! - A try is noted before it is answered: what our worker ended, was asked for here.
//! - The answer follows from the event's plan and the count of failures alone.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

use super::plan::How;

/// One request of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Try {
    pub(super) execution: Uuid,
    pub(super) event: Uuid,
    pub(super) retries: i32,
    /// What it was answered.
    pub(super) how: How,
}

type Noted = Arc<Mutex<Vec<Try>>>;

#[derive(Debug)]
pub(super) struct Tries {
    pub(super) address: SocketAddr,
    noted: Noted,
}

#[derive(Debug, Deserialize)]
struct Asked {
    execution: Uuid,
    event: Uuid,
    retries: i32,
    fails: i32,
    work_ms: u64,
}

impl Tries {
    pub(super) async fn start() -> anyhow::Result<Tries> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen for tries")?;
        let (address, noted) = (listener.local_addr()?, Noted::default());
        let router = axum::Router::new().route("/try", get(asked)).with_state(Arc::clone(&noted));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Tries { address, noted })
    }

    /// The workflow of our own worker's jobs. A try that fails is the job's, not the node's, to repeat.
    pub(super) fn document(&self) -> Value {
        let query = json!({
            "execution": "${{ execution.id }}",
            "event": "${{ trigger.event.id }}",
            "retries": "${{ trigger.retry_count }}",
            "fails": "${{ trigger.event.data.fails }}",
            "work_ms": "${{ trigger.event.data.work_ms }}",
        });
        let call = json!({ "url": format!("http://{}/try", self.address), "query": query });
        let node = json!({ "kind": "HTTP_REQUEST", "retry": { "max_attempts": 1 }, "with": call });
        json!({ "version": 1, "name": "mixed", "nodes": { "try": node } })
    }

    pub(super) fn noted(&self) -> Vec<Try> {
        self.noted.lock().clone()
    }
}

async fn asked(State(noted): State<Noted>, Query(asked): Query<Asked>) -> Response {
    tokio::time::sleep(Duration::from_millis(asked.work_ms)).await;
    let Asked { execution, event, retries, fails, .. } = asked;
    let how = How::of(retries, fails);
    noted.lock().push(Try { execution, event, retries, how });
    match how {
        How::Completed => Json(json!({})).into_response(),
        How::Failed => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
