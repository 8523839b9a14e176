//! Starts executions continuously, as many as the service can handle. The number of open executions is bounded.
//!
//! Invariants
//! - A start is counted after its commit.
//! - The number of open executions is bounded, so an execution ends long before it is old enough to be deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use store::Store;
use store::connect::Target;
use store::queue::enqueue::{EnqueueOutcome, Start};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dispatch::lifecycle::{send_notifications, start};
use crate::measure::world::{Tenant, World};

const BATCH: usize = 100;
const LANES: usize = 2;
/// The maximum number of open executions.
const MOST_OPEN: i64 = 3_000;
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Churn {
    accepted: Arc<AtomicI64>,
    stop: CancellationToken,
    tasks: JoinSet<Result<()>>,
}

impl Churn {
    pub(super) fn start(world: &World, tenants: &[Tenant]) -> Result<Churn> {
        let (accepted, open) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let target = Target::new(&world.url)?;
        tasks.spawn(watch(target.clone(), Arc::clone(&open), stop.clone()));
        let (hints, inbox) = mpsc::unbounded_channel();
        tasks.spawn(send_notifications(target.clone(), inbox));
        for lane in 0..LANES {
            let (store, tenants, hints) = (Store::new(&target, 1)?, tenants.to_vec(), hints.clone());
            let (accepted, open, stop) = (Arc::clone(&accepted), Arc::clone(&open), stop.clone());
            tasks.spawn(async move {
                for tenant in tenants.iter().cycle().skip(lane * tenants.len() / LANES) {
                    while open.load(Ordering::Relaxed) > MOST_OPEN && !stop.is_cancelled() {
                        tokio::time::sleep(LOOK / 5).await;
                    }
                    if stop.is_cancelled() {
                        break;
                    }
                    let starts: Vec<Start> = (0..BATCH).map(|_| start(*tenant)).collect();
                    let answers = store.enqueue(&starts, "bench").await.context("start executions")?;
                    ensure!(
                        answers.iter().all(|one| matches!(one, EnqueueOutcome::New { .. })),
                        "a start was not accepted"
                    );
                    accepted.fetch_add(i64::try_from(BATCH)?, Ordering::Relaxed);
                    open.fetch_add(i64::try_from(BATCH)?, Ordering::Relaxed);
                    hints.send(tenant.workspace)?;
                }
                Ok(())
            });
        }
        Ok(Churn { accepted, stop, tasks })
    }

    pub(super) fn accepted(&self) -> i64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        while let Some(done) = self.tasks.join_next().await {
            done.context("the load stopped early")??;
        }
        Ok(())
    }
}

/// Counts how many are open.
async fn watch(target: Target, open: Arc<AtomicI64>, stop: CancellationToken) -> Result<()> {
    let client = target.connect().await?;
    while !stop.is_cancelled() {
        let sql = "SELECT count(*) FROM forebay.execution_queue WHERE stage IN (0, 5)";
        open.store(client.query_one(sql, &[]).await?.try_get(0)?, Ordering::Relaxed);
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
