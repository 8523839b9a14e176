//! Reconciles the stored runs of an external engine with the engine. Asks the engine for the state of its runs, and
//! ends executions whose run has ended there or is lost.
//!
//! Invariants
//! - Only runs that were handed to the engine at least `engine.reconcile_after_ms` ago are checked, because the start
//!   request of a newer run may still be in flight.
//! - One request to the engine lists all open runs of a page. Runs that are missing in the list, and a few of the open
//!   runs in turn, are then described by a request each. A run is ended only because of its description.
//! - All runs of a pass are judged before the first of them is ended. The pass ends no run if the engine does not know
//!   too many of them, or if the runs were started on another engine. It reports that, and the next pass begins at the
//!   first run.
//! - A run that was ended directly on the engine, or that the engine lost, keeps its slot for a while
//!   (`Engine::max_linger`): a worker may still perform one of its nodes.
//! - The statement that ends an execution applies only if the execution still has the status on which the verdict is
//!   based. Otherwise the next pass judges the run again.
//!
//! Not here: the verdicts (`kernel::run::reconcile`), what is known about runs between passes (`findings`), the
//! embedded engine, whose runs are rows of the store.

mod findings;

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, RunDescription};
use futures_util::{StreamExt, TryStreamExt, stream};
use kernel::execution;
use kernel::ids::ExecutionId;
use kernel::run::failure::{Class, Failure};
use kernel::run::reconcile::{self, Reconciliation, RemoteState};
use kernel::signals::metrics;
use store::Store;
use store::run::dispatched_run::DispatchedRun;
use store::run::{End, Ending};
use tokio::sync::watch;

use crate::execution::waiters::Waiters;
use crate::process::heartbeat::Membership;
use crate::process::notifications::Notifier;
use crate::queue::breaker::Breaker;
pub(crate) use findings::{EngineFindings, IdRange, RunObservation};

/// The most runs checked in one pass.
const PAGE: i64 = 500;
/// How many open runs of a page are described in one pass, to find out whether they make progress. So each run is
/// described at least once in twenty walks over all runs.
const DESCRIBED_PER_PASS: usize = 25;
/// How many runs are described at the same time.
const PARALLEL_DESCRIPTIONS: usize = 8;

pub(crate) struct Reconciler {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) breaker: Breaker,
    /// Only runs that were handed to the engine at least this long ago are checked.
    pub(crate) after: Duration,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
    pub(crate) notifier: Notifier,
    pub(crate) waiters: Waiters,
    pub(crate) findings: EngineFindings,
    pub(crate) position: Mutex<ReconcilePosition>,
}

/// Where the next pass continues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReconcilePosition {
    from: Option<ExecutionId>,
    /// The number of walks over all runs so far. It decides which open runs are described next.
    round: usize,
}

/// One run, and the decision of the kernel about it.
struct JudgedRun {
    run: DispatchedRun,
    verdict: Reconciliation,
    /// How the run ends; none if it is left running.
    end: Option<End>,
    observation: RunObservation,
}

