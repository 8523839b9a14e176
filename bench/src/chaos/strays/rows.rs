//! Rows that somebody deleted, and runs of an engine that is no longer there.
//!
//! Invariants
//! - Each is done to an execution that holds a slot and does nothing but wait.
//! - Nobody helps: the service finds what was deleted by itself. A run of an engine that is not served is terminated by
//!   whoever wants its slot, as the documents say, until it is.

use std::time::Instant;

use anyhow::ensure;
use serde_json::json;
use uuid::Uuid;

use super::load::ENDLESS;
use super::{Run, SLOT_FREE};
use crate::chaos::ms;
use crate::report::say;

/// Numbers that no round has.
const FIRST: i64 = 1_000_000;

impl Run {
    /// Makes strays, and waits until no slot is held by one; answers with how many there were of each sort.
    pub(super) async fn strays(&self) -> anyhow::Result<Vec<(&'static str, usize)>> {
        say("strays: rows are deleted, engines changed");
        let count = self.size.strays;
        let deleted = self.waiting(FIRST, count).await?;
        let changed = self.waiting(FIRST + 1_000, count).await?;
        let client = &self.setup.client;
        let delete = "DELETE FROM workflow_execution WHERE id = ANY ($1)";
        ensure!(client.execute(delete, &[&deleted]).await? == u64::try_from(deleted.len())?, "the rows were there");
        let change =
            "UPDATE workflow_execution SET engine = 'temporal', engine_where = 'elsewhere', owner = gen_random_uuid(),
                             owner_epoch = owner_epoch + 1, wake_at = NULL WHERE id = ANY ($1)";
        ensure!(client.execute(change, &[&changed]).await? == u64::try_from(changed.len())?, "the rows were there");
        let since = Instant::now();
        while self.setup.slots().await? > 0 && since.elapsed() < SLOT_FREE {
            for (turn, execution) in changed.iter().enumerate() {
                let path = format!("workflow/executions/{execution}/terminate");
                // That it is over, or not yet known to be another's, is as good an answer.
                drop(self.load.ask(&path, &json!({}), turn).await);
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
        let open = "SELECT count(*) FROM workflow_execution_ask WHERE execution_id = ANY ($1) AND status = 'OPEN'";
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
