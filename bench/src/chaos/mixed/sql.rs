//! A worker in plain SQL. The statements are copied from the specification of the table; only their placeholders are
//! filled in. The heartbeat is an update of `updated_at`.
//!
//! Invariants
//! - If a statement returns no row, another worker has the job. An error of the table's trigger is a refusal; after any
//!   other error the worker exits.

use std::collections::VecDeque;

use anyhow::{Context, bail};
use jiff::Timestamp;
use store::connect::{Client, Target};
use tokio_postgres::error::SqlState;
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};
use uuid::Uuid;

use super::journal::Hold;
use super::plan::JobResult;
use super::worker::{ClaimedJob, JobClient, Order};

const PENDING: &str = "\
SELECT *
FROM workflow_queue_projection
WHERE status = 'pending'
ORDER BY created_at ASC;";
const CLAIM: &str = "\
UPDATE workflow_queue_projection
SET
  status = 'processing',
  worker_id = 'worker-hostname-1234',
  claimed_at = now(),
  updated_at = now()
WHERE id = 'job-uuid-here'
  AND status = 'pending'
RETURNING *;";
const COMPLETE: &str = "\
UPDATE workflow_queue_projection
SET
  status = 'completed',
  completed_at = now(),
  result = '{\"orgId\": \"...\", \"domain\": \"...\"}'::jsonb,
  updated_at = now()
WHERE id = 'job-uuid-here';";
const FAIL: &str = "\
UPDATE workflow_queue_projection
SET
  status = 'failed',
  failed_at = now(),
  error_message = 'DNS verification timeout',
  error_stack = '...',
  retry_count = retry_count + 1,
  updated_at = now()
WHERE id = 'job-uuid-here';";
/// The heartbeat. It is not in the specification.
const TOUCH: &str = "\
UPDATE workflow_queue_projection
SET updated_at = now()
WHERE id = 'job-uuid-here'
  AND status = 'processing'
  AND worker_id = 'worker-hostname-1234';";

pub(super) struct Sql {
    client: Client,
    worker: String,
    /// Jobs that were pending at its last poll.
    seen: VecDeque<Uuid>,
}

impl Sql {
    pub(super) async fn new(order: &Order) -> anyhow::Result<Sql> {
        let url = format!("{}&application_name={}", order.database_url, order.worker);
        let client = Target::new(&url)?.connect().await?;
        // An ordinary program has this search path.
        client.batch_execute("SET search_path = public").await?;
        Ok(Sql { client, worker: order.worker.clone(), seen: VecDeque::new() })
    }

    async fn rows(&self, statement: &str) -> Result<Vec<SimpleQueryRow>, tokio_postgres::Error> {
        let answer = self.client.simple_query(statement).await?;
        Ok(answer
            .into_iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            })
            .collect())
    }

    fn filled(&self, statement: &str, job: Uuid) -> String {
        statement.replace("job-uuid-here", &job.to_string()).replace("worker-hostname-1234", &self.worker)
    }

    fn claimed_job(&self, row: &SimpleQueryRow) -> anyhow::Result<ClaimedJob> {
        let text = |name: &str| row.get(name).with_context(|| format!("a claimed job has no {name}"));
        let claimed_at: Timestamp = text("claimed_at")?.parse()?;
        let hold =
            Hold { job: text("id")?.parse()?, worker: self.worker.clone(), claimed_at: claimed_at.as_microsecond() };
        ClaimedJob::new(hold, None, text("retry_count")?.parse()?, &serde_json::from_str(text("event_data")?)?)
    }
}

impl JobClient for Sql {
    async fn take(&mut self) -> anyhow::Result<Option<ClaimedJob>> {
        if self.seen.is_empty() {
            for row in self.rows(PENDING).await.context("look for pending jobs")? {
                self.seen.push_back(row.get("id").context("a job has no id")?.parse()?);
            }
        }
        while let Some(job) = self.seen.pop_front() {
            if let Some(row) = self.rows(&self.filled(CLAIM, job)).await.context("claim a job")?.first() {
                return self.claimed_job(row).map(Some);
            }
        }
        Ok(None)
    }

    async fn beat(&mut self, claimed: &ClaimedJob) -> anyhow::Result<()> {
        self.rows(&self.filled(TOUCH, claimed.hold.job)).await.context("touch a job").map(drop)
    }

    async fn end(&mut self, claimed: &ClaimedJob, how: JobResult) -> anyhow::Result<bool> {
        let statement = match how {
            JobResult::Completed => COMPLETE,
            JobResult::Failed => FAIL,
        };
        match self.rows(&self.filled(statement, claimed.hold.job)).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(&SqlState::CHECK_VIOLATION) => Ok(false),
            Err(error) => bail!("an end was answered {error}"),
        }
    }
}
