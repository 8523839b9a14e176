//! A worker over HTTP: claims jobs under a lease, sends heartbeats, and completes or fails its jobs under its claim.
//!
//! Invariants
//! - An unanswered request is repeated at any process of the service that answers.
//! - Only 409 is a refusal. After any other error the worker exits, and then the run fails.

use anyhow::{Context, bail};
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::retrying_client::RetryingClient;
use super::journal::Hold;
use super::plan::JobResult;
use super::worker::{ClaimedJob, JobClient, Order};

pub(super) struct Http {
    sender: RetryingClient,
    worker: String,
    workspace: Uuid,
    lease_s: u32,
}

impl Http {
    pub(super) fn new(order: &Order, lane: usize) -> anyhow::Result<Http> {
        Ok(Http {
            sender: RetryingClient::new(&order.bases, Some(&order.key), lane)?,
            worker: order.worker.clone(),
            workspace: order.workspace,
            lease_s: order.lease_s,
        })
    }

    /// Repeats a request until there is an answer.
    async fn post(&mut self, path: &str, body: &Value) -> anyhow::Result<(StatusCode, Value)> {
        let answer = self.sender.post(&format!("api/v1/jobs/{path}"), body).await?;
        Ok((answer.status, answer.body))
    }

    /// Sends a request about a job. Returns whether it was granted.
    async fn about(&mut self, claimed: &ClaimedJob, verb: &str, mut body: Value) -> anyhow::Result<bool> {
        body["claimId"] = json!(claimed.claim);
        match self.post(&format!("{}/{verb}", claimed.hold.job), &body).await? {
            (status, _) if status.is_success() => Ok(true),
            (StatusCode::CONFLICT, _) => Ok(false),
            (status, answer) => bail!("{verb} was answered {status}: {answer}"),
        }
    }
}

impl JobClient for Http {
    async fn take(&mut self) -> anyhow::Result<Option<ClaimedJob>> {
        let body =
            json!({ "workspaceId": self.workspace, "workerId": self.worker, "leaseSeconds": self.lease_s, "limit": 1 });
        let (status, answer) = self.post("claim", &body).await?;
        if !status.is_success() {
            bail!("a claim was answered {status}: {answer}");
        }
        let (claim, job) = (&answer["items"][0]["claimId"], &answer["items"][0]["job"]);
        if job.is_null() {
            return Ok(None);
        }
        let claim = claim.as_str().and_then(|claim| claim.parse().ok()).context("read claimId")?;
        let text = |name: &str| job[name].as_str().with_context(|| format!("a claimed job has no {name}: {job}"));
        let claimed_at: Timestamp = text("claimedAt")?.parse()?;
        let hold =
            Hold { job: text("id")?.parse()?, worker: self.worker.clone(), claimed_at: claimed_at.as_microsecond() };
        let retries =
            job["retryCount"].as_i64().and_then(|count| i32::try_from(count).ok()).context("read retryCount")?;
        ClaimedJob::new(hold, Some(claim), retries, &job["eventData"]).map(Some)
    }

    async fn beat(&mut self, claimed: &ClaimedJob) -> anyhow::Result<()> {
        self.about(claimed, "heartbeat", json!({ "leaseSeconds": self.lease_s })).await.map(drop)
    }

    async fn end(&mut self, claimed: &ClaimedJob, how: JobResult) -> anyhow::Result<bool> {
        match how {
            JobResult::Completed => self.about(claimed, "complete", json!({ "result": { "by": self.worker } })).await,
            JobResult::Failed => self.about(claimed, "fail", json!({ "errorMessage": "as planned" })).await,
        }
    }
}
