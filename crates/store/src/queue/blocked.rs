//! Setting aside what a paused or lowered definition holds back, so that it costs the claim nothing.
//!
//! Invariants
//! - It only routes: it may be broken off anywhere, run twice, or run beside itself.
//! - The far end is moved first, then the queue is vacuumed, then the head: a claim starts at the
//!   head, and must not climb over dead entries of what was moved.
//!
//! Not here: what is let through again (`claim`).

use kernel::ids::{DefinitionId, QueueItemId, WorkspaceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::queue::claim::Gate;
use crate::sql::sql;
use crate::{Error, Store};

/// The most items one statement moves.
const BATCH: usize = 1_000;
/// How many ready items stay in place until the rest is moved and vacuumed: more than claims take
/// away meanwhile.
const HEAD: i64 = 10_000;

/// A place in a workspace's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub rank: i64,
    pub item: QueueItemId,
}

impl Store {
    /// Moves every ready item of a definition that it holds back out of the others' way, then lets
    /// through again what it has room for; answers how many were moved.
    pub async fn clear_the_way(&self, workspace: WorkspaceId, definition: DefinitionId) -> Result<usize, Error> {
        let moved = self.clear_of(workspace, definition).await?;
        self.open(&[Gate { workspace, definition, key: None }]).await?;
        Ok(moved)
    }

    pub(crate) async fn clear_of(&self, workspace: WorkspaceId, definition: DefinitionId) -> Result<usize, Error> {
        let mut all = 0;
        if let Some(head) = self.head(workspace).await? {
            all = self.set_aside_down_to(workspace, definition, Some(head)).await?;
            if all > BATCH {
                // Not ours to vacuum, or out of time: autovacuum comes round, and until then claims
                // of this workspace are slower.
                let _later = self.execute(sql!("execution_queue/vacuum"), &[]).await;
            }
        }
        Ok(all + self.set_aside_down_to(workspace, definition, None).await?)
    }

    async fn set_aside_down_to(
        &self,
        workspace: WorkspaceId,
        definition: DefinitionId,
        down_to: Option<Place>,
    ) -> Result<usize, Error> {
        let (mut all, mut before) = (0, None);
        loop {
            let (moved, last) = self.set_aside(workspace, definition, before, down_to).await?;
            all += moved;
            if moved < BATCH {
                return Ok(all);
            }
            before = last;
        }
    }

    /// Moves ready items of a definition that may not start aside, a thousand at a time from the
    /// last to the first, down to a place; answers how many moved, and where to go on before.
    pub async fn set_aside(
        &self,
        workspace: WorkspaceId,
        definition: DefinitionId,
        before: Option<Place>,
        down_to: Option<Place>,
    ) -> Result<(usize, Option<Place>), Error> {
        let before = before.unwrap_or(Place { rank: i64::MAX, item: QueueItemId(Uuid::max()) });
        let down_to = down_to.unwrap_or(Place { rank: i64::MIN, item: QueueItemId(Uuid::nil()) });
        let rows = self
            .query(
                sql!("execution_queue/set_aside"),
                &[&workspace.0, &definition.0, &before.rank, &before.item.0, &down_to.rank, &down_to.item.0],
            )
            .await?;
        let places: Result<Vec<Place>, Error> = rows.iter().map(place).collect();
        let places = places?;
        Ok((places.len(), places.into_iter().min()))
    }

    /// Where a workspace's head ends; none if no more than that wait.
    async fn head(&self, workspace: WorkspaceId) -> Result<Option<Place>, Error> {
        self.query(sql!("execution_queue/head"), &[&workspace.0, &HEAD]).await?.first().map(place).transpose()
    }
}

fn place(row: &Row) -> Result<Place, Error> {
    Ok(Place { rank: row.try_get(0)?, item: QueueItemId(row.try_get(1)?) })
}
