//! Promotes items that do not only wait for their turn: delayed items whose time has come, and blocked items whose
//! concurrency key or definition has room again. It also ends items whose workspace or definition was deleted.
//!
//! Invariants
//! - It only marks items as ready or blocked, or ends items that can never start. So any number of processes may run it
//!   at the same time, and a late pass does no harm.
//! - Each pass handles a bounded number of items. If more are left, the next pass follows immediately.
//!
//! Not here: claiming (`dispatch`), what may start (`store::queue::claim`).

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::log_event;
use kernel::execution;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::signals::{events, metrics};
use store::Store;
use store::queue::claim::LimitCursor;
use store::queue::deletion::ItemOfDeleted;
use store::run::{End, Ending};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process::heartbeat::Membership;
use crate::process::notifications::{Notification, Notifier};

/// The most delayed items that one pass promotes.
const MAX_PROMOTED: usize = 1_000;
/// The most items of deleted workspaces and definitions that one pass finds.
const MAX_OF_DELETED: usize = 500;
/// For how many definitions items are marked as blocked at the same time.
const MAX_MARKING: usize = 4;
/// The most keys and definitions whose items one statement unblocks.
const MAX_UNBLOCKED: usize = 500;

pub(crate) struct Promoter {
    pub(crate) store: Store,
    pub(crate) notifier: Notifier,
    /// The dispatcher of this process.
    pub(crate) dispatcher: mpsc::UnboundedSender<Notification>,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
    /// Where the next pass over the blocked items of each shard continues.
    pub(crate) positions: Mutex<HashMap<i16, LimitCursor>>,
}

impl Promoter {
    fn positions(&self) -> MutexGuard<'_, HashMap<i16, LimitCursor>> {
        self.positions.lock()
    }

    /// Promotes delayed items whose time has come; returns the time until the next item is due.
    pub(crate) async fn promote_delayed(&self) -> Result<Option<Duration>, store::Error> {
        let (ready, moved) = self.store.promote().await?;
        for workspace in ready {
            self.notifier.notify_ready(workspace);
        }
        if moved >= MAX_PROMOTED {
            return Ok(Some(Duration::ZERO));
        }
        Ok(self.store.next_due().await?.map(|due| due.max(Duration::from_millis(5))))
    }

    /// Unblocks items whose key or definition has room, and ends items of deleted workspaces and definitions. If more
    /// items are left, the next pass follows immediately.
    pub(crate) async fn unblock(&self) -> Result<Option<Duration>, store::Error> {
        let shards =
            self.membership.borrow().as_ref().map(|membership| Arc::clone(&membership.shards)).unwrap_or_default();
        let shards = self.store.shards_in_use(&shards).await?;
        // A shard in which nothing is blocked is read from its start again.
        self.positions().retain(|shard, _| shards.contains(shard));
        let (mut failure, mut has_more) = (None, false);
        for shard in shards {
            // A failure in one shard delays no items of the other shards.
            match self.unblock_shard(shard).await {
                Ok(more) => has_more |= more,
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(has_more.then_some(Duration::ZERO)), Err)
    }

    /// Unblocks the items of one shard; true if there is more to do.
    async fn unblock_shard(&self, shard: i16) -> Result<bool, store::Error> {
        self.store.block_deleted_definitions(shard).await?;
        let mut from = self.positions().get(&shard).cloned().unwrap_or_default();
        let limits = self.store.blocking_limits(shard, &mut from).await?;
        for some in limits.chunks(MAX_UNBLOCKED) {
            for workspace in self.store.unblock(some).await? {
                self.notifier.notify_ready(workspace);
            }
        }
        let more = !from.is_start();
        self.positions().insert(shard, from);
        let mut found = self.store.blocked_items_of_deleted(shard, &limits).await?;
        found.extend(self.store.items_of_deleted(shard).await?);
        if !found.is_empty() {
            self.fail(&found).await?;
        }
        // A cancel ends an execution that has not begun. The owner of a run receives the cancel with its next
        // heartbeat.
        for (execution, workspace) in self.store.runs_of_deleted(shard).await? {
            self.store.cancel(execution, workspace, "promoter").await?;
            tracing::info!(workspace_id = %workspace, execution_id = %execution,
                "Canceling execution: its workspace was deleted");
        }
        Ok(more || found.len() >= MAX_OF_DELETED)
    }

    /// Marks the items of definitions that are paused or at their limit as blocked, so that claims no longer read these
    /// items. The dispatcher sends each definition whose items a claim has read. Definitions are handled separately, in
    /// the order in which they arrive, so that a million items of one definition do not delay the others.
    pub(crate) async fn mark_blocked(
        self: Arc<Self>,
        mut definitions: mpsc::UnboundedReceiver<(WorkspaceId, DefinitionId)>,
        stop: CancellationToken,
    ) {
        let (mut waiting, mut marking) = (VecDeque::new(), HashMap::new());
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                definition = definitions.recv() => match definition {
                    // The dispatcher sends a definition repeatedly until its items are marked.
                    Some(definition) if !waiting.contains(&definition) => waiting.push_back(definition),
                    Some(_) => {}
                    None => return,
                },
                Some(marked) = tasks.join_next_with_id() => {
                    marking.remove(&marked.map_or_else(|error| error.id(), |(id, ())| id));
                }
                () = stop.cancelled() => return,
            }
            while tasks.len() < MAX_MARKING
                && let Some(at) = waiting.iter().position(|next| !marking.values().any(|other| other == next))
                && let Some((workspace, definition)) = waiting.remove(at)
            {
                let promoter = Arc::clone(&self);
                let task = tasks.spawn(async move { promoter.mark_definition(workspace, definition).await });
                marking.insert(task.id(), (workspace, definition));
            }
        }
    }

    async fn mark_definition(&self, workspace: WorkspaceId, definition: DefinitionId) {
        match self.store.block_definition(workspace, definition).await {
            // The dispatcher of this process is notified even if notifications are off, because it asks the workspace
            // again only after the items are marked.
            Ok(_) => drop(self.dispatcher.send(Notification::Ready(workspace))),
            // The next sweep finds the workspace again.
            Err(error) => {
                tracing::warn!(workspace_id = %workspace, error = &error as &dyn std::error::Error,
                    "Could not mark the queue items of a definition as blocked; the next sweep retries it");
            }
        }
    }

    async fn fail(&self, items: &[ItemOfDeleted]) -> Result<(), store::Error> {
        let endings: Vec<Ending> = items
            .iter()
            .map(|deleted| Ending {
                execution: deleted.item.execution(),
                claim: None,
                end: End { outcome: execution::Status::Failed, output: None, error: Some(deleted.failure()) },
            })
            .collect();
        let ended = self.store.complete(&endings, Some(execution::Status::Pending), "promoter").await?;
        for ended in ended.iter().filter(|ended| ended.applied) {
            let same = |deleted: &&ItemOfDeleted| deleted.item.execution() == ended.execution;
            let Some(deleted) = items.iter().find(same) else { continue };
            let (item, class) = (deleted.item, deleted.failure().class);
            match deleted.workspace_gone {
                true => log_event!(events::WORKSPACE_GONE, workspace_id = %ended.workspace, queue_item_id = %item),
                false => {
                    log_event!(events::DEFINITION_GONE, queue_item_id = %item, definition_id = %deleted.definition)
                }
            }
            ::metrics::counter!(metrics::FAILED.name, "reason" => class.name()).increment(1);
        }
        Ok(())
    }
}
