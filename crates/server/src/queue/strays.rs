//! Stray slots: slots whose execution row was deleted, and slots of runs on an engine that this service no longer
//! serves because `engine.kind` was changed.
//!
//! Invariants
//! - A slot whose execution row is missing is freed only after a grace period. In that time, a process that still holds
//!   the run finds that the row is missing and drops the run (`run::resume`).
//! - A run on another engine keeps its slot until it ends there (`run::reconcile`) or a person terminates it. A
//!   terminated run is ended here even if that engine cannot be reached, and no later result of that run is accepted.
//!
//! Not here: runs of the engines that are served (`run::resume`, `run::reconcile`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use kernel::execution;
use kernel::ids::ExecutionId;
use store::Store;
use store::queue::stray::{MAX_STRAYS, Stray};
use store::run::{End, Ending};
use tokio::sync::watch;

use crate::config::EngineKind;
use crate::execution::waiters::Waiters;
use crate::process::heartbeat::Membership;
use crate::process::notifications::Notifier;

/// How often the loop looks for stray slots. Neither this nor `GRACE` depends on `dispatch.poll_interval_ms`, so a
/// stray slot is free within 60 s, whatever that interval is.
pub(crate) const EVERY: Duration = Duration::from_secs(10);
/// How long an execution must have been missing before its slot is freed.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// How many missing executions are ended in one commit.
const BATCH: usize = 50;

/// How long the health check of another engine may take.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);

/// The engines that this service serves, and the problem of runs on other engines. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct OtherEngineRuns {
    served: Arc<[&'static str]>,
    problem: Arc<Mutex<Option<String>>>,
}

impl OtherEngineRuns {
    pub(crate) fn new(kind: &EngineKind) -> OtherEngineRuns {
        let served: &[&'static str] = match kind {
            EngineKind::Embedded => &[engine::embedded::NAME],
            // Processes that dispatch also have the embedded engine, for runs that began before `engine.kind` was
            // changed.
            EngineKind::Temporal => &["temporal", engine::embedded::NAME],
            #[cfg(feature = "test-engine")]
            EngineKind::Test(_) => &[engine::test_engine::NAME],
        };
        OtherEngineRuns { served: served.into(), problem: Arc::default() }
    }

    /// Why a run of this engine does not continue; none if the engine is served.
    pub(crate) fn problem_of(&self, engine: Option<&str>) -> Option<String> {
        let engine = engine.filter(|engine| !self.served.contains(engine))?;
        let ours = self.served.first().copied().unwrap_or_default();
        Some(format!(
            "the execution runs on the engine {engine}, but this service now uses the engine {ours} and does not \
             continue it"
        ))
    }

    /// The problem of the runs on other engines, for readiness; none if there are no such runs.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    fn set(&self, problem: Option<String>) {
        *self.problem.lock() = problem;
    }
}

pub(crate) struct StraySlots {
    pub(crate) store: Store,
    pub(crate) other_engine_runs: OtherEngineRuns,
    /// An engine that this service no longer serves, to check its health and to terminate its runs.
    pub(crate) other: Option<Arc<dyn Engine>>,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
    pub(crate) notifier: Notifier,
    pub(crate) waiters: Waiters,
    /// Since when each execution has been missing. These times are in memory, because no row stores when the row of an
    /// execution was deleted. After a restart the grace period begins again.
    pub(crate) missing: Mutex<BTreeMap<ExecutionId, Instant>>,
}

