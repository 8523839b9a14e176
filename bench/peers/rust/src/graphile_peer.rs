//! graphile_worker: a queue name serializes the jobs of a tenant, so a limit can only be one.

use std::time::Duration;

use anyhow::Result;
use apalis_postgres::PgPool;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::instruction::{self, Instruction, PeerJob, say, version_of};

const BATCH: usize = 1_000;
const NAME: &str = "job";

#[derive(Deserialize, Serialize)]
struct Perform(PeerJob);

impl TaskHandler for Perform {
    const IDENTIFIER: &'static str = NAME;

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        instruction::perform(self.0).await;
        Ok::<(), String>(())
    }
}

async fn utils(order: &Instruction) -> Result<WorkerUtils> {
    Ok(WorkerUtils::new(PgPool::connect(&order.url).await?, "graphile_worker"))
}

fn spec(order: &Instruction) -> JobSpec {
    JobSpec { queue_name: (order.options.limit > 0).then(|| order.options.tenant.clone()), ..JobSpec::default() }
}

pub(crate) async fn setup(order: &Instruction) -> Result<()> {
    utils(order).await?.migrate().await?;
    say(&json!({ "event": "ready", "version": version_of("graphile_worker") }));
    Ok(())
}

pub(crate) async fn fill(order: &Instruction) -> Result<()> {
    let utils = utils(order).await?;
    let raw = |job: PeerJob| {
        Ok(RawJobSpec { identifier: NAME.into(), payload: serde_json::to_value(job)?, spec: spec(order) })
    };
    order
        .fill(BATCH, async |jobs| {
            let jobs = jobs.into_iter().map(raw).collect::<Result<Vec<_>>>()?;
            utils.add_raw_jobs(&jobs).await?;
            Ok(())
        })
        .await
}

pub(crate) async fn send(order: &Instruction) -> Result<()> {
    let utils = utils(order).await?;
    order
        .send(|job| {
            let (utils, spec) = (utils.clone(), spec(order));
            async move {
                utils.add_raw_job(NAME, job, spec).await?;
                Ok(())
            }
        })
        .await
}

pub(crate) async fn work(order: Instruction) -> Result<()> {
    let mut options = WorkerOptions::default()
        .database_url(&order.url)
        .max_pg_conn(12)
        .concurrency(order.options.concurrency)
        .define_job::<Perform>();
    if order.options.batches {
        options = options
            .local_queue(LocalQueueConfig::default().with_size(BATCH))
            .complete_job_batch_delay(Duration::from_millis(5));
    }
    let worker = options.init().await?;
    instruction::work_until_closed(&order, async { Ok(worker.run().await?) }).await
}
