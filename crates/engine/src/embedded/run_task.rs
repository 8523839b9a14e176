//! The task of one run in this process, from its acceptance until its exit.
//!
//! Invariants
//! - When a run exits, either its end is stored, or its rows stay as its last record left them.
//! - An error here affects this run only, for example a panic, or a version that cannot be read.
//!
//! Not here: driving the graph (`run`), when a run whose processes keep dying may begin (`suspects`).

use std::sync::Arc;

use futures_util::FutureExt;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::run::failure::Failure;
use kernel::signals::{metrics, spans};
use store::queue::claim::Begun;
use store::run::attempt::Ownership;
use store::run::{End, Record, StoredNode};
use tokio::sync::mpsc;

use super::run::{RunMessage, TreeDriver};
use super::writer::RecordReply;
use super::{RunExit, Shared};
use crate::attempt::child::load_version;
use crate::attempt::retry_until_answered;
use crate::{ending, trace};

impl Shared {
    /// Drives the run until it exits. A panic affects this run only.
    pub(super) async fn run_to_exit(
        self: Arc<Self>,
        process: ProcessId,
        mut begun: Begun,
        stored: Vec<StoredNode>,
        canceling: bool,
        inbox: mpsc::UnboundedReceiver<RunMessage>,
    ) -> RunExit {
        // The input may be large, so only one copy is kept.
        let input = std::mem::take(&mut begun.input);
        let driven = Arc::clone(&self).drive(process, Begun { input, ..begun.clone() }, stored, canceling, inbox);
        match std::panic::AssertUnwindSafe(driven).catch_unwind().await {
            Ok(exit) => exit,
            Err(_) => {
                tracing::error!(execution_id = %begun.execution, "Run stopped: its code panicked");
                self.fail_run(process, &begun, ending::broke_off()).await
            }
        }
    }

    async fn drive(
        self: Arc<Self>,
        process: ProcessId,
        begun: Begun,
        stored: Vec<StoredNode>,
        canceling: bool,
        inbox: mpsc::UnboundedReceiver<RunMessage>,
    ) -> RunExit {
        let version = match retry_until_answered(|| load_version(&self.store, &self.versions, begun.version)).await {
            Ok(version) => version,
            Err(failure) => return self.fail_run(process, &begun, failure).await,
        };
        let driver = TreeDriver::new(Arc::clone(&self), process, begun, version, stored, canceling, inbox);
        Box::pin(driver.drive()).await
    }

    pub(super) async fn fail_run(&self, process: ProcessId, begun: &Begun, why: Failure) -> RunExit {
        let (execution, workspace) = (begun.execution, begun.workspace);
        tracing::warn!(execution_id = %execution, workspace_id = %workspace, reason = why.message,
            "Failed to run an execution");
        self.end_run(process, begun, ending::failed(why)).await
    }

    pub(super) async fn end_run(&self, process: ProcessId, begun: &Begun, end: End) -> RunExit {
        let (outcome, class) = (end.outcome, end.error.as_ref().map(|error| error.class));
        let hold = Ownership { execution: begun.execution, owner: process, epoch: begun.epoch };
        let record = Record { end: Some(end), ..Record::new(begun.execution, hold) };
        match self.writer.record(process, record).await {
            Some(RecordReply::Recorded(recorded)) if recorded.held => {
                ending::counted(outcome, class);
                RunExit::Ended { freed: recorded.freed }
            }
            _ => RunExit::Lost,
        }
    }

    /// Checks why a run was lost. If its execution was deleted, the run counts as ended and its slot is freed.
    pub(super) async fn end_if_missing(&self, id: ExecutionId, exit: RunExit) -> RunExit {
        if exit != RunExit::Lost {
            return exit;
        }
        match self.store.fail_items_of_missing(&[id], "engine").await {
            Ok(freed) => freed.first().map_or(exit, |workspace| RunExit::Ended { freed: Some(*workspace) }),
            // The next poll for items without an execution frees the slot.
            Err(_) => exit,
        }
    }

    /// Sends a message to a run that this process holds. A run that is exiting does not need the message.
    pub(super) fn notify(&self, execution: ExecutionId, message: RunMessage) {
        let runs = self.runs.lock();
        if let Some(held) = runs.held.get(&execution) {
            let _exiting = held.inbox.send(message);
        }
    }

    /// Removes a run that exited, and reports its exit.
    pub(super) fn remove_run(&self, id: ExecutionId, epoch: i64, exit: RunExit) {
        {
            let mut runs = self.runs.lock();
            if runs.held.get(&id).is_some_and(|held| held.epoch == epoch) {
                runs.held.remove(&id);
            }
            ::metrics::gauge!(metrics::RUNS_HELD.name).set(u32::try_from(runs.held.len()).unwrap_or(u32::MAX));
        }
        if exit == RunExit::Lost {
            ::metrics::counter!(metrics::RUNS_LOST.name).increment(1);
            tracing::info!(execution_id = %id, "Run dropped: another process owns it");
        }
        (self.on_run_exit)(id, exit);
    }
}

/// The span of a run in this process. Its parent is the trace context of the request that started the execution.
pub(super) fn span(begun: &Begun) -> tracing::Span {
    let span = tracing::info_span!(
        parent: None,
        spans::WORKFLOW_EXECUTION.name,
        execution_id = %begun.execution,
        workspace_id = %begun.workspace,
        definition_id = %begun.definition,
        trace_id = format_args!("{:032x}", begun.trace.trace_id),
    );
    trace::put_below(&span, begun.trace);
    span
}