impl StraySlots {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let Some(membership) = self.membership.borrow().clone() else { return Ok(None) };
        let (mut missing, mut elsewhere) = (Vec::new(), BTreeMap::<String, usize>::new());
        let (mut from, mut failure) = (None, None);
        loop {
            let found = self.store.strays(&membership.shards, &self.other_engine_runs.served, from).await?;
            let more = found.len() >= MAX_STRAYS;
            from = found.last().map(|stray| stray.execution);
            for stray in found {
                match &stray.engine {
                    _ if stray.missing => missing.push(stray.execution),
                    // A failure for one slot does not prevent that the other slots are freed.
                    Some(_) if stray.terminating => failure = self.end(&stray).await.err().or(failure),
                    Some(engine) => *elsewhere.entry(engine.clone()).or_default() += 1,
                    None => {}
                }
            }
            if !more {
                break;
            }
        }
        for some in self.missing_for_long(&missing).chunks(BATCH) {
            failure = self.free(some).await.err().or(failure);
        }
        self.other_engine_runs.set(self.describe(&elsewhere).await);
        failure.map_or(Ok(None), Err)
    }

    /// Frees the slots of missing executions in one statement. If that statement fails, each slot is freed by a
    /// statement of its own, so that a failure for one slot does not affect the other slots.
    async fn free(&self, lost: &[ExecutionId]) -> Result<(), store::Error> {
        let mut failure = None;
        let freed = match self.store.fail_items_of_missing(lost, "strays").await {
            Ok(freed) => freed,
            Err(error)
                if lost.len() == 1 || matches!(error, store::Error::Unavailable(_)) && !error.is_lock_timeout() =>
            {
                return Err(error);
            }
            Err(_) => {
                let mut freed = Vec::new();
                for one in lost {
                    match self.store.fail_items_of_missing(&[*one], "strays").await {
                        Ok(workspaces) => freed.extend(workspaces),
                        Err(error) => failure = Some(error),
                    }
                }
                freed
            }
        };
        freed.into_iter().for_each(|workspace| self.notifier.notify_ready(workspace));
        failure.map_or(Ok(()), Err)
    }

    /// The executions that have been missing for at least the grace period.
    fn missing_for_long(&self, missing: &[ExecutionId]) -> Vec<ExecutionId> {
        let mut since = self.missing.lock();
        let now = Instant::now();
        let before = std::mem::take(&mut *since);
        since.extend(missing.iter().map(|id| (*id, before.get(id).copied().unwrap_or(now))));
        missing.iter().copied().filter(|id| since.get(id).is_some_and(|at| now - *at >= GRACE)).collect()
    }

    /// Ends a run that a person terminated, on an engine that this service no longer serves.
    async fn end(&self, stray: &Stray) -> Result<(), store::Error> {
        if let Some(other) = &self.other {
            other.terminate(stray.execution);
        }
        let ending = terminated_ending(stray.execution);
        for ended in self.store.complete(&[ending], Some(execution::Status::Running), "strays").await? {
            if ended.freed {
                self.notifier.notify_ready(ended.workspace);
            }
            self.waiters.wake(ended.execution);
        }
        Ok(())
    }

    async fn describe(&self, elsewhere: &BTreeMap<String, usize>) -> Option<String> {
        let (engine, runs) = elsewhere.iter().next()?;
        let ours = self.other_engine_runs.served.first().copied().unwrap_or_default();
        let reached = match &self.other {
            Some(other) => match tokio::time::timeout(ENGINE_TIMEOUT, other.check_health()).await {
                Ok(Ok(None)) => "it can be reached".to_owned(),
                Ok(Ok(Some(problem))) => problem,
                Ok(Err(error)) => format!("it cannot be reached: {error}"),
                Err(_) => "it cannot be reached: it did not answer in time".to_owned(),
            },
            None => "it cannot be reached from this process".to_owned(),
        };
        Some(format!(
            "executions that still run on the engine {engine}: {runs}. This service now uses the engine {ours}. \
             The engine {engine}: {reached}. Keep a process with engine.kind={engine} until these executions end, or \
             end each of them with `forebay terminate ID`"
        ))
    }
}

/// The end of a run that a person terminated: status `CANCELED`.
pub(crate) fn terminated_ending(execution: ExecutionId) -> Ending {
    let error = Some(store::queue::control::terminated());
    Ending { execution, claim: None, end: End { outcome: execution::Status::Canceled, output: None, error } }
}
