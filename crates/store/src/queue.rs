//! Reads queue items: the position of an item, and everything that may hold it back.
//!
//! Not here: moving items (`claim`), the reasons themselves (`kernel::queue::explain`).

pub mod blocked;
pub mod claim;
pub mod control;
pub mod dead_letter;
pub mod deletion;
pub mod enqueue;
pub mod stray;
pub mod takeover;

use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, QueueItemId, WorkspaceId};
use kernel::queue::explain::{EngineState, Facts};
use kernel::queue::{Stage, Status};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, parsed};

/// A queue item for display, with everything that limits it.
#[derive(Clone, Debug)]
pub struct QueueItem {
    pub item: QueueItemId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub priority: i16,
    pub created_at: Timestamp,
    pub claimed_at: Option<Timestamp>,
    pub dispatched_at: Option<Timestamp>,
    pub takeovers: i32,
    /// The input of `explain`. The caller adds whether the execution has begun, and the state of the engine.
    pub facts: Facts,
}

impl Store {
    /// One queue item, if it still exists.
    pub async fn queue_item(&self, item: QueueItemId) -> Result<Option<QueueItem>, Error> {
        let rows = self.query(sql!("execution_queue/get"), &[&item.0]).await?;
        rows.first().map(queue_item_of).transpose()
    }
}

fn queue_item_of(row: &Row) -> Result<QueueItem, Error> {
    let stage: i16 = row.try_get("stage")?;
    let attempts: i32 = row.try_get("attempt_count")?;
    let definition_status: Option<&str> = row.try_get("definition_status")?;
    let facts = Facts {
        status: parsed(row, "status", Status::parse)?,
        stage: Stage::from_code(stage).ok_or_else(|| Error::Corrupt(format!("stage is {stage}")))?,
        available_at: row.try_get::<_, Timestamp>("available_at")?.to_string(),
        attempts: u32::try_from(attempts).unwrap_or(0),
        last_error: row.try_get("last_error")?,
        workspace_paused: row.try_get::<_, Option<bool>>("workspace_paused")?.unwrap_or(false),
        workspace_deleted: row.try_get::<_, Option<bool>>("workspace_deleted")?.unwrap_or(true),
        workspace_running: row.try_get("workspace_running")?,
        workspace_limit: row.try_get::<_, Option<i32>>("workspace_limit")?.unwrap_or(0),
        definition_paused: definition_status == Some("PAUSED"),
        definition_deleted: row.try_get("definition_deleted")?,
        definition_running: row.try_get("definition_running")?,
        definition_limit: row.try_get("definition_limit")?,
        key: row.try_get("concurrency_key")?,
        key_running: row.try_get("key_running")?,
        key_limit: row.try_get::<_, Option<i32>>("key_limit")?.unwrap_or(1),
        ahead: row.try_get("ahead")?,
        held_by: row.try_get::<_, Vec<Uuid>>("held_by")?.into_iter().map(ExecutionId).collect(),
        begun: false,
        engine: EngineState::Available,
        stuck: None,
    };
    Ok(QueueItem {
        item: QueueItemId(row.try_get("id")?),
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        priority: row.try_get("priority")?,
        created_at: row.try_get("created_at")?,
        claimed_at: row.try_get("claimed_at")?,
        dispatched_at: row.try_get("dispatched_at")?,
        takeovers: row.try_get("takeover_count")?,
        facts,
    })
}
