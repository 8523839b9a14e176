//! Reads each job from the database: its row, and its facts in order.

use std::collections::BTreeMap;

use anyhow::Context;
use store::connect::Client;
use tokio_postgres::Row;
use uuid::Uuid;

/// The step that a fact records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Pending,
    Claimed,
    Touched,
    Completed,
    Failed,
    Retried,
    Recovered,
    /// A step that must not occur in this run.
    Other,
}

/// A step of a job, and the row after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) version: i32,
    pub(super) step: Step,
    pub(super) worker: Option<String>,
    /// In microseconds since 1970.
    pub(super) claimed_at: Option<i64>,
    /// The execution, if Forebay's own worker holds it.
    pub(super) run: Option<Uuid>,
    pub(super) retries: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobRecord {
    pub(super) id: Uuid,
    pub(super) event: Uuid,
    pub(super) retries: i32,
    pub(super) facts: Vec<Fact>,
}

/// Every job.
pub(super) async fn load(client: &Client) -> anyhow::Result<Vec<JobRecord>> {
    // Rows and facts as they were at one moment.
    client.batch_execute("SET statement_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    let sql = "SELECT id, event_id, retry_count FROM workflow_queue_projection ORDER BY created_at, id";
    let rows = client.query(sql, &[]).await.context("read the jobs")?;
    let mut facts = all(client).await?;
    client.batch_execute("COMMIT").await?;
    let job = |row: &Row| {
        let id = row.get(0);
        JobRecord { id, event: row.get(1), retries: row.get(2), facts: facts.remove(&id).unwrap_or_default() }
    };
    Ok(rows.iter().map(job).collect())
}

async fn all(client: &Client) -> anyhow::Result<BTreeMap<Uuid, Vec<Fact>>> {
    let sql = "SELECT stream_id, stream_version, event_type, event_data->>'worker_id',
                      (extract(epoch FROM (event_data->>'claimed_at')::timestamptz) * 1000000)::bigint,
                      event_data->>'workflow_run_id', (event_data->>'retry_count')::int
                 FROM domain_events WHERE stream_type = 'workflow_queue' ORDER BY stream_id, stream_version";
    let mut found: BTreeMap<Uuid, Vec<Fact>> = BTreeMap::new();
    for row in client.query(sql, &[]).await.context("read the facts")? {
        found.entry(row.get(0)).or_default().push(Fact {
            version: row.get(1),
            step: step(row.get(2)),
            worker: row.get(3),
            claimed_at: row.get(4),
            run: row.get::<_, Option<&str>>(5).and_then(|run| run.parse().ok()),
            retries: row.get(6),
        });
    }
    Ok(found)
}

fn step(event_type: &str) -> Step {
    match event_type.strip_prefix("workflow.queue.") {
        Some("pending") => Step::Pending,
        Some("claimed") => Step::Claimed,
        Some("touched") => Step::Touched,
        Some("completed") => Step::Completed,
        Some("failed") => Step::Failed,
        Some("retried") => Step::Retried,
        Some("recovered") => Step::Recovered,
        _ => Step::Other,
    }
}
