//! The HTTP server that all arms call. It responds immediately, with a short body or with a megabyte.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::Json;
use axum::routing::get;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

/// A running site. Cheap to clone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    address: SocketAddr,
}

/// How many nodes are between the first and the last.
pub(super) const WIDE: usize = 8;
/// How many nodes the measured graph has.
pub(super) const NODES: usize = WIDE + 2;

impl Site {
    pub(super) async fn start() -> Result<Site> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen for the nodes' requests")?;
        let address = listener.local_addr()?;
        let router = axum::Router::new()
            .route("/ok", get(async || Json(json!({ "ok": true }))))
            .route("/big", get(async || Json(json!({ "text": "x".repeat(1_000_000) }))));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Site { address })
    }

    pub(super) fn url(self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The setting that lets the service call here.
    pub(super) fn allowed(self) -> String {
        format!("outbound.allow={}", self.address)
    }

    /// A graph of calls: one, then eight side by side, then one. Each has this time limit.
    pub(super) fn graph(self, timeout: &str) -> Value {
        let node = |needs: Value| {
            json!({ "kind": "HTTP_REQUEST", "timeout": timeout,
            "with": { "url": self.url("/ok") }, "needs": needs })
        };
        let mut nodes = Map::new();
        nodes.insert("first".to_owned(), node(json!([])));
        let wide: Vec<String> = (0..WIDE).map(|at| format!("n{at}")).collect();
        for name in &wide {
            nodes.insert(name.clone(), node(json!(["first"])));
        }
        nodes.insert("last".to_owned(), node(json!(wide)));
        json!({ "version": 1, "name": "ten", "nodes": nodes })
    }
}
