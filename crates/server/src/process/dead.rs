//! Who is over: the silent are declared dead, and the long dead forgotten.
//!
//! Invariants
//! - Only a process whose own heartbeats were steady all that time calls another dead.
//!
//! Not here: taking up what the dead left (`queue::takeover`, `run::resume`), saying that this one lives (`heartbeat`).

use parking_lot::Mutex;

use std::time::{Duration, Instant};

use engine::embedded::NAME;
use store::Store;
use tokio::sync::watch;

use crate::config::{Process, ms};
use crate::process::heartbeat::Alive;

/// How often ended processes are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(600);

pub(crate) struct Processes {
    store: Store,
    settings: Process,
    alive: watch::Receiver<Option<Alive>>,
    forgot_at: Mutex<Option<Instant>>,
}

impl Processes {
    pub(crate) fn new(store: Store, settings: Process, alive: watch::Receiver<Option<Alive>>) -> Processes {
        Processes { store, settings, alive, forgot_at: Mutex::default() }
    }

    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let Some(alive) = self.alive.borrow().clone() else { return Ok(None) };
        let silence = alive.silence(ms(self.settings.runs_after_ms));
        if silence.steady {
            for dead in self.store.end_silent(silence.dead_after).await? {
                tracing::warn!(process_id = %dead, "A process fell silent; its runs are taken over");
            }
        }
        if self.is_time_to_forget() {
            self.store.forget_processes(NAME).await?;
        }
        // While somebody is known to be dead, every moment counts.
        Ok((alive.dead > 0).then(|| ms(self.settings.heartbeat_ms) / 4))
    }

    fn is_time_to_forget(&self) -> bool {
        let mut forgot_at = self.forgot_at.lock();
        let due = forgot_at.is_none_or(|at| at.elapsed() >= FORGET_EVERY);
        if due {
            *forgot_at = Some(Instant::now());
        }
        due
    }
}
