//! Declares silent processes dead, and deletes the rows of processes that died long ago.
//!
//! Invariants
//! - A process declares another process dead only if its own heartbeats have succeeded without a gap for longer than
//!   `process.run_lease_ms`. Otherwise an outage of the database may be the reason why the other process is silent.
//!
//! Not here: taking over the work of dead processes (`queue::takeover`, `run::resume`), sending heartbeats
//! (`heartbeat`).

use parking_lot::Mutex;

use std::time::{Duration, Instant};

use engine::log_event;
use kernel::signals::events;
use store::Store;
use tokio::sync::watch;

use crate::config::{Process, ms};
use crate::process::heartbeat::Membership;

/// How often the rows of dead processes are deleted.
const DELETE_EVERY: Duration = Duration::from_secs(600);

pub(crate) struct DeadProcessDetector {
    store: Store,
    settings: Process,
    membership: watch::Receiver<Option<Membership>>,
    deleted_at: Mutex<Option<Instant>>,
}

impl DeadProcessDetector {
    pub(crate) fn new(
        store: Store,
        settings: Process,
        membership: watch::Receiver<Option<Membership>>,
    ) -> DeadProcessDetector {
        DeadProcessDetector { store, settings, membership, deleted_at: Mutex::default() }
    }

    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let Some(membership) = self.membership.borrow().clone() else { return Ok(None) };
        let silence = membership.liveness_rule(ms(self.settings.run_lease_ms));
        if silence.steady {
            for dead in self.store.end_silent(silence.dead_after).await? {
                log_event!(events::PROCESS_DEAD, process_id = %dead);
            }
        }
        if self.is_deletion_due() {
            self.store.delete_old_processes().await?;
        }
        // While a process is known to be dead, the passes are more frequent, because its runs make no progress until
        // another process takes them over.
        Ok((membership.dead_processes > 0).then(|| ms(self.settings.heartbeat_ms) / 4))
    }

    fn is_deletion_due(&self) -> bool {
        let mut deleted_at = self.deleted_at.lock();
        let due = deleted_at.is_none_or(|at| at.elapsed() >= DELETE_EVERY);
        if due {
            *deleted_at = Some(Instant::now());
        }
        due
    }
}
