//! Completes the deletion of a workspace or definition: finds its queue items, at every stage.
//!
//! Invariants
//! - The backlog of workspaces and definitions that are not deleted is not scanned. One exception: the ready items of a
//!   workspace whose definition was deleted are read, in bounded steps, as after a pause.
//! - Items are only found and moved here. So a call may be interrupted anywhere, repeated, or run concurrently with
//!   another. A later pass finds items that were accepted at the moment of the deletion.
//!
//! Not here: the deletion itself (`control`), ending what was found (`run`).

use kernel::ids::{DefinitionId, ExecutionId, QueueItemId, WorkspaceId};
use kernel::run::failure::{Class, Failure};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::queue::claim::BlockingLimit;
use crate::sql::sql;
use crate::{Error, Store};

/// For how long after a deletion to search for starts that were accepted at that moment.
const LATE_S: f64 = 10.0;

/// A waiting item of a deleted workspace or definition. It can never start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemOfDeleted {
    pub item: QueueItemId,
    pub definition: DefinitionId,
    /// The workspace was deleted, not only the definition.
    pub workspace_gone: bool,
}

impl ItemOfDeleted {
    /// The failure with which the item's execution ends.
    pub fn failure(&self) -> Failure {
        match self.workspace_gone {
            true => Failure::new(Class::WorkspaceGone, "the workspace was deleted before the execution could start"),
            false => Failure::new(Class::DefinitionGone, "the definition was deleted before the execution could start"),
        }
    }
}

impl Store {
    /// Ready items of deleted workspaces, and delayed items of deleted workspaces or definitions, in a shard.
    pub async fn items_of_deleted(&self, shard: i16) -> Result<Vec<ItemOfDeleted>, Error> {
        let rows = self.query(sql!("execution_queue/items_of_deleted"), &[&shard]).await?;
        rows.iter().map(item_of_deleted).collect()
    }

    /// Items blocked by these limits of a shard whose workspace or definition was deleted.
    pub async fn blocked_items_of_deleted(
        &self,
        shard: i16,
        limits: &[BlockingLimit],
    ) -> Result<Vec<ItemOfDeleted>, Error> {
        if limits.is_empty() {
            return Ok(Vec::new());
        }
        let workspaces: Vec<Uuid> = limits.iter().map(|limit| limit.workspace.0).collect();
        let definitions: Vec<Uuid> = limits.iter().map(|limit| limit.definition.0).collect();
        let rows =
            self.query(sql!("execution_queue/blocked_items_of_deleted"), &[&shard, &workspaces, &definitions]).await?;
        rows.iter().map(item_of_deleted).collect()
    }

    /// Moves the ready items of deleted definitions of this shard to blocked, where `blocked_items_of_deleted` finds
    /// them. Returns how many moved.
    pub async fn block_deleted_definitions(&self, shard: i16) -> Result<usize, Error> {
        let rows = self.query(sql!("workflow_definition/clearing"), &[&shard]).await?;
        let mut moved = 0;
        for row in &rows {
            let (definition, workspace) = (DefinitionId(row.try_get(0)?), WorkspaceId(row.try_get(1)?));
            moved += self.block_all(workspace, definition).await?;
            self.execute(sql!("workflow_definition/cleared"), &[&definition.0, &LATE_S]).await?;
        }
        Ok(moved)
    }

    /// Executions of deleted workspaces that hold a slot and whose cancellation was not requested yet.
    pub async fn runs_of_deleted(&self, shard: i16) -> Result<Vec<(ExecutionId, WorkspaceId)>, Error> {
        let rows = self.query(sql!("execution_queue/runs_of_deleted"), &[&shard]).await?;
        rows.iter().map(|row| Ok((ExecutionId(row.try_get(0)?), WorkspaceId(row.try_get(1)?)))).collect()
    }
}

fn item_of_deleted(row: &Row) -> Result<ItemOfDeleted, Error> {
    Ok(ItemOfDeleted {
        item: QueueItemId(row.try_get(0)?),
        workspace_gone: row.try_get(1)?,
        definition: DefinitionId(row.try_get(2)?),
    })
}
