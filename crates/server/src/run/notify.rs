//! Notifies runs of stored signals: the answer of a wait, the end of a task, or the expiry of a wait or task.
//!
//! Invariants
//! - A signal is stored (in `run_request`) before the run is notified. If the notification is lost, the next heartbeat
//!   or poll finds the signal.
//! - The notification goes to the engine or process that holds the run: to the external engine, to the engine of this
//!   process, or by NOTIFY to the other processes.
//!
//! Not here: storing signals (`store::wait`), waking parked runs (`wake`).

use std::sync::Arc;

use engine::Engine;
use store::wait::RunToWake;
use tokio::sync::{Notify, mpsc, watch};

use crate::process::heartbeat::Membership;

/// Notifies runs of stored signals. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunNotifier {
    pub(crate) engine: Option<Arc<dyn Engine>>,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
    /// Wakes the loop for parked runs of this process.
    pub(crate) parked: Arc<Notify>,
    /// Whether this process has the loop for parked runs.
    pub(crate) wakes_parked: bool,
    /// Notifies other processes; none if notifications are off.
    pub(crate) other_processes: Option<mpsc::UnboundedSender<()>>,
}

impl RunNotifier {
    pub(crate) fn notify(&self, call: Option<RunToWake>) {
        let Some(RunToWake { engine: name, holder, owner }) = call else { return };
        let engine = self.engine.as_ref().filter(|engine| engine.name() == name);
        let external = engine.is_some_and(|engine| engine.location().is_some());
        let ours = owner.is_some() && owner == self.membership.borrow().as_ref().map(|membership| membership.process);
        match engine {
            Some(engine) if external || ours => engine.signal(holder),
            _ if owner.is_none() && self.wakes_parked => self.parked.notify_one(),
            _ => drop(self.other_processes.as_ref().map(|sender| sender.send(()))),
        }
    }
}
