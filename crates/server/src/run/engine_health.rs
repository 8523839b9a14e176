//! How an engine elsewhere is doing, for a process that answers requests and hands nothing over.
//!
//! Invariants
//! - Whoever asks such a process is told the same as by one that dispatches: that the engine is out of reach since when
//!   and why, or that its work is not done.
//! - It only asks, and what it asks is bounded, so that any number of processes may: does anybody poll, and how do a
//!   few of the runs stand, each in its turn.
//!
//! Not here: one run (`http::queue`), ending what is lost and counting (`run::reconcile`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use kernel::ids::{ExecutionId, SHARDS};
use kernel::queue::Answer;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::queue::breaker::Breaker;
use crate::run::reconcile::{Findings, Seen, Stretch};

/// How many runs are looked at in one pass.
const LOOKED_AT: i64 = 25;

pub(crate) struct Watcher {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    /// Nothing is started here: it only knows since when the engine is out of reach, and when to ask again.
    pub(crate) breaker: Breaker,
    pub(crate) findings: Findings,
    /// How long ago an item must have been handed over.
    pub(crate) after: Duration,
    /// Where the next pass goes on.
    pub(crate) from: Mutex<Option<ExecutionId>>,
    pub(crate) stop: CancellationToken,
}

impl Watcher {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        tokio::select! {
            looked = self.look() => looked?,
            () = self.stop.cancelled() => {}
        }
        // Out of reach, the breaker keeps the time.
        Ok((!self.breaker.is_closed()).then_some(Duration::ZERO))
    }

    async fn look(&self) -> Result<(), store::Error> {
        let pass = self.breaker.pass().await;
        match self.engine.look().await {
            Err(reason) => {
                pass.heard(&Answer::Unavailable(reason));
                return Ok(());
            }
            Ok(Some(trouble)) => self.findings.set(Some(trouble)),
            Ok(None) => {
                let stuck = self.some_runs().await?;
                self.findings.set(stuck);
            }
        }
        pass.heard(&Answer::AlreadyThere);
        Ok(())
    }

    /// What is wrong with the runs that were looked at lately.
    async fn some_runs(&self) -> Result<Option<String>, store::Error> {
        let shards: Vec<i16> = (0..SHARDS).collect();
        let from = *self.from.lock();
        let runs = self.store.handed_over(&shards, self.after, self.engine.name(), from, LOOKED_AT).await?;
        let full = i64::try_from(runs.len()).is_ok_and(|found| found >= LOOKED_AT);
        let next = runs.last().filter(|_| full).map(|run| run.execution);
        let mut seen = Vec::new();
        for run in runs {
            if let Ok(described) = self.engine.describe(run.execution).await {
                seen.push((run.execution, Seen::of(run.status, &described)));
            }
        }
        *self.from.lock() = next;
        Ok(self.findings.note(Stretch { after: from, to: next }, seen.into_iter()).told())
    }
}
