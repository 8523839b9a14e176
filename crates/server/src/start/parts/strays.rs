//! The loops for what no served engine looks after.
//!
//! Not here: the looks themselves (`strays`, `reconciler`).

use std::sync::Arc;
use std::sync::Mutex;

use engine::Engine;

use super::Parts;
use crate::config::ms;
use crate::queue::breaker::Breaker;
use crate::queue::strays::{EVERY, Strays};
use crate::run::reconcile::{Findings, Reconciler};

impl Parts {
    /// Slots without an execution, and runs of an engine that is not served here.
    pub(super) fn spawn_strays(&self) {
        let strays = Strays {
            store: self.work.clone(),
            foreign: self.foreign.clone(),
            other: self.other.clone(),
            alive: self.alive.1.clone(),
            hints: self.hints.clone(),
            waiters: self.waiters.clone(),
            missing: Mutex::default(),
        };
        self.spawn_loop("strays", EVERY, Arc::new(strays), |it| async move { it.pass().await });
        if let Some(other) = self.other.clone() {
            self.spawn_reconciler_of(other, Breaker::new(), Findings::default());
        }
    }

    /// The runs of an engine elsewhere.
    pub(super) fn spawn_reconciler_of(&self, engine: Arc<dyn Engine>, breaker: Breaker, findings: Findings) {
        let reconciler = Reconciler {
            store: self.work.clone(),
            engine,
            breaker,
            after: ms(self.settings.engine.reconcile_after_ms),
            alive: self.alive.1.clone(),
            hints: self.hints.clone(),
            waiters: self.waiters.clone(),
            findings,
            place: Mutex::default(),
        };
        let poll = ms(self.settings.dispatch.poll_interval_ms);
        self.spawn_loop("reconciler", poll, Arc::new(reconciler), |it| async move { it.pass().await });
    }
}
