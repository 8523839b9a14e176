//! Carries out what the kernel orders: runs graphs, performs nodes, records what happened.
//!
//! Invariants
//! - The trait `Engine` has two implementations that ship. It hides every difference between them.
//! - Engines drive `kernel::orchestration` and have no rules of their own.
//!
//! Not here: SQL (`store`), claiming and the background loops (`server`).

pub mod attempt;
pub mod backoff;
pub mod compute;
pub mod embedded;
pub mod ending;
pub mod gather;
pub mod liveness;
pub mod mask;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod nodes;
pub mod outbound;
pub mod scope;
pub mod signals;
#[cfg(feature = "test-engine")]
pub mod test_engine;
pub mod trace;
pub mod vault;
pub mod versions;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::queue::StartOutcome;
use kernel::queue::explain::RunProblem;
use store::queue::claim::Begun;
use store::run::End;

/// What an engine knows about an execution.
#[derive(Clone, Debug)]
pub enum RunDescription {
    Unknown,
    Running {
        /// Why the run is stuck and will not continue by itself.
        stuck: Option<RunProblem>,
    },
    /// The run has ended on the engine.
    Closed(End),
    /// The run was ended on the engine by a person or program other than this service. One of its nodes may still be
    /// running, for up to `Engine::max_linger`.
    EndedExternally(End),
}

/// Runs executions once they hold a slot.
pub trait Engine: Send + Sync + 'static {
    /// The engine's name, stored on each execution it runs.
    fn name(&self) -> &'static str;

    /// How many more runs the engine can hold. Admission claims no more than this. A full engine is busy, not
    /// unavailable.
    fn capacity(&self) -> usize;

    /// True if the claiming process also runs the execution. The item may then be claimed, begun and `DISPATCHED` in
    /// one commit, and `run_begun` receives the begun executions.
    fn begins_with_claim(&self) -> bool;

    /// Runs executions that began in the same commit as their claim.
    fn run_begun(&self, process: ProcessId, begun: Vec<Begun>);

    /// Reads what the start requests of these executions need, all at once. Only a hint: `start` reads what is missing.
    fn prepare_starts(&self, _executions: Vec<ExecutionId>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Starts a claimed execution under its id. Calling it again is safe in every state.
    fn start(&self, process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, StartOutcome>;

    /// Where the engine's runs live (a cluster and a namespace), stored when a run begins. None if the runs live in
    /// this process: then no other system knows their outcome.
    fn location(&self) -> Option<String>;

    /// Reports what the engine knows about this execution. Callers use it for runs that should have ended, and after
    /// starts whose first answer was ambiguous and whose repeat was refused.
    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<RunDescription, String>>;

    /// The open runs between two ids, in one request. The result may be seconds old. None if the engine cannot list
    /// runs.
    fn open_runs(
        &self,
        _from: ExecutionId,
        _to: ExecutionId,
    ) -> BoxFuture<'_, Result<Option<BTreeSet<ExecutionId>>, String>> {
        Box::pin(async { Ok(None) })
    }

    /// How long a node may keep running after its run was ended from outside.
    fn max_linger(&self) -> Duration {
        Duration::ZERO
    }

    /// Checks that the engine makes progress. Returns a description of the problem, if there is one; an error if the
    /// engine is unreachable.
    fn check_health(&self) -> BoxFuture<'_, Result<Option<String>, String>> {
        Box::pin(async { Ok(None) })
    }

    /// Notifies a run that its cancellation was requested. Only a hint: the request is already stored.
    fn cancel(&self, execution: ExecutionId);

    /// Notifies a run that an answer to one of its waits arrived. Only a hint.
    fn signal(&self, _execution: ExecutionId) {}

    /// Notifies a run that it was terminated and can no longer write. Only a hint, like `cancel`.
    fn terminate(&self, execution: ExecutionId) {
        self.cancel(execution);
    }
}
