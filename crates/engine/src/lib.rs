//! Carries out what the kernel orders: runs graphs, performs nodes, records what happened.
//!
//! Invariants
//! - `Engine` is the one trait with two shipping implementations; whatever differs between them
//!   lies behind it.
//! - Engines drive `kernel::orchestration` and have no rules of their own.
//!
//! Not here: SQL (`store`), claiming and the background loops (`server`).

pub mod attempt;
pub mod compute;
pub mod embedded;
pub mod ending;
pub mod insist;
pub mod mask;
#[cfg(feature = "mutants")]
pub mod mutant;
pub mod nodes;
pub mod outbound;
pub mod pulse;
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
use kernel::queue::Answer;
use kernel::queue::explain::Stuck;
use store::queue::claim::Begun;
use store::run::End;

/// What an engine knows of an execution.
#[derive(Clone, Debug)]
pub enum Described {
    Unknown,
    Running {
        /// It does not go on, and will not by itself: why.
        stuck: Option<Stuck>,
    },
    /// It is over there.
    Closed(End),
    /// It was ended there from outside: a node of it may still be performed, for as long as `Engine::lingers` says.
    Broken(End),
}

/// What runs executions once they hold a slot.
pub trait Engine: Send + Sync + 'static {
    /// The name that executions note.
    fn name(&self) -> &'static str;

    /// How many more runs it can hold; admission claims no more. A full engine is busy, not unavailable.
    fn capacity(&self) -> usize;

    /// The claimer is the runner: claim, begin and DISPATCHED may be one commit, and `adopt` takes the rest.
    fn begins_with_claim(&self) -> bool;

    /// Runs executions that were begun together with their claim.
    fn adopt(&self, process: ProcessId, begun: Vec<Begun>);

    /// Starts a claimed execution under its one id; a repeat is harmless in every state.
    fn start(&self, process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, Answer>;

    /// Where its runs live (a cluster and a namespace), noted when a run begins. None if that is this
    /// process: then there is nobody else to ask what became of a run.
    fn place(&self) -> Option<String>;

    /// What does it know of this execution? Asked when a start was in doubt and then refused, and of
    /// runs that should have ended.
    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<Described, String>>;

    /// Which runs from one id to another it holds open: one question for many, whose answer may be seconds old. None if
    /// it cannot be asked so.
    fn open(
        &self,
        _from: ExecutionId,
        _to: ExecutionId,
    ) -> BoxFuture<'_, Result<Option<BTreeSet<ExecutionId>>, String>> {
        Box::pin(async { Ok(None) })
    }

    /// How long a node may still be performed of a run that was ended from outside.
    fn lingers(&self) -> Duration {
        Duration::ZERO
    }

    /// Is its work done? What is wrong if not, in words; an error if it cannot be reached.
    fn look(&self) -> BoxFuture<'_, Result<Option<String>, String>> {
        Box::pin(async { Ok(None) })
    }

    /// Tells a run that somebody wants it to end. A hint: the request is stored before.
    fn cancel(&self, execution: ExecutionId);

    /// Tells a run that an answer came. A hint.
    fn signal(&self, _execution: ExecutionId) {}

    /// Tells a run that it was ended by force and is fenced off. A hint, like `cancel`.
    fn terminate(&self, execution: ExecutionId) {
        self.cancel(execution);
    }
}
