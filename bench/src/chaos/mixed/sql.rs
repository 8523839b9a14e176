//! A worker in plain SQL. The statements stand here as they do in the document that the table comes from; only its
//! placeholders are filled in. Its heartbeat is the touch of `updated_at`.
//!
//! Invariants
//! - No row: somebody else has the job. A refusal of the table's guard is a refusal; any other error ends the worker.

use std::collections::VecDeque;

use anyhow::{Context, bail};
use jiff::Timestamp;
use store::connect::{Client, Target};
use tokio_postgres::error::SqlState;
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};
use uuid::Uuid;

use super::journal::Hold;
use super::plan::How;
use super::worker::{Hand, Order, Taken};

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
/// Not of the document: only that `updated_at` moves.
const TOUCH: &str = "\
UPDATE workflow_queue_projection
SET updated_at = now()
WHERE id = 'job-uuid-here'
  AND status = 'processing'
  AND worker_id = 'worker-hostname-1234';";

pub(super) struct Sql {
    client: Client,
    worker: String,
    /// Jobs that were pending when it looked.
    seen: VecDeque<Uuid>,
}

impl Sql {
    pub(super) async fn new(order: &Order) -> anyhow::Result<Sql> {
        let url = format!("{}&application_name={}", order.database_url, order.worker);
        let client = Target::new(&url)?.connect().await?;
        // As any other program has it.
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

    fn taken(&self, row: &SimpleQueryRow) -> anyhow::Result<Taken> {
        let text = |name: &str| row.get(name).with_context(|| format!("a claimed job has no {name}"));
        let claimed_at: Timestamp = text("claimed_at")?.parse()?;
        let hold =
            Hold { job: text("id")?.parse()?, worker: self.worker.clone(), claimed_at: claimed_at.as_microsecond() };
        Taken::new(hold, None, text("retry_count")?.parse()?, &serde_json::from_str(text("event_data")?)?)
    }
}

impl Hand for Sql {
    async fn take(&mut self) -> anyhow::Result<Option<Taken>> {
        if self.seen.is_empty() {
            for row in self.rows(PENDING).await.context("look for pending jobs")? {
                self.seen.push_back(row.get("id").context("a job has no id")?.parse()?);
            }
        }
        while let Some(job) = self.seen.pop_front() {
            if let Some(row) = self.rows(&self.filled(CLAIM, job)).await.context("claim a job")?.first() {
                return self.taken(row).map(Some);
            }
        }
        Ok(None)
    }

    async fn beat(&mut self, taken: &Taken) -> anyhow::Result<()> {
        self.rows(&self.filled(TOUCH, taken.hold.job)).await.context("touch a job").map(drop)
    }

    async fn end(&mut self, taken: &Taken, how: How) -> anyhow::Result<bool> {
        let statement = match how {
            How::Completed => COMPLETE,
            How::Failed => FAIL,
        };
        match self.rows(&self.filled(statement, taken.hold.job)).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some(&SqlState::CHECK_VIOLATION) => Ok(false),
            Err(error) => bail!("an end was answered {error}"),
        }
    }
}
