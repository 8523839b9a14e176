//! The part of the service's API that the harness uses.
//!
//! Invariants
//! - A start request whose answer was lost is repeated with the same key, at any live process. It is accepted once, and
//!   the repeated request returns the same id.

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

/// A request to start an execution.
#[derive(Clone, Debug)]
pub(super) struct StartRequest {
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

    /// How many processes there are.
    pub(super) fn places(&self) -> usize {
        self.fleet.len()
    }

    /// The places whose process can answer now.
    pub(super) fn healthy(&self) -> Vec<usize> {
        self.fleet.healthy()
    }

    /// The address of a process, if one runs at this place.
    pub(super) fn base(&self, place: usize) -> Option<String> {
        self.fleet.base(place)
    }

    /// Sends a POST that must succeed.
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

    /// Starts an execution, at `place` first, then at any process that answers.
    pub(super) async fn start(&self, mut place: usize, request: &StartRequest) -> Uuid {
        loop {
            if let Some(id) = self.try_start(place, request).await {
                return id;
            }
            tokio::time::sleep(PAUSE).await;
            let healthy = self.fleet.healthy();
            if !healthy.is_empty() {
                place = healthy[place % healthy.len()];
            }
        }
    }

    async fn try_start(&self, place: usize, request: &StartRequest) -> Option<Uuid> {
        let base = self.fleet.base(place)?;
        let StartRequest { definition, workspace, input, key } = request;
        let body = json!({ "workflowDefinitionId": definition, "workspaceId": workspace, "input": input });
        let request = self
            .http
            .post(format!("{base}/api/v1/workflow/executions/start"))
            .bearer_auth(&self.key)
            .header("idempotency-key", key)
            .json(&body);
        let answer: Value = request.send().await.ok()?.error_for_status().ok()?.json().await.ok()?;
        answer["executionId"].as_str()?.parse().ok()
    }
}
