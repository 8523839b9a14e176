//! The service's API, as far as the harness is its client.
//!
//! Invariants
//! - A start whose answer was lost is asked again with the same key, of whoever lives: it is accepted
//!   once, and its id is learnt.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::service::Fleet;

const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// A client of a whole fleet.
#[derive(Clone, Debug)]
pub(super) struct Api {
    http: reqwest::Client,
    fleet: Arc<Fleet>,
    key: String,
}

/// A start to be asked for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) workspace: Uuid,
    pub(super) definition: Uuid,
    pub(super) input: Value,
    pub(super) key: String,
}

impl Api {
    pub(super) fn new(fleet: Arc<Fleet>, key: String) -> anyhow::Result<Api> {
        let http = reqwest::Client::builder().timeout(PATIENCE).build().context("build an HTTP client")?;
        Ok(Api { http, fleet, key })
    }

    /// How many there are to ask.
    pub(super) fn places(&self) -> usize {
        self.fleet.len()
    }

    /// The places that can be asked now.
    pub(super) fn healthy(&self) -> Vec<usize> {
        self.fleet.healthy()
    }

    /// Where a process listens, if one is there.
    pub(super) fn base(&self, place: usize) -> Option<String> {
        self.fleet.base(place)
    }

    /// One call that must succeed.
    pub(super) async fn post(&self, place: usize, path: &str, body: &Value) -> anyhow::Result<Value> {
        let base = self.fleet.base(place).context("no process there")?;
        let request = self.http.post(format!("{base}/api/v1/{path}")).bearer_auth(&self.key).json(body);
        let response = request.send().await.with_context(|| format!("POST {path}"))?;
        let status = response.status();
        let body: Value = response.json().await.with_context(|| format!("read the answer of POST {path}"))?;
        if !status.is_success() {
            bail!("POST {path} answered {status}: {body}");
        }
        Ok(body)
    }

    /// Starts an execution, at `place` first, then wherever it is answered.
    pub(super) async fn start(&self, mut place: usize, ask: &Ask) -> Uuid {
        loop {
            if let Some(id) = self.try_start(place, ask).await {
                return id;
            }
            tokio::time::sleep(PAUSE).await;
            let healthy = self.fleet.healthy();
            if !healthy.is_empty() {
                place = healthy[place % healthy.len()];
            }
        }
    }

    async fn try_start(&self, place: usize, ask: &Ask) -> Option<Uuid> {
        let base = self.fleet.base(place)?;
        let body = json!({ "workflowDefinitionId": ask.definition, "workspaceId": ask.workspace, "input": ask.input });
        let request = self
            .http
            .post(format!("{base}/api/v1/workflow/executions/start"))
            .bearer_auth(&self.key)
            .header("idempotency-key", &ask.key)
            .json(&body);
        let answer: Value = request.send().await.ok()?.error_for_status().ok()?.json().await.ok()?;
        answer["executionId"].as_str()?.parse().ok()
    }
}
