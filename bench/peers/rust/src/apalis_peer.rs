//! apalis with PostgreSQL: a worker limits its own concurrency. No limit reaches over processes.

use std::time::Duration;

use anyhow::{Result, anyhow};
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use serde_json::json;

use crate::instruction::{self, Instruction, PeerJob, say, version_of};

const BATCH: usize = 1_000;
/// A worker that only waits for notifications sometimes stops fetching, so it also polls.
const POLL: Duration = Duration::from_millis(100);

async fn storage(order: &Instruction) -> Result<PostgresStorage<PeerJob>> {
    let fetched = if order.options.batches { BATCH } else { order.options.concurrency };
    let config = Config::default().queue("jobs").batch_size(fetched);
    Ok(PostgresStorage::new(&PgPool::connect(&order.url).await?).with_config(config))
}

pub(crate) async fn setup(order: &Instruction) -> Result<()> {
    PostgresStorage::setup(&PgPool::connect(&order.url).await?).await?;
    say(&json!({ "event": "ready", "version": version_of("apalis-postgres") }));
    Ok(())
}

pub(crate) async fn fill(order: &Instruction) -> Result<()> {
    let mut storage = storage(order).await?;
    order.fill(BATCH, async |jobs| storage.push_bulk(jobs).await.map_err(|error| anyhow!("{error}"))).await
}

pub(crate) async fn send(order: &Instruction) -> Result<()> {
    let storage = storage(order).await?;
    order
        .send(|job| {
            let mut storage = storage.clone();
            async move { storage.push(job).await.map_err(|error| anyhow!("{error}")) }
        })
        .await
}

async fn perform(job: PeerJob) -> Result<(), BoxDynError> {
    instruction::perform(job).await;
    Ok(())
}

pub(crate) async fn work(order: Instruction) -> Result<()> {
    let worker = WorkerBuilder::new(format!("peer-{}", std::process::id()))
        .backend(storage(&order).await?.with_pubsub().poll_with_strategy(Strategy::new().interval(POLL)))
        .concurrency(order.options.concurrency)
        .build(perform);
    instruction::work_until_closed(&order, async { worker.run().await.map_err(|error| anyhow!("{error}")) }).await
}
