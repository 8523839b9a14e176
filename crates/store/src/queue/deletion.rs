//! Carrying a deletion through: what waits for anything deleted is found, wherever it waits.
//!
//! Invariants
//! - Nothing here scans a backlog of the living, but for one walk through the ready items of a
//!   workspace whose definition was deleted, in bounded steps, as a pause does.
//! - It only finds and routes; it may be broken off anywhere, run twice, or run beside itself. What
//!   was accepted at the moment of the deletion is found by a later pass.
//!
//! Not here: the deletion itself (`control`), ending what was found (`run`).

use kernel::ids::{DefinitionId, ExecutionId, QueueItemId, WorkspaceId};
use kernel::run::failure::{Class, Failure};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::queue::claim::Gate;
use crate::sql::sql;
use crate::{Error, Store};

/// For how long starts that were accepted at the moment of a deletion are looked for.
const LATE_S: f64 = 10.0;

/// A waiting item that can never start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Orphaned {
    pub item: QueueItemId,
    pub definition: DefinitionId,
    /// Its workspace is gone, rather than its definition alone.
    pub workspace_gone: bool,
}

impl Orphaned {
    /// How it ends.
    pub fn failure(&self) -> Failure {
        match self.workspace_gone {
            true => Failure::new(Class::WorkspaceGone, "its workspace was deleted before it could start"),
            false => Failure::new(Class::DefinitionGone, "its definition was deleted before it could start"),
        }
    }
}

impl Store {
    /// Items of a shard that wait for their turn or for a time, of anything deleted.
    pub async fn orphaned_items(&self, shard: i16) -> Result<Vec<Orphaned>, Error> {
        let rows = self.query(sql!("execution_queue/orphaned_items"), &[&shard]).await?;
        rows.iter().map(orphaned).collect()
    }

    /// Of these gates of a shard, what waits at those of anything deleted.
    pub async fn orphaned_behind(&self, shard: i16, gates: &[Gate]) -> Result<Vec<Orphaned>, Error> {
        if gates.is_empty() {
            return Ok(Vec::new());
        }
        let workspaces: Vec<Uuid> = gates.iter().map(|gate| gate.workspace.0).collect();
        let definitions: Vec<Uuid> = gates.iter().map(|gate| gate.definition.0).collect();
        let rows = self.query(sql!("execution_queue/orphaned_behind"), &[&shard, &workspaces, &definitions]).await?;
        rows.iter().map(orphaned).collect()
    }

    /// Moves the ready items of definitions of this shard that were deleted out of the others' way, to
    /// where `orphaned_behind` finds them; answers how many moved.
    pub async fn clear_deleted(&self, shard: i16) -> Result<usize, Error> {
        let rows = self.query(sql!("workflow_definition/clearing"), &[&shard]).await?;
        let mut moved = 0;
        for row in &rows {
            let (definition, workspace) = (DefinitionId(row.try_get(0)?), WorkspaceId(row.try_get(1)?));
            moved += self.clear_of(workspace, definition).await?;
            self.execute(sql!("workflow_definition/cleared"), &[&definition.0, &LATE_S]).await?;
        }
        Ok(moved)
    }

    /// Executions of deleted workspaces that hold a slot and were not asked to end yet.
    pub async fn orphaned_runs(&self, shard: i16) -> Result<Vec<(ExecutionId, WorkspaceId)>, Error> {
        let rows = self.query(sql!("execution_queue/orphaned_runs"), &[&shard]).await?;
        rows.iter().map(|row| Ok((ExecutionId(row.try_get(0)?), WorkspaceId(row.try_get(1)?)))).collect()
    }
}

fn orphaned(row: &Row) -> Result<Orphaned, Error> {
    Ok(Orphaned {
        item: QueueItemId(row.try_get(0)?),
        workspace_gone: row.try_get(1)?,
        definition: DefinitionId(row.try_get(2)?),
    })
}
