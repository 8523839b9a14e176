//! Tells runs that something came for them: an answer, the end of a task, time that is up.
//!
//! Invariants
//! - A call is stored before it is told (`wake_at`); what is told here is a hint, and losing it costs a heartbeat or a
//!   poll.
//! - Whoever has the run is told: the engine itself if it is elsewhere, this process's own, or the others by a NOTIFY.
//!
//! Not here: what came (`store::wait`), waking parked runs (`wake`).

use std::sync::Arc;

use engine::Engine;
use store::wait::Call;
use tokio::sync::{Notify, mpsc, watch};

use crate::process::heartbeat::Alive;

/// Whom to tell. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) engine: Option<Arc<dyn Engine>>,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    /// Wakes this process's own waker, if it has one.
    pub(crate) called: Arc<Notify>,
    pub(crate) wakes: bool,
    /// To other processes; none without hints.
    pub(crate) others: Option<mpsc::UnboundedSender<()>>,
}

impl Calls {
    pub(crate) fn tell(&self, call: Option<Call>) {
        let Some(Call { engine: name, holder, owner }) = call else { return };
        let engine = self.engine.as_ref().filter(|engine| engine.name() == name);
        let elsewhere = engine.is_some_and(|engine| engine.place().is_some());
        let ours = owner.is_some() && owner == self.alive.borrow().as_ref().map(|alive| alive.process);
        match engine {
            Some(engine) if elsewhere || ours => engine.signal(holder),
            _ if owner.is_none() && self.wakes => self.called.notify_one(),
            _ => drop(self.others.as_ref().map(|others| others.send(()))),
        }
    }
}
