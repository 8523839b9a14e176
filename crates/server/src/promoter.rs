//! Moves on what waits for something other than its turn: a time, a key, a definition, a deletion.
//!
//! Invariants
//! - It only routes, or ends what can never start; it may run twice, late, or beside itself.
//! - Every pass is bounded; one that was cut short is followed by another at once.
//!
//! Not here: claiming (`dispatcher`), what may start (`store::admission`).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kernel::execution;
use kernel::ids::WorkspaceId;
use store::Store;
use store::admission::GatesFrom;
use store::deletion::Orphaned;
use store::run::{End, Ending};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Alive;
use crate::hints::Hints;
use crate::metrics;

/// The most items one pass of `ripen` moves.
const RIPENED: usize = 1_000;
/// The most items of anything deleted that one look finds.
const ORPHANED: usize = 500;
/// How many workspaces' items are set aside at once.
const MOVES: usize = 4;
/// The most gates one statement opens.
const GATES: usize = 500;

pub(crate) struct Promoter {
    pub(crate) store: Store,
    pub(crate) hints: Hints,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    /// Where the next look at each shard's gates goes on.
    pub(crate) gates_from: Mutex<HashMap<i16, GatesFrom>>,
}

impl Promoter {
    fn looked_at(&self) -> MutexGuard<'_, HashMap<i16, GatesFrom>> {
        self.gates_from.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delayed items whose time has come. Answers when to look again, if sooner than the poll.
    pub(crate) async fn ripen(&self) -> Result<Option<Duration>, store::Error> {
        let (ready, moved) = self.store.ripen().await?;
        for workspace in ready {
            self.hints.ready(workspace);
        }
        if moved >= RIPENED {
            return Ok(Some(Duration::ZERO));
        }
        Ok(self.store.next_due().await?.map(|due| due.max(Duration::from_millis(5))))
    }

    /// Keys and definitions with room that nobody opened, and what belongs to anything deleted. A look
    /// that was cut short is followed by another at once.
    pub(crate) async fn gates(&self) -> Result<Option<Duration>, store::Error> {
        let shards = self.alive.borrow().as_ref().map(|alive| Arc::clone(&alive.shards)).unwrap_or_default();
        let (mut trouble, mut more) = (None, false);
        for shard in shards.iter().copied() {
            // One shard's trouble keeps no other's items waiting.
            match self.gates_of(shard).await {
                Ok(cut_short) => more |= cut_short,
                Err(error) => trouble = Some(error),
            }
        }
        trouble.map_or(Ok(more.then_some(Duration::ZERO)), Err)
    }

    async fn gates_of(&self, shard: i16) -> Result<bool, store::Error> {
        self.store.clear_deleted(shard).await?;
        let mut from = self.looked_at().remove(&shard).unwrap_or_default();
        let gates = self.store.sweep_gates(shard, &mut from).await?;
        self.looked_at().insert(shard, from);
        for some in gates.chunks(GATES) {
            for workspace in self.store.open(some).await? {
                self.hints.ready(workspace);
            }
        }
        let mut orphaned = self.store.orphaned_behind(shard, &gates).await?;
        orphaned.extend(self.store.orphaned_items(shard).await?);
        if !orphaned.is_empty() {
            self.fail(&orphaned).await?;
        }
        // What has not begun is over with this; a run's owner hears of it with its next heartbeat.
        for (execution, workspace) in self.store.orphaned_runs(shard).await? {
            self.store.cancel(execution, workspace, "promoter").await?;
            tracing::info!(workspace_id = %workspace, execution_id = %execution, "Canceling an execution of a deleted workspace");
        }
        Ok(orphaned.len() >= ORPHANED)
    }

    /// Moves what a paused or lowered definition holds back out of the others' way, for workspaces
    /// where a claim met such items. Each on its own: a million here hold up nobody there.
    pub(crate) async fn set_aside(
        self: Arc<Self>,
        mut met: mpsc::UnboundedReceiver<WorkspaceId>,
        stop: CancellationToken,
    ) {
        let (mut waiting, mut moving) = (BTreeSet::new(), HashMap::new());
        let mut moves = JoinSet::new();
        loop {
            tokio::select! {
                workspace = met.recv() => match workspace {
                    Some(workspace) => drop(waiting.insert(workspace)),
                    None => return,
                },
                Some(moved) = moves.join_next_with_id() => {
                    moving.remove(&moved.map_or_else(|error| error.id(), |(id, ())| id));
                }
                () = stop.cancelled() => return,
            }
            while moves.len() < MOVES
                && let Some(workspace) = waiting.iter().copied().find(|it| !moving.values().any(|at| at == it))
            {
                waiting.remove(&workspace);
                let promoter = Arc::clone(&self);
                let task = moves.spawn(async move { promoter.set_aside_and_tell(workspace).await });
                moving.insert(task.id(), workspace);
            }
        }
    }

    async fn set_aside_and_tell(&self, workspace: WorkspaceId) {
        match self.store.clear_the_way(workspace).await {
            Ok(_) => self.hints.ready(workspace),
            // The next sweep finds the workspace again.
            Err(error) => {
                tracing::warn!(workspace_id = %workspace, error = &error as &dyn std::error::Error, "Setting items aside failed");
            }
        }
    }

    async fn fail(&self, orphaned: &[Orphaned]) -> Result<(), store::Error> {
        let endings: Vec<Ending> = orphaned
            .iter()
            .map(|orphaned| Ending {
                execution: orphaned.item.execution(),
                claim: None,
                end: End { outcome: execution::Status::Failed, output: None, error: Some(orphaned.failure()) },
            })
            .collect();
        let ended = self.store.complete(&endings, Some(execution::Status::Pending), "promoter").await?;
        for ended in ended.iter().filter(|ended| ended.applied) {
            let gone = orphaned.iter().find(|orphaned| orphaned.item.execution() == ended.execution);
            let (reason, message) = match gone.is_none_or(|orphaned| orphaned.workspace_gone) {
                true => ("WorkspaceGone", "Workspace not found"),
                false => ("DefinitionGone", "Workflow definition not found"),
            };
            tracing::warn!(workspace_id = %ended.workspace, queue_item_id = %ended.execution, "{message}");
            ::metrics::counter!(metrics::FAILED, "reason" => reason).increment(1);
        }
        Ok(())
    }
}
