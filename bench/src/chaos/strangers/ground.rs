//! The targets of the attacks: a workspace of the attacker, two of other customers (`other` and `victim`), and an
//! address that no workflow may call.
//!
//! Invariants
//! - The canary listens on loopback addresses only. Every connection to the canary counts as a hit.
//! - Attackers have keys of their own workspace, as any customer does, and know the ids of objects of another
//!   workspace.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

use super::super::setup::{Setup, Tenant};

/// How long an attacker waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many large events the attacker stores, and their size in bytes.
const EVENTS: usize = 60;
const EVENT_BYTES: usize = 100_000;

/// Listens on addresses that no workflow may call.
pub(super) struct Canary {
    port: u16,
    hits: Arc<AtomicUsize>,
}

impl Canary {
    pub(super) async fn start() -> anyhow::Result<Canary> {
        let hits = Arc::new(AtomicUsize::new(0));
        let first = TcpListener::bind(("127.0.0.1", 0)).await.context("listen for forbidden calls")?;
        let port = first.local_addr()?.port();
        let others = ["127.0.0.2", "::1"].map(|address| std::net::TcpListener::bind((address, port)));
        let mut listeners = vec![first];
        for other in others.into_iter().flatten() {
            other.set_nonblocking(true)?;
            listeners.push(TcpListener::from_std(other)?);
        }
        for listener in listeners {
            let hits = Arc::clone(&hits);
            tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Ok(Canary { port, hits })
    }

    pub(super) fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> Vec<String> {
        ["127.0.0.1", "127.0.0.2", "[::1]"].map(|host| format!("{host}:{}", self.port)).to_vec()
    }
}

/// The addresses, keys and ids that an attack uses.
pub(super) struct Ground {
    pub(super) address: SocketAddr,
    /// Sends requests like other clients, from 127.0.0.1.
    pub(super) honest: reqwest::Client,
    /// Sends requests like an attacker.
    pub(super) stranger: reqwest::Client,
    /// The workspace whose executions must continue.
    other: Side,
    /// The objects of another workspace, which no attacker may see or change.
    pub(super) victim: Side,
    /// The attacker's own workspace.
    pub(super) own: Side,
    /// A key of the attacker that may only read.
    pub(super) read_key: String,
    pub(super) canary_port: u16,
    pub(super) metrics_before: usize,
}

/// A workspace, one of its keys, and what is in it.
pub(super) struct Side {
    pub(super) workspace: Uuid,
    pub(super) key: String,
    pub(super) definition: Uuid,
    /// An execution that has ended.
    pub(super) execution: Uuid,
}

impl Ground {
    pub(super) async fn prepare(setup: &Setup, canary: &Canary) -> anyhow::Result<Ground> {
        let base = setup.fleet.base(0).context("no process there")?;
        let address = base.trim_start_matches("http://").parse().context("read the service's address")?;
        let client = |from: [u8; 4]| {
            let builder = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
            builder.local_address(IpAddr::V4(Ipv4Addr::from(from))).build()
        };
        let call = json!({ "version": 1, "name": "call", "nodes": { "call": { "kind": "HTTP_REQUEST",
            "with": setup.receiver.node("call", false) } } });
        let tenants = setup.tenants(3, &[call]).await?;
        setup.client.batch_execute("UPDATE workspace SET limit_override = 50").await.context("set the limits")?;
        let mut ground = Ground {
            address,
            honest: client([127, 0, 0, 1])?,
            stranger: client([127, 0, 0, 66])?,
            other: side(setup, &tenants[0]).await?,
            victim: side(setup, &tenants[1]).await?,
            own: side(setup, &tenants[2]).await?,
            read_key: key(setup, tenants[2].id, &["read"]).await?,
            canary_port: canary.port,
            metrics_before: 0,
        };
        ground.fill().await?;
        ground.metrics_before = ground.metrics_bytes().await?;
        Ok(ground)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stores large events of the attacker, for large pages.
    async fn fill(&self) -> anyhow::Result<()> {
        for _ in 0..EVENTS {
            let event = json!({ "type": "stranger.large", "streamId": Uuid::from_u128(7), "streamType": "stranger",
                "data": { "text": "x".repeat(EVENT_BYTES) } });
            let stored = self.post(&self.own.key, "events", &json!({ "events": [event] })).await;
            let (status, answer) = stored.context("store a large event")?;
            ensure!(status == 200, "a large event was answered {status}: {answer}");
        }
        Ok(())
    }

    /// An attacker's request. Returns the status of the response, and its body if that is JSON.
    pub(super) async fn post(&self, key: &str, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let request = self.stranger.post(self.url(&format!("/api/v1/{path}"))).bearer_auth(key).json(body);
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await.unwrap_or(Value::Null)))
    }

    pub(super) async fn get(&self, key: &str, path: &str) -> anyhow::Result<(u16, Value)> {
        let answer = self.stranger.get(self.url(&format!("/api/v1/{path}"))).bearer_auth(key).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await.unwrap_or(Value::Null)))
    }

    /// Another workspace starts an execution and waits for its end. True if it completed.
    pub(super) async fn run_one(&self) -> bool {
        let body = json!({ "workflowDefinitionId": self.other.definition, "input": { "n": 1 } });
        let start = self.honest.post(self.url("/api/v1/workflow/executions/start")).bearer_auth(&self.other.key);
        let Ok(answer) = start.json(&body).send().await else { return false };
        let started: Value = answer.json().await.unwrap_or_default();
        let Some(id) = started["executionId"].as_str() else { return false };
        loop {
            let path = format!("/api/v1/workflow/executions/{id}?wait=5s");
            let Ok(answer) = self.honest.get(self.url(&path)).bearer_auth(&self.other.key).send().await else {
                return false;
            };
            let execution: Value = answer.json().await.unwrap_or_default();
            match execution["status"].as_str() {
                Some("COMPLETED") => return true,
                Some("PENDING" | "RUNNING") => {}
                _ => return false,
            }
        }
    }

    pub(super) async fn metrics_bytes(&self) -> anyhow::Result<usize> {
        let answer = self.honest.get(self.url("/metrics")).send().await.context("read the metrics")?;
        Ok(answer.bytes().await?.len())
    }

    /// Deletes the attacker's workflows, so that the next attack begins in the same state.
    pub(super) async fn clean_up(&self, setup: &Setup) -> anyhow::Result<()> {
        let sql = "UPDATE workflow_definition SET deleted_at = now()
                    WHERE workspace_id = $1 AND id <> $2 AND deleted_at IS NULL";
        let deleted = setup.client.execute(sql, &[&self.own.workspace, &self.own.definition]).await;
        deleted.context("delete the stranger's workflows").map(drop)
    }
}

async fn key(setup: &Setup, workspace: Uuid, scopes: &[&str]) -> anyhow::Result<String> {
    let body = json!({ "name": "chaos", "workspaceId": workspace, "scopes": scopes });
    let made = setup.api.post(0, "keys", &body).await?;
    made["key"].as_str().map(str::to_owned).context("a key")
}

async fn side(setup: &Setup, tenant: &Tenant) -> anyhow::Result<Side> {
    let key = key(setup, tenant.id, &["read", "run", "manage"]).await?;
    let definition = tenant.definitions[0].id;
    let body = json!({ "workflowDefinitionId": definition, "workspaceId": tenant.id, "input": { "n": 0 } });
    let started = setup.api.post(0, "workflow/executions/start", &body).await?;
    let execution = started["executionId"].as_str().and_then(|id| id.parse().ok()).context("an execution's id")?;
    Ok(Side { workspace: tenant.id, key, definition, execution })
}
