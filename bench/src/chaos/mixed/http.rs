//! A worker over HTTP: claims under a lease, is heard of, and ends what it holds by its claim.
//!
//! Invariants
//! - What was not answered is asked again, of whichever process of the service answers.
//! - Only 409 is a refusal; any other answer that is no success ends the worker, and the run with it.

use anyhow::{Context, bail};
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::asking::Asker;
use super::journal::Hold;
use super::plan::How;
use super::worker::{Hand, Order, Taken};

pub(super) struct Http {
    asker: Asker,
    worker: String,
    workspace: Uuid,
    lease_s: u32,
}

impl Http {
    pub(super) fn new(order: &Order, lane: usize) -> anyhow::Result<Http> {
        Ok(Http {
            asker: Asker::new(&order.bases, Some(&order.key), lane)?,
            worker: order.worker.clone(),
            workspace: order.workspace,
            lease_s: order.lease_s,
        })
    }

    /// Asks until there is an answer.
    async fn ask(&mut self, path: &str, body: &Value) -> anyhow::Result<(StatusCode, Value)> {
        let answer = self.asker.ask(&format!("api/v1/projection/{path}"), body).await?;
        Ok((answer.status, answer.body))
    }

    /// Asks for something about a job; answers whether it was granted.
    async fn about(&mut self, taken: &Taken, verb: &str, mut body: Value) -> anyhow::Result<bool> {
        body["claimId"] = json!(taken.claim);
        match self.ask(&format!("{}/{verb}", taken.hold.job), &body).await? {
            (status, _) if status.is_success() => Ok(true),
            (StatusCode::CONFLICT, _) => Ok(false),
            (status, answer) => bail!("{verb} was answered {status}: {answer}"),
        }
    }
}

impl Hand for Http {
    async fn take(&mut self) -> anyhow::Result<Option<Taken>> {
        let body =
            json!({ "workspaceId": self.workspace, "workerId": self.worker, "leaseSeconds": self.lease_s, "limit": 1 });
        let (status, answer) = self.ask("claim", &body).await?;
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
        Taken::new(hold, Some(claim), retries, &job["eventData"]).map(Some)
    }

    async fn beat(&mut self, taken: &Taken) -> anyhow::Result<()> {
        self.about(taken, "heartbeat", json!({ "leaseSeconds": self.lease_s })).await.map(drop)
    }

    async fn end(&mut self, taken: &Taken, how: How) -> anyhow::Result<bool> {
        match how {
            How::Completed => self.about(taken, "complete", json!({ "result": { "by": self.worker } })).await,
            How::Failed => self.about(taken, "fail", json!({ "errorMessage": "as planned" })).await,
        }
    }
}
