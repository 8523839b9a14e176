//! Parked runs whose time has come, or that somebody wants awake: an owner again, here.
//!
//! Invariants
//! - Waking takes only runs without an owner, skips locked rows, and raises the epoch: no run is
//!   woken twice, and no wake-up is lost.

use std::time::Duration;

use engine::embedded::{Embedded, NAME};
use store::Store;
use tokio::sync::watch;

use crate::process::heartbeat::Alive;

/// The most runs woken at once.
const MOST: usize = 200;

pub(crate) struct Waker {
    pub(crate) store: Store,
    pub(crate) engine: Embedded,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
}

impl Waker {
    /// Wakes what is due; answers when to look again, if sooner than the poll.
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let Some(process) = self.alive.borrow().as_ref().map(|alive| alive.process) else { return Ok(None) };
        let room = self.engine.room().min(MOST);
        if room == 0 {
            return Ok(None);
        }
        let woken = self.store.wake(process, NAME, room).await?;
        if !woken.is_empty() {
            self.engine.resume(process, &woken, false).await?;
            return Ok(Some(Duration::ZERO));
        }
        // One that is due but not to be had (owned, or another's) must not make this spin.
        Ok(self.store.next_wake().await?.map(|due| due.max(Duration::from_millis(100))))
    }
}
