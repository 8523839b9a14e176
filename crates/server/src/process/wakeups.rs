//! What wakes the loops of this process before their timers do.
//!
//! Invariants
//! - A wakeup is only a hint: a loop that misses a wakeup does the work at its next poll.

use std::sync::Arc;

use tokio::sync::Notify;

/// One `Notify` for each kind of work. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakeups {
    /// Wakes all loops: a request changed something that many loops read, or a process died.
    pub(crate) all: Arc<Notify>,
    /// Triggers the next heartbeat immediately.
    pub(crate) heartbeat: Arc<Notify>,
    /// There may be jobs to claim.
    pub(crate) jobs: Arc<Notify>,
    /// There may be webhooks to deliver.
    pub(crate) deliveries: Arc<Notify>,
    /// A schedule may be due, or its next tick may be earlier than the loop knows.
    pub(crate) schedules: Arc<Notify>,
    /// A parked run may have a signal.
    pub(crate) parked: Arc<Notify>,
    /// There may be events that answer a wait.
    pub(crate) events: Arc<Notify>,
    /// There may be tasks to claim.
    pub(crate) tasks: Arc<Notify>,
}
