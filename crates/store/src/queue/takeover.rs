//! Claimed items whose claimer is gone: another claim, the slot kept.
//!
//! Not here: when to look (`server::queue::takeover`), runs whose owner is gone (`adopt`).

use std::time::Duration;

use kernel::ids::{ClaimId, DefinitionId, ProcessId, QueueItemId, WorkspaceId};
use tokio_postgres::Row;

use crate::queue::claim::{Silence, attempts};
use crate::sql::sql;
use crate::{Error, Store};

/// A claimed item whose claimer is gone, under a new claim.
#[derive(Clone, Debug)]
pub struct TakenOver {
    pub item: QueueItemId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub attempts: u32,
    pub takeovers: i32,
    /// The claimer died, rather than being slow.
    pub dead: bool,
}

impl Store {
    /// Claimed items of these shards whose claimer is gone, under a new claim; their slots stay taken.
    pub async fn take_over(
        &self,
        shards: &[i16],
        silence: Silence,
        stale_after: Duration,
        claim: ClaimId,
        process: ProcessId,
    ) -> Result<Vec<TakenOver>, Error> {
        let rows = self
            .query(
                sql!("execution_queue/takeover"),
                &[
                    &shards,
                    &silence.dead_after.as_secs_f64(),
                    &stale_after.as_secs_f64(),
                    &claim.0,
                    &process.0,
                    &silence.steady,
                ],
            )
            .await?;
        let taken = |row: &Row| {
            Ok(TakenOver {
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