impl Reconciler {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let Some(membership) = self.membership.borrow().clone() else { return Ok(None) };
        let (Some(location), true) = (self.engine.location(), self.breaker.is_closed()) else { return Ok(None) };
        let ReconcilePosition { from, round } = *self.position.lock();
        let runs = self.store.dispatched_runs(&membership.shards, self.after, self.engine.name(), from, PAGE).await?;
        let full = i64::try_from(runs.len()).is_ok_and(|found| found >= PAGE);
        let next = runs.last().filter(|_| full).map(|run| run.execution);
        if let Some(other) = runs.iter().find_map(|run| run.location.clone().filter(|found| *found != location)) {
            return Ok(self.halt(reconcile::halt(0, Some((&other, &location)))));
        }
        let judged = match self.judge_all(runs, round).await {
            Ok(judged) => judged,
            // The engine did not answer, so the states of its runs are unknown, and no run is ended.
            Err(reason) => {
                tracing::warn!(reason, "Engine did not report the state of its runs; the next pass asks it again");
                return Ok(None);
            }
        };
        let unknown = judged.iter().filter(|judged| judged.observation == RunObservation::Unknown).count();
        if let Some(reason) = reconcile::halt(unknown, None) {
            return Ok(self.halt(Some(reason)));
        }
        let range = IdRange { after: from, to: next };
        let stuck = self.findings.record(range, judged.iter().map(|judged| (judged.run.execution, judged.observation)));
        for (reason, count) in [("no_worker", stuck.idle), ("worker_failing", stuck.failing)] {
            ::metrics::gauge!(metrics::RUNS_STUCK.name, "reason" => reason)
                .set(u32::try_from(count).unwrap_or(u32::MAX));
        }
        self.findings.set(stuck.problem());
        self.carry_out(judged).await?;
        let round = if next.is_none() { round.wrapping_add(1) } else { round };
        self.continue_from(ReconcilePosition { from: next, round });
        Ok(next.map(|_| Duration::ZERO))
    }

    /// Reports why this pass ends no run. The next pass begins at the first run.
    fn halt(&self, reason: Option<String>) -> Option<Duration> {
        self.findings.set(reason.map(|reason| format!("the check stopped: {reason}")));
        self.continue_from(ReconcilePosition::default());
        None
    }

    fn continue_from(&self, position: ReconcilePosition) {
        *self.position.lock() = position;
    }

    async fn judge_all(&self, runs: Vec<DispatchedRun>, round: usize) -> Result<Vec<JudgedRun>, String> {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(Vec::new()) };
        let open = self.engine.open_runs(first.execution, last.execution).await?.unwrap_or_default();
        let groups = runs.len().div_ceil(DESCRIBED_PER_PASS);
        let judge = |(index, run): (usize, DispatchedRun)| {
            let is_described = index % groups == round % groups || !open.contains(&run.execution);
            async move { if is_described { self.judge(run).await } else { Ok(self.open(run)) } }
        };
        stream::iter(runs.into_iter().enumerate().map(judge)).buffered(PARALLEL_DESCRIPTIONS).try_collect().await
    }

    /// The decision about a run that the engine lists as open and that this pass does not describe.
    fn open(&self, run: DispatchedRun) -> JudgedRun {
        let verdict = reconcile::decide(run.status, RemoteState::Running);
        JudgedRun {
            run,
            verdict,
            end: None,
            observation: RunObservation::Listed { begun: verdict != Reconciliation::AwaitBegin },
        }
    }

    async fn judge(&self, run: DispatchedRun) -> Result<JudgedRun, String> {
        let described = self.engine.describe(run.execution).await?;
        let observation = RunObservation::from_description(run.status, &described);
        let (there, end) = match described {
            RunDescription::Unknown => (RemoteState::Unknown, None),
            RunDescription::Running { .. } => (RemoteState::Running, None),
            RunDescription::EndedExternally(end) | RunDescription::Closed(end) => {
                (RemoteState::Ended(end.outcome), Some(end))
            }
        };
        let lingers = matches!(observation, RunObservation::Unknown | RunObservation::Broken)
            && self.findings.missing_for(run.execution) < self.engine.max_linger();
        let verdict = if lingers { Reconciliation::LeaveRunning } else { reconcile::decide(run.status, there) };
        let end = match verdict {
            Reconciliation::Complete => end,
            Reconciliation::GiveUp => Some(lost()),
            Reconciliation::LeaveRunning | Reconciliation::AwaitBegin => None,
        };
        Ok(JudgedRun { run, verdict, end, observation })
    }

    async fn carry_out(&self, judged: Vec<JudgedRun>) -> Result<(), store::Error> {
        for JudgedRun { run, verdict, end, .. } in judged {
            if run.canceling {
                // The engine may not know of the cancel, because another process accepted the request.
                self.engine.cancel(run.execution);
            }
            if let Some(end) = end {
                self.end(run, verdict, end).await?;
            }
        }
        Ok(())
    }

    async fn end(&self, run: DispatchedRun, verdict: Reconciliation, end: End) -> Result<(), store::Error> {
        let outcome = end.outcome.name();
        let ending = Ending { execution: run.execution, claim: None, end };
        for ended in self.store.complete(&[ending], Some(run.status), "reconciler").await? {
            if ended.applied {
                tracing::warn!(execution_id = %run.execution, workspace_id = %run.workspace, ?verdict, outcome,
                    "Execution ended by reconciliation: its run has ended on the engine, or the engine lost it");
                ::metrics::counter!(metrics::RUNS_RECONCILED.name).increment(1);
            }
            if ended.freed {
                self.notifier.notify_ready(ended.workspace);
            }
            self.waiters.wake(run.execution);
        }
        Ok(())
    }
}

fn lost() -> End {
    let message =
        "the engine does not know this execution; it is not started again, because some of its nodes may have run";
    let error = Some(Failure::new(Class::EngineLost, message));
    End { outcome: execution::Status::Failed, output: None, error }
}
