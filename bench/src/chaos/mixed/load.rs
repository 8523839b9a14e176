//! Appends the events, one half in plain SQL and the other through the API, while the workers run.
//!
//! Invariants
//! - An append whose answer was lost is repeated with the same ids, so each event exists once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use store::connect::Client;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::api::Api;
use super::plan::Plan;

const BATCH: usize = 10;
/// How long an append may stay unanswered before the run fails.
const PATIENCE: Duration = Duration::from_secs(60);
const STREAM_TYPE: &str = "mixed";

/// The events to append, and how many already are.
#[derive(Debug)]
pub(super) struct MixedLoad {
    pub(super) plans: Vec<Plan>,
    pub(super) workspace: Uuid,
    pub(super) over: Duration,
    done: AtomicUsize,
}

impl MixedLoad {
    pub(super) fn new(plans: Vec<Plan>, workspace: Uuid, over: Duration) -> MixedLoad {
        MixedLoad { plans, workspace, over, done: AtomicUsize::new(0) }
    }

    pub(super) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.done() == self.plans.len()
    }

    /// The first half, in plain SQL.
    pub(super) async fn by_sql(self: Arc<Self>, client: Client) -> anyhow::Result<()> {
        let insert =
            "INSERT INTO domain_events (id, workspace_id, stream_id, stream_type, stream_version, event_type, \
            event_data)
                      VALUES ($1, $2, gen_random_uuid(), $3, 1, $4, $5)";
        let statement = client.prepare(insert).await.context("prepare an insert")?;
        let half = &self.plans[..self.plans.len() / 2];
        let began = Instant::now();
        for (batch, plans) in half.chunks(BATCH).enumerate() {
            client.batch_execute("BEGIN").await?;
            for plan in plans {
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                    [&plan.event, &self.workspace, &STREAM_TYPE, &plan.kind, &plan.data()];
                client.execute(&statement, &values).await.context("insert an event")?;
            }
            client.batch_execute("COMMIT").await?;
            self.appended(plans.len(), half.len(), batch, began).await;
        }
        Ok(())
    }

    /// The second half, through the API.
    pub(super) async fn by_api(self: Arc<Self>, api: Api) -> anyhow::Result<()> {
        let half = &self.plans[self.plans.len() / 2..];
        let began = Instant::now();
        for (batch, plans) in half.chunks(BATCH).enumerate() {
            let event = |plan: &Plan| {
                json!({ "id": plan.event, "type": plan.kind, "streamId": plan.event,
                "streamType": STREAM_TYPE, "data": plan.data() })
            };
            let events: Vec<Value> = plans.iter().map(event).collect();
            append(&api, batch, &json!({ "workspaceId": self.workspace, "events": events })).await?;
            self.appended(plans.len(), half.len(), batch, began).await;
        }
        Ok(())
    }

    /// Waits until the next batch of a half is due.
    async fn appended(&self, count: usize, half: usize, batch: usize, began: Instant) {
        self.done.fetch_add(count, Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a share of a time")]
        let share = ((batch + 1) * BATCH) as f64 / half.max(1) as f64;
        tokio::time::sleep_until(began + self.over.mul_f64(share.min(1.0))).await;
    }
}

async fn append(api: &Api, mut turn: usize, body: &Value) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let healthy = api.healthy();
        if let Some(place) = healthy.get(turn % healthy.len().max(1)) {
            match api.post(*place, "events", body).await {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => bail!("events are not appended: {error:#}"),
                Err(_) => {}
            }
        }
        turn += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
