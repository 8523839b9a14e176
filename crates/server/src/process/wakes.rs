//! What wakes the loops of this process before their timer does.
//!
//! Invariants
//! - Each is a hint: whoever is not woken looks at its next poll.

use std::sync::Arc;

use tokio::sync::Notify;

/// One bell for each kind of news. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakes {
    /// Every loop: something was changed by hand, or somebody died.
    pub(crate) all: Arc<Notify>,
    /// The heartbeat: it beats at once.
    pub(crate) heartbeat: Arc<Notify>,
    /// There may be jobs to take.
    pub(crate) jobs: Arc<Notify>,
    /// There may be webhooks to deliver.
    pub(crate) deliveries: Arc<Notify>,
    /// A schedule may be due, or sooner than thought.
    pub(crate) schedules: Arc<Notify>,
    /// Something came for a parked run.
    pub(crate) parked: Arc<Notify>,
    /// There may be events that answer a wait.
    pub(crate) events: Arc<Notify>,
    /// There may be tasks to claim.
    pub(crate) tasks: Arc<Notify>,
}
