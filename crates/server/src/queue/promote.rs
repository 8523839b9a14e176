//! Moves on what waits for something other than its turn: a time, a key, a definition, a deletion.
//!
//! Invariants
//! - It only routes, or ends what can never start; it may run twice, late, or beside itself.
//! - Every pass is bounded; one that was cut short is followed by another at once.
//!
//! Not here: claiming (`dispatch`), what may start (`store::queue::claim`).

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::say;
use kernel::execution;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::signals::{events, metrics};
use store::Store;
use store::queue::claim::GatesFrom;
use store::queue::deletion::Orphaned;
use store::run::{End, Ending};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process::heartbeat::Alive;
use crate::process::hints::{Hint, Hints};

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
    /// This process's own.
    pub(crate) dispatcher: mpsc::UnboundedSender<Hint>,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    /// Where the next look at each shard's gates goes on.
    pub(crate) gates_from: Mutex<HashMap<i16, GatesFrom>>,
}

impl Promoter {
    fn looked_at(&self) -> MutexGuard<'_, HashMap<i16, GatesFrom>> {
        self.gates_from.lock()
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
        let (mut trouble, mut cut_short) = (None, false);
        for shard in shards.iter().copied() {
            // One shard's trouble keeps no other's items waiting.
            match self.gates_of(shard).await {
                Ok(more) => cut_short |= more,
                Err(error) => trouble = Some(error),
            }
        }
        trouble.map_or(Ok(cut_short.then_some(Duration::ZERO)), Err)
    }

    /// True if there is more to look at.
    async fn gates_of(&self, shard: i16) -> Result<bool, store::Error> {
        self.store.clear_deleted(shard).await?;
        let mut from = self.looked_at().get(&shard).cloned().unwrap_or_default();
        let gates = self.store.sweep_gates(shard, &mut from).await?;
        for some in gates.chunks(GATES) {
            for workspace in self.store.open(some).await? {
                self.hints.ready(workspace);
            }
        }
        let more = !from.is_start();
        self.looked_at().insert(shard, from);
        let mut orphaned = self.store.orphaned_behind(shard, &gates).await?;
        orphaned.extend(self.store.orphaned_items(shard).await?);
        if !orphaned.is_empty() {
            self.fail(&orphaned).await?;
        }
        // What has not begun is over with this; a run's owner hears of it with its next heartbeat.
        for (execution, workspace) in self.store.orphaned_runs(shard).await? {
            self.store.cancel(execution, workspace, "promoter").await?;
            tracing::info!(workspace_id = %workspace, execution_id = %execution,
                "Canceling an execution of a deleted workspace");
        }
        Ok(more || orphaned.len() >= ORPHANED)
    }

    /// Moves what a paused or lowered definition holds back out of the others' way, where a claim met
    /// it. Each on its own, in the order in which they were met: a million here hold up nobody there.
    pub(crate) async fn clear_the_way(
        self: Arc<Self>,
        mut met: mpsc::UnboundedReceiver<(WorkspaceId, DefinitionId)>,
        stop: CancellationToken,
    ) {
        let (mut waiting, mut moving) = (VecDeque::new(), HashMap::new());
        let mut moves = JoinSet::new();
        loop {
            tokio::select! {
                met = met.recv() => match met {
                    // Claims say it again while the move lasts; the last of them says what is left.
                    Some(met) if !waiting.contains(&met) => waiting.push_back(met),
                    Some(_) => {}
                    None => return,
                },
                Some(moved) = moves.join_next_with_id() => {
                    moving.remove(&moved.map_or_else(|error| error.id(), |(id, ())| id));
                }
                () = stop.cancelled() => return,
            }
            while moves.len() < MOVES
                && let Some(at) = waiting.iter().position(|it| !moving.values().any(|at| at == it))
                && let Some((workspace, definition)) = waiting.remove(at)
            {
                let promoter = Arc::clone(&self);
                let task = moves.spawn(async move { promoter.clear_and_tell(workspace, definition).await });
                moving.insert(task.id(), (workspace, definition));
            }
        }
    }

    async fn clear_and_tell(&self, workspace: WorkspaceId, definition: DefinitionId) {
        match self.store.clear_the_way(workspace, definition).await {
            // Its own dispatcher is told, hints on or off: it left the workspace for this.
            Ok(_) => drop(self.dispatcher.send(Hint::Workspace(workspace))),
            // The next sweep finds the workspace again.
            Err(error) => {
                tracing::warn!(workspace_id = %workspace, error = &error as &dyn std::error::Error,
                    "Setting items aside failed");
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
            let Some(gone) = orphaned.iter().find(|gone| gone.item.execution() == ended.execution) else { continue };
            let (item, class) = (gone.item, gone.failure().class);
            match gone.workspace_gone {
                true => say!(events::WORKSPACE_GONE, workspace_id = %ended.workspace, queue_item_id = %item),
                false => say!(events::DEFINITION_GONE, queue_item_id = %item, definition_id = %gone.definition),
            }
            ::metrics::counter!(metrics::FAILED.name, "reason" => class.name()).increment(1);
        }
        Ok(())
    }
}
