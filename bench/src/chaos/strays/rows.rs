//! Deletes rows by hand, and changes the engine of runs to one that is not configured.
//!
//! Invariants
//! - Each of these changes affects an execution that holds a slot and waits for an answer.
//! - The service finds deleted rows by itself. The harness terminates a run whose engine is not served, as the
//!   documentation recommends, and repeats the request until the run has ended.

use std::time::Instant;

use anyhow::ensure;
use serde_json::json;
use uuid::Uuid;

use super::load::ENDLESS;
use super::{Run, SLOT_FREE};
use crate::chaos::ms;
use crate::report::say;

/// The first request number that no round uses.
const FIRST: i64 = 1_000_000;

impl Run {
    /// Creates strays, and waits until none of them holds a slot. Returns how many there were of each sort.
    pub(super) async fn strays(&self) -> anyhow::Result<Vec<(&'static str, usize)>> {
        say("strays: rows are deleted, engines changed");
        let count = self.size.strays;
        let deleted = self.waiting(FIRST, count).await?;
        let changed = self.waiting(FIRST + 1_000, count).await?;
        let client = &self.setup.client;
        let delete = "DELETE FROM workflow_execution WHERE id = ANY ($1)";
        ensure!(client.execute(delete, &[&deleted]).await? == u64::try_from(deleted.len())?, "the rows were there");
        let change = "UPDATE workflow_execution
             SET engine = 'temporal', engine_location = 'elsewhere', owner = gen_random_uuid(),
                             owner_epoch = owner_epoch + 1 WHERE id = ANY ($1)";
        ensure!(client.execute(change, &[&changed]).await? == u64::try_from(changed.len())?, "the rows were there");
        client.execute("UPDATE execution_queue SET owner = NULL WHERE id = ANY ($1)", &[&changed]).await?;
        let since = Instant::now();
        while self.setup.slots().await? > 0 && since.elapsed() < SLOT_FREE {
            for (turn, execution) in changed.iter().enumerate() {
                let path = format!("workflow/executions/{execution}/terminate");
                // Two refusals are valid: the execution has already ended, or the service has not noticed yet that the
                // run belongs to another engine.
                drop(self.load.post(&path, &json!({}), turn).await);
            }
            tokio::time::sleep(ms(1_000)).await;
        }
        Ok(vec![("rows_deleted", deleted.len()), ("engine_changed", changed.len())])
    }

    /// Starts executions, and waits until each waits for an answer.
    async fn waiting(&self, first: i64, count: usize) -> anyhow::Result<Vec<Uuid>> {
        let mut executions = Vec::new();
        for n in (first..).take(count) {
            executions.push(self.load.start(ENDLESS, n).await);
        }
        let open = "SELECT count(*) FROM workflow_execution_wait WHERE execution_id = ANY ($1) AND status = 'OPEN'";
        let since = Instant::now();
        loop {
            let waiting: i64 = self.setup.client.query_one(open, &[&executions]).await?.get(0);
            if usize::try_from(waiting)? == count {
                return Ok(executions);
            }
            ensure!(since.elapsed() < SLOT_FREE, "executions do not get to their waits");
            tokio::time::sleep(ms(50)).await;
        }
    }
}
