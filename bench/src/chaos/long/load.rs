//! Starts the executions, and does what each plan says: answers before the wait opens, appends before it waits,
//! cancels.
//!
//! Invariants
//! - A start whose answer was lost is repeated with the same key, so each plan is one execution.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::api::{Api, StartRequest};
use super::super::ms;
use super::super::retrying_client::RetryingClient;
use super::super::setup::Tenant;
use super::approver::Approver;
use super::plan::{Action, Plan};

#[derive(Debug)]
pub(super) struct LongLoad {
    pub(super) plans: Vec<Plan>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) api: Api,
    pub(super) approver: Arc<Approver>,
    pub(super) over: Duration,
    pub(super) bases: PathBuf,
    pub(super) key: String,
    started: AtomicUsize,
}

impl LongLoad {
    pub(super) fn new(
        plans: Vec<Plan>,
        tenants: Vec<Tenant>,
        api: Api,
        approver: Arc<Approver>,
        over: Duration,
    ) -> LongLoad {
        let (bases, key) = (approver.bases.clone(), approver.key.clone());
        LongLoad { plans, tenants, api, approver, over, bases, key, started: AtomicUsize::new(0) }
    }

    pub(super) fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.started() == self.plans.iter().filter(|plan| plan.action != Action::Elsewhere).count()
    }

    /// Starts them one after the other, spread over the run's time. Returns when everything planned is done.
    pub(super) async fn run(self: Arc<Self>) -> anyhow::Result<()> {
        let (began, mut tasks) = (Instant::now(), JoinSet::new());
        for at in 0..self.plans.len() {
            #[expect(clippy::cast_precision_loss, reason = "a share of a time")]
            let share = at as f64 / self.plans.len() as f64;
            tokio::time::sleep_until(began + self.over.mul_f64(share)).await;
            if self.plans[at].action == Action::Elsewhere {
                continue;
            }
            let load = Arc::clone(&self);
            tasks.spawn(async move { load.one(at).await });
            while let Some(done) = tasks.try_join_next() {
                done.context("a start stopped early")??;
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.context("a start stopped early")??;
        }
        Ok(())
    }

    async fn one(&self, at: usize) -> anyhow::Result<()> {
        let plan = &self.plans[at];
        let tenant = &self.tenants[plan.tenant];
        let request = StartRequest {
            workspace: tenant.id,
            definition: tenant.definitions[plan.runs.0].id,
            input: plan.input.clone(),
            key: format!("n{}", plan.n),
        };
        let id = self.api.start(at % self.api.places(), &request).await;
        self.started.fetch_add(1, Ordering::Relaxed);
        match plan.action {
            Action::Answer { early: true } => self.approver.answer(plan.n, id).await,
            Action::Append { early: true, open_ms } => self.approver.append(plan.n, open_ms).await,
            Action::Cancel { after_ms } => {
                tokio::time::sleep(ms(after_ms)).await;
                self.cancel(at, id).await
            }
            _ => Ok(()),
        }
    }

    async fn cancel(&self, at: usize, id: Uuid) -> anyhow::Result<()> {
        let mut sender = RetryingClient::new(&self.bases, Some(&self.key), at)?;
        let answer = sender.post(&format!("api/v1/workflow/executions/{id}/cancel"), &json!({})).await?;
        if !answer.status.is_success() {
            bail!("a cancel was answered {}: {}", answer.status, answer.body);
        }
        Ok(())
    }
}
