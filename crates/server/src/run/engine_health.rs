//! Checks the health of an external engine, in a process that answers requests and does not dispatch.
//!
//! Invariants
//! - Such a process reports the same in `/readyz` as a process that dispatches: since when and why the engine is
//!   unavailable, or that its runs make no progress.
//! - It only reads: whether a worker polls, and the state of a few runs, which take turns. Its questions are bounded,
//!   so any number of processes may ask them.
//!
//! Not here: the state of a single run (`http::queue`), ending lost runs (`run::reconcile`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use kernel::ids::{ExecutionId, SHARDS};
use kernel::queue::StartOutcome;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::queue::breaker::Breaker;
use crate::run::reconcile::{EngineFindings, IdRange, RunObservation};

/// How many runs are described in one pass.
const RUNS_PER_PASS: i64 = 25;

pub(crate) struct EngineHealthCheck {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    /// A breaker that holds no start requests back. It records since when the engine is unavailable, and decides when
    /// the engine is asked again.
    pub(crate) breaker: Breaker,
    pub(crate) findings: EngineFindings,
    /// Only runs that were handed to the engine at least this long ago are described.
    pub(crate) after: Duration,
    /// The run after which the next pass continues.
    pub(crate) position: Mutex<Option<ExecutionId>>,
    pub(crate) stop: CancellationToken,
}

impl EngineHealthCheck {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        tokio::select! {
            done = self.check_engine() => done?,
            () = self.stop.cancelled() => {}
        }
        // While the engine is unavailable, the next pass begins immediately and waits until the breaker permits a
        // question.
        Ok((!self.breaker.is_closed()).then_some(Duration::ZERO))
    }

    async fn check_engine(&self) -> Result<(), store::Error> {
        let permit = self.breaker.permit().await;
        match self.engine.check_health().await {
            Err(reason) => {
                permit.record_answer(&StartOutcome::Unavailable(reason));
                return Ok(());
            }
            Ok(Some(problem)) => self.findings.set(Some(problem)),
            Ok(None) => {
                let stuck = self.check_runs().await?;
                self.findings.set(stuck);
            }
        }
        permit.record_answer(&StartOutcome::AlreadyStarted);
        Ok(())
    }

    /// Asks the engine to describe a page of runs. Returns the problem of all known runs, if there is one.
    async fn check_runs(&self) -> Result<Option<String>, store::Error> {
        let shards: Vec<i16> = (0..SHARDS).collect();
        let position = *self.position.lock();
        let runs = self.store.dispatched_runs(&shards, self.after, self.engine.name(), position, RUNS_PER_PASS).await?;
        let full = i64::try_from(runs.len()).is_ok_and(|found| found >= RUNS_PER_PASS);
        let next = runs.last().filter(|_| full).map(|run| run.execution);
        let mut observed = Vec::new();
        for run in runs {
            if let Ok(described) = self.engine.describe(run.execution).await {
                observed.push((run.execution, RunObservation::from_description(run.status, &described)));
            }
        }
        *self.position.lock() = next;
        Ok(self.findings.record(IdRange { after: position, to: next }, observed.into_iter()).problem())
    }
}
