//! Takeover: if the claimer of an item is dead or slow, the item gets a new claim and keeps its slot.
//!
//! Not here: when to poll (`server::queue::takeover`), runs whose owner is dead (`run::owner`).

use std::time::Duration;

use kernel::ids::{ClaimId, DefinitionId, ProcessId, QueueItemId, WorkspaceId};
use tokio_postgres::Row;

use crate::queue::claim::{LivenessRule, attempts};
use crate::sql::sql;
use crate::{Error, Store};

/// An item that was taken over, under its new claim.
#[derive(Clone, Debug)]
pub struct TakenOverItem {
    pub item: QueueItemId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub attempts: u32,
    pub takeovers: i32,
    /// The claimer is dead; false: it is only slow.
    pub dead: bool,
}

impl Store {
    /// Takes over claimed items of these shards whose claimer is dead or slow. Their slots stay taken.
    pub async fn take_over_items(
        &self,
        shards: &[i16],
        rule: LivenessRule,
        stale_after: Duration,
        claim: ClaimId,
        process: ProcessId,
    ) -> Result<Vec<TakenOverItem>, Error> {
        let rows = self
            .query(
                sql!("execution_queue/takeover"),
                &[
                    &shards,
                    &rule.dead_after.as_secs_f64(),
                    &stale_after.as_secs_f64(),
                    &claim.0,
                    &process.0,
                    &rule.steady,
                ],
            )
            .await?;
        let taken = |row: &Row| {
            Ok(TakenOverItem {
                item: QueueItemId(row.try_get("id")?),
                workspace: WorkspaceId(row.try_get("workspace_id")?),
                definition: DefinitionId(row.try_get("workflow_definition_id")?),
                attempts: attempts(row, "attempt_count")?,
                takeovers: row.try_get("takeover_count")?,
                dead: row.try_get("dead")?,
            })
        };
        rows.iter().map(taken).collect()
    }
}
