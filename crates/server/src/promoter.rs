//! Moves on what waits for something other than its turn: a time, a key, a definition, a deletion.
//!
//! Invariants
//! - It only routes, or ends what can never start; it may run twice, late, or beside itself.
//! - Every pass is bounded; one that was cut short is followed by another at once.
//!
//! Not here: claiming (`dispatcher`), what may start (`store::admission`).

use std::time::Duration;

use kernel::execution;
use kernel::failure::{Class, Failure};
use kernel::ids::{QueueItemId, WorkspaceId};
use store::Store;
use store::run::{End, Ending};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Alive;
use crate::hints::Hints;
use crate::metrics;

/// The most items one pass of `ripen` moves.
const RIPENED: usize = 1_000;
/// The most gates one statement opens.
const GATES: usize = 500;
/// The most items one statement sets aside.
const SET_ASIDE: usize = 1_000;

pub(crate) struct Promoter {
    pub(crate) store: Store,
    pub(crate) hints: Hints,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
}

impl Promoter {
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

    /// Keys and definitions with room that nobody opened, and items whose workspace is gone.
    pub(crate) async fn gates(&self) -> Result<Option<Duration>, store::Error> {
        let shards = self.alive.borrow().as_ref().map(|alive| std::sync::Arc::clone(&alive.shards)).unwrap_or_default();
        let mut trouble = None;
        for shard in shards.iter().copied() {
            // One shard's trouble keeps no other's items waiting.
            if let Err(error) = self.gates_of(shard).await {
                trouble = Some(error);
            }
        }
        trouble.map_or(Ok(None), Err)
    }

    async fn gates_of(&self, shard: i16) -> Result<(), store::Error> {
        let gates = self.store.sweep_gates(shard).await?;
        for some in gates.chunks(GATES) {
            for workspace in self.store.open(some).await? {
                self.hints.ready(workspace);
            }
        }
        let orphaned = self.store.orphaned_items(shard).await?;
        if orphaned.is_empty() { Ok(()) } else { self.fail(&orphaned).await }
    }

    /// Moves what a paused or lowered definition holds back out of the others' way, for workspaces
    /// where a claim met such items.
    pub(crate) async fn set_aside(&self, mut met: mpsc::UnboundedReceiver<WorkspaceId>, stop: CancellationToken) {
        while let Some(workspace) = tokio::select! { got = met.recv() => got, () = stop.cancelled() => None } {
            if let Err(error) = self.set_aside_of(workspace).await {
                tracing::warn!(workspace_id = %workspace, error = &error as &dyn std::error::Error, "Setting items aside failed");
            }
            self.hints.ready(workspace);
        }
    }

    async fn set_aside_of(&self, workspace: WorkspaceId) -> Result<(), store::Error> {
        for (definition, paused) in self.store.closed_definitions(workspace).await? {
            let mut from = None;
            loop {
                let (moved, last) = self.store.set_aside(workspace, definition, paused, from).await?;
                if moved < SET_ASIDE {
                    break;
                }
                from = last;
            }
        }
        Ok(())
    }

    async fn fail(&self, items: &[QueueItemId]) -> Result<(), store::Error> {
        let error = Failure::new(Class::WorkspaceGone, "its workspace was deleted before it could start");
        let endings: Vec<Ending> = items
            .iter()
            .map(|item| Ending {
                execution: item.execution(),
                claim: None,
                end: End { outcome: execution::Status::Failed, output: None, error: Some(error.clone()) },
            })
            .collect();
        let ended = self.store.complete(&endings, Some(execution::Status::Pending), "promoter").await?;
        for ended in ended.iter().filter(|ended| ended.applied) {
            tracing::warn!(workspace_id = %ended.workspace, queue_item_id = %ended.execution, "Workspace not found");
            ::metrics::counter!(metrics::FAILED, "reason" => "WorkspaceGone").increment(1);
        }
        Ok(())
    }
}
