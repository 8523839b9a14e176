//! Moves the ready items of a paused or full definition to a blocked stage, so that claims need not read past them.
//!
//! Invariants
//! - Only stages change here. So a call may be interrupted anywhere, repeated, or run concurrently with another.
//! - The end of the queue is moved first, then the index is vacuumed, then the head is moved. A claim reads from the
//!   head, and must not read past the dead index entries of moved items.
//!
//! Not here: unblocking items (`claim`).

use kernel::ids::{DefinitionId, QueueItemId, WorkspaceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::queue::claim::BlockingLimit;
use crate::sql::sql;
use crate::{Error, Store};

/// The maximum number of items that one statement moves.
const BATCH: usize = 1_000;
/// How many ready items stay in place until all later ones are moved and vacuumed. Claims take fewer items in that
/// time.
const HEAD: i64 = 10_000;

/// A position among a workspace's ready items of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    pub rank: i64,
    pub item: QueueItemId,
}

impl Store {
    /// Moves every ready item of this definition to a blocked stage, if the definition is paused, limited or deleted.
    /// Then unblocks as many items as the definition has room for. Returns how many were moved.
    pub async fn block_definition(&self, workspace: WorkspaceId, definition: DefinitionId) -> Result<usize, Error> {
        let moved = self.block_all(workspace, definition).await?;
        self.unblock(&[BlockingLimit { workspace, definition, key: None }]).await?;
        Ok(moved)
    }

    pub(crate) async fn block_all(&self, workspace: WorkspaceId, definition: DefinitionId) -> Result<usize, Error> {
        let (mut all, heads) = (0, self.heads(workspace).await?);
        for (priority, head) in &heads {
            if head.is_some() {
                all += self.block_down_to(workspace, definition, *priority, *head).await?;
            }
        }
        if all > BATCH {
            // If this role may not vacuum, or the vacuum timed out, autovacuum does it later. Until then, claims of
            // this workspace are slower.
            let _later = self.execute(sql!("execution_queue/vacuum"), &[]).await;
        }
        for (priority, _) in heads {
            all += self.block_down_to(workspace, definition, priority, None).await?;
        }
        Ok(all)
    }

    async fn block_down_to(
        &self,
        workspace: WorkspaceId,
        definition: DefinitionId,
        priority: i16,
        down_to: Option<QueuePosition>,
    ) -> Result<usize, Error> {
        let (mut all, mut before) = (0, None);
        loop {
            let (moved, last) = self.block_batch(workspace, definition, priority, before, down_to).await?;
            all += moved;
            if moved < BATCH {
                return Ok(all);
            }
            before = last;
        }
    }

    /// Moves one batch of ready items of this priority, of a definition that may not start them, to the blocked stage,
    /// from the last item to the first, down to a position. Returns how many were moved, and the position before which
    /// to continue.
    pub async fn block_batch(
        &self,
        workspace: WorkspaceId,
        definition: DefinitionId,
        priority: i16,
        before: Option<QueuePosition>,
        down_to: Option<QueuePosition>,
    ) -> Result<(usize, Option<QueuePosition>), Error> {
        let before = before.unwrap_or(QueuePosition { rank: i64::MAX, item: QueueItemId(Uuid::max()) });
        let down_to = down_to.unwrap_or(QueuePosition { rank: i64::MIN, item: QueueItemId(Uuid::nil()) });
        let rows = self
            .query(
                sql!("execution_queue/block"),
                &[&workspace.0, &definition.0, &before.rank, &before.item.0, &down_to.rank, &down_to.item.0, &priority],
            )
            .await?;
        let positions: Result<Vec<QueuePosition>, Error> = rows.iter().map(position_of).collect();
        let positions = positions?;
        Ok((positions.len(), positions.into_iter().min()))
    }

    /// The priorities at which a workspace has ready items, and the position where the head of each ends: None if it
    /// has no more than `HEAD` items.
    async fn heads(&self, workspace: WorkspaceId) -> Result<Vec<(i16, Option<QueuePosition>)>, Error> {
        let head_of = |row: &Row| {
            let (rank, item): (Option<i64>, Option<Uuid>) = (row.try_get(1)?, row.try_get(2)?);
            let end = rank.zip(item).map(|(rank, item)| QueuePosition { rank, item: QueueItemId(item) });
            Ok((row.try_get(0)?, end))
        };
        self.query(sql!("execution_queue/head"), &[&workspace.0, &HEAD]).await?.iter().map(head_of).collect()
    }
}

fn position_of(row: &Row) -> Result<QueuePosition, Error> {
    Ok(QueuePosition { rank: row.try_get(0)?, item: QueueItemId(row.try_get(1)?) })
}
