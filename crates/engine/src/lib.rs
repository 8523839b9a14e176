//! Carries out what the kernel orders: runs graphs, performs nodes, records what happened.
//!
//! Invariants
//! - `Engine` is the one trait with two shipping implementations; whatever differs between them
//!   lies behind it.
//! - Engines drive `kernel::run::Run` and have no rules of their own.
//!
//! Not here: SQL (`store`), claiming and the background loops (`server`).

pub mod embedded;
pub mod nodes;
pub mod outbound;
pub mod pulse;
pub mod signals;
pub mod trace;

use futures_util::future::BoxFuture;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::queue::Answer;
use store::admission::Begun;

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

    /// Does it know this execution? Asked when a start was in doubt and then refused.
    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<bool, String>>;

    /// Tells a run that somebody wants it to end. A hint: the request is stored before.
    fn cancel(&self, execution: ExecutionId);
}
