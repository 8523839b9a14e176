//! Runs of an engine elsewhere that something came for: told again until they have looked.
//!
//! Invariants
//! - Whoever stores an answer tells the run at once; this is for what was lost on the way. That a run has looked is in its row
//!   (`wake_at`), so one that did is never told again.
//! - A child that is to end is told too: its root was called for it.
//!
//! Not here: runs of this process, whose heartbeat tells them (`heartbeat`), answering (`http`).

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use store::Store;

/// How long a run has to look after it was told for the first time.
const AFTER: Duration = Duration::from_secs(2);
/// The most runs told in one pass.
const MOST: i64 = 200;

pub(crate) struct Caller {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
}

impl Caller {
    /// Tells whoever has not looked. One pass may be repeated, by others too: what is told is a hint.
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        for execution in self.store.called(self.engine.name(), AFTER, MOST).await? {
            for child in self.store.canceling_below(execution).await? {
                self.engine.cancel(child);
            }
            self.engine.signal(execution);
        }
        Ok(None)
    }
}
