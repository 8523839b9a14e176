//! The receiver for jobs of Forebay's own worker: their definition has one node, which asks here how its try ends.
//!
//! Invariants
//! - A try is recorded before it is answered, so every end by Forebay's own worker has a recorded try.
//! - The answer depends only on the event's plan and the count of failures.

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

use super::plan::JobResult;

/// One request of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Try {
    pub(super) execution: Uuid,
    pub(super) event: Uuid,
    pub(super) retries: i32,
    /// The answer it got.
    pub(super) how: JobResult,
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

    /// The workflow for jobs of Forebay's own worker. A failed try is retried by the job, not by the node.
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

    pub(super) fn recorded(&self) -> Vec<Try> {
        self.noted.lock().clone()
    }
}

async fn asked(State(noted): State<Noted>, Query(asked): Query<Asked>) -> Response {
    tokio::time::sleep(Duration::from_millis(asked.work_ms)).await;
    let Asked { execution, event, retries, fails, .. } = asked;
    let how = JobResult::of(retries, fails);
    noted.lock().push(Try { execution, event, retries, how });
    match how {
        JobResult::Completed => Json(json!({})).into_response(),
        JobResult::Failed => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
