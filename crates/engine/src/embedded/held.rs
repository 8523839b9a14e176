//! One run in this process: from when it is held until it leaves.
//!
//! Invariants
//! - However it leaves, its end is stored first or its rows are where its last record left them.
//! - What breaks here is this run's: a version that cannot be read, a panic.
//!
//! Not here: driving the graph (`run`), whether it may begin (`suspects`).

use std::sync::Arc;

use futures_util::FutureExt;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::run::failure::Failure;
use kernel::signals::{metrics, spans};
use store::queue::claim::Begun;
use store::run::attempt::Hold;
use store::run::{End, Record, StoredNode};
use tokio::sync::mpsc;

use super::run::{Driver, Message};
use super::writer::Told;
use super::{Left, Shared};
use crate::attempt::child::readable;
use crate::attempt::until_answered;
use crate::{ending, trace};

impl Shared {
    /// Runs it until it leaves; a panic is its own.
    pub(super) async fn hold(
        self: Arc<Self>,
        process: ProcessId,
        mut begun: Begun,
        stored: Vec<StoredNode>,
        canceling: bool,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Left {
        // Its input may be large, and is held once.
        let input = std::mem::take(&mut begun.input);
        let driven = Arc::clone(&self).drive(process, Begun { input, ..begun.clone() }, stored, canceling, inbox);
        match std::panic::AssertUnwindSafe(driven).catch_unwind().await {
            Ok(left) => left,
            Err(_) => self.broke(process, &begun).await,
        }
    }

    async fn drive(
        self: Arc<Self>,
        process: ProcessId,
        begun: Begun,
        stored: Vec<StoredNode>,
        canceling: bool,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Left {
        let version = match until_answered(|| readable(&self.store, &self.versions, begun.version)).await {
            Ok(version) => version,
            Err(failure) => return self.give_up(process, &begun, failure).await,
        };
        let driver = Driver::new(Arc::clone(&self), process, begun, version, stored, canceling, inbox);
        Box::pin(driver.drive()).await
    }

    pub(super) async fn give_up(&self, process: ProcessId, begun: &Begun, why: Failure) -> Left {
        let (execution, workspace) = (begun.execution, begun.workspace);
        tracing::warn!(execution_id = %execution, workspace_id = %workspace, reason = why.message,
            "An execution cannot be run");
        self.end(process, begun, ending::failed(why)).await
    }

    pub(super) async fn end(&self, process: ProcessId, begun: &Begun, end: End) -> Left {
        let (outcome, class) = (end.outcome, end.error.as_ref().map(|error| error.class));
        let hold = Hold { execution: begun.execution, owner: process, epoch: begun.epoch };
        let record = Record { end: Some(end), ..Record::new(begun.execution, hold) };
        match self.writer.record(process, record).await {
            Some(Told::Recorded(recorded)) if recorded.held => {
                ending::counted(outcome, class);
                Left::Ended { freed: recorded.freed }
            }
            _ => Left::Lost,
        }
    }

    /// A run that is lost because its execution is missing has ended: its slot is freed, with a warning.
    pub(super) async fn unless_missing(&self, id: ExecutionId, left: Left) -> Left {
        if left != Left::Lost {
            return left;
        }
        match self.store.lose(&[id], "engine").await {
            Ok(freed) => freed.first().map_or(left, |workspace| Left::Ended { freed: Some(*workspace) }),
            // The next look for strays finds it.
            Err(_) => left,
        }
    }

    async fn broke(&self, process: ProcessId, begun: &Begun) -> Left {
        tracing::error!(execution_id = %begun.execution, "A run panicked");
        self.give_up(process, begun, ending::broke_off()).await
    }

    /// Says something to a run that this process holds. One that is just leaving needs no word.
    pub(super) fn send(&self, execution: ExecutionId, message: Message) {
        let runs = self.runs.lock();
        if let Some(held) = runs.held.get(&execution) {
            let _leaving = held.inbox.send(message);
        }
    }

    pub(super) fn leave(&self, id: ExecutionId, epoch: i64, left: Left) {
        {
            let mut runs = self.runs.lock();
            if runs.held.get(&id).is_some_and(|held| held.epoch == epoch) {
                runs.held.remove(&id);
            }
            ::metrics::gauge!(metrics::RUNS_HELD.name).set(u32::try_from(runs.held.len()).unwrap_or(u32::MAX));
        }
        if left == Left::Lost {
            ::metrics::counter!(metrics::RECORDS_FENCED.name).increment(1);
            tracing::info!(execution_id = %id, "This run is another process's by now");
        }
        (self.on_left)(id, left);
    }
}

/// The span of a run in this process, below the context that its start came with.
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
