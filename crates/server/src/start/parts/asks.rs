//! The parts that look after what nodes ask of the world, and tell those who wait for it.
//!
//! Not here: what they do (`asks`, `calls`).

use std::sync::{Arc, Mutex};

use engine::versions::Versions;

use super::Parts;
use crate::config::ms;
use crate::process::hints;
use crate::process::pass::repeat;
use crate::run::notify::Calls;
use crate::wait::expire::{self, Asks};
use crate::wait::judge::Judge;

impl Parts {
    /// Whom to tell that something came for a run.
    pub(super) fn calls(&self) -> Calls {
        Calls {
            engine: self.told.clone(),
            alive: self.alive.1.clone(),
            called: Arc::clone(&self.called),
            wakes: self.embedded.is_some(),
            others: self.settings.dispatch.hints.then(|| self.others.0.clone()),
        }
    }

    /// From time that is up, lost leases and events to answers.
    pub(super) fn spawn_asks(&self) {
        let every = ms(self.settings.dispatch.poll_interval_ms).min(expire::EVERY);
        let elsewhere = self.told.clone().filter(|engine| engine.place().is_some());
        let asks = Asks { store: self.work.clone(), calls: self.calls(), elsewhere };
        self.spawn_loop("asks", every, Arc::new(asks), |it| async move { it.pass().await });
        let (versions, last) = (Versions::default(), Mutex::default());
        let judge = Judge { store: self.work.clone(), calls: self.calls(), versions, last };
        let (stop, wake) = (self.stop.clone(), Arc::clone(&self.judged));
        self.tasks.spawn(async move { repeat("judge", every, &wake, &stop, || judge.pass()).await });
    }

    /// Tells the others of calls, and listens for the bell where no dispatcher does.
    pub(super) fn spawn_calls(&mut self, api: bool) {
        if !self.settings.dispatch.hints {
            return;
        }
        if let Some(inbox) = self.others.1.take() {
            self.tasks.spawn(hints::call(self.targets.direct.clone(), inbox, self.stop.clone()));
        }
        if api && self.engine.is_none() {
            let (target, offered) = (self.targets.direct.clone(), Arc::clone(&self.offered));
            self.tasks.spawn(hints::hear(target, offered, self.stop.clone()));
        }
    }
}
