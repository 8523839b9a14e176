//! Runs of an engine elsewhere that should have ended: asks it what became of them.
//!
//! Invariants
//! - Only what was handed over a while ago is asked about: a start may be on its way before that.
//! - Every verdict of a pass is known before the first is carried out. A pass that meets too much
//!   unknown, or another engine than the one that was started, ends nothing and says so, and begins
//!   anew until that is over.
//! - An end names the status it was judged by: one that moved on meanwhile is left for the next pass.
//!
//! Not here: the verdicts (`kernel::reconcile`); the embedded engine, whose runs are rows of ours.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{Described, Engine};
use kernel::execution;
use kernel::failure::{Class, Failure};
use kernel::ids::ExecutionId;
use kernel::reconcile::{self, There, Verdict};
use kernel::signals::metrics;
use store::Store;
use store::handed_over::HandedOver;
use store::run::{End, Ending};
use tokio::sync::watch;

use crate::breaker::Breaker;
use crate::heartbeat::Alive;
use crate::hints::Hints;
use crate::waiters::Waiters;

/// The most runs asked about in one pass.
const MOST: i64 = 500;

/// What passes found wrong, for readiness and for whoever asks about a run. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    trouble: Option<String>,
    /// Runs that their engine cannot go on with, and why.
    stuck: BTreeMap<ExecutionId, String>,
}

impl Findings {
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }

    /// Why the engine cannot go on with a run, if it cannot.
    pub(crate) fn stuck(&self, execution: ExecutionId) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stuck.get(&execution).cloned()
    }

    fn set(&self, trouble: Option<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.trouble != trouble
            && let Some(trouble) = &trouble
        {
            tracing::error!(trouble, "The engine and the queue do not agree");
        }
        known.trouble = trouble;
    }

    /// Notes which of these runs are stuck; a look from the first run on forgets those of the look before.
    fn note(&self, anew: bool, judged: &[Judged]) -> usize {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if anew {
            known.stuck.clear();
        }
        let stuck = judged.iter().filter_map(|one| Some((one.run.execution, one.stuck.clone()?)));
        known.stuck.extend(stuck.take(MOST_NOTED));
        known.stuck.len()
    }
}

/// The most stuck runs of one pass that are known by name.
const MOST_NOTED: usize = 1_000;

pub(crate) struct Reconciler {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) breaker: Breaker,
    /// How long ago an item must have been handed over.
    pub(crate) after: Duration,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    pub(crate) hints: Hints,
    pub(crate) waiters: Waiters,
    pub(crate) findings: Findings,
    /// Where the next pass goes on.
    pub(crate) from: Mutex<Option<ExecutionId>>,
}

/// One run as it was judged.
struct Judged {
    run: HandedOver,
    verdict: Verdict,
    /// How it ends, if it does.
    end: Option<End>,
    unknown: bool,
    /// Why the engine cannot go on with it, if it cannot.
    stuck: Option<String>,
}

impl Reconciler {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let Some(alive) = self.alive.borrow().clone() else { return Ok(None) };
        let (Some(place), true) = (self.engine.place(), self.breaker.is_closed()) else { return Ok(None) };
        let from = *self.from.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = self.store.handed_over(&alive.shards, self.after, self.engine.name(), from, MOST).await?;
        let full = i64::try_from(runs.len()).is_ok_and(|found| found >= MOST);
        let next = runs.last().filter(|_| full).map(|run| run.execution);
        let elsewhere = runs.iter().find_map(|run| run.place.clone().filter(|noted| *noted != place));
        let mut judged = Vec::new();
        if elsewhere.is_none() {
            for run in runs {
                match self.judge(run).await {
                    Ok(one) => judged.push(one),
                    // It cannot be asked: nothing is known, and nothing follows.
                    Err(reason) => {
                        tracing::warn!(reason, "The engine could not be asked about its runs");
                        return Ok(None);
                    }
                }
            }
        }
        let unknown = judged.iter().filter(|judged| judged.unknown).count();
        let halt = reconcile::halt(unknown, elsewhere.as_deref().map(|noted| (noted, place.as_str())));
        if let Some(reason) = halt {
            self.findings.set(Some(format!("stopped: {reason}")));
            self.go_on_from(None);
            return Ok(None);
        }
        let failing = self.findings.note(from.is_none(), &judged);
        self.carry_out(judged, failing).await?;
        self.go_on_from(next);
        Ok(next.map(|_| Duration::ZERO))
    }

    fn go_on_from(&self, next: Option<ExecutionId>) {
        *self.from.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    async fn judge(&self, run: HandedOver) -> Result<Judged, String> {
        let (there, end, stuck) = match self.engine.describe(run.execution).await? {
            Described::Unknown => (There::Unknown, None, None),
            Described::Running { stuck } => (There::Running, None, stuck),
            Described::Closed(end) => (There::Closed(end.outcome), Some(end), None),
        };
        let verdict = reconcile::judge(run.status, there);
        let end = match verdict {
            Verdict::Complete => end,
            Verdict::Lost => Some(lost()),
            Verdict::Leave | Verdict::NotBegun => None,
        };
        Ok(Judged { run, verdict, end, unknown: there == There::Unknown, stuck })
    }

    async fn carry_out(&self, judged: Vec<Judged>, failing: usize) -> Result<(), store::Error> {
        let idle = judged.iter().filter(|one| one.verdict == Verdict::NotBegun && one.stuck.is_none()).count();
        for (why, count) in [("idle", idle), ("failing", failing)] {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            ::metrics::gauge!(metrics::STUCK.name, "why" => why).set(count);
        }
        let failing = (failing > 0).then(|| {
            format!("{failing} runs do not go on, because their workers fail: are they of this version, with its keys?")
        });
        let idle = (idle > 0).then(|| {
            format!("{idle} started executions were picked up by no worker: does any poll the engine's task queue?")
        });
        self.findings.set(failing.or(idle));
        for Judged { run, verdict, end, .. } in judged {
            if run.canceling {
                // The engine may not have heard of it: the request was made at another process.
                self.engine.cancel(run.execution);
            }
            if let Some(end) = end {
                self.end(run, verdict, end).await?;
            }
        }
        Ok(())
    }

    async fn end(&self, run: HandedOver, verdict: Verdict, end: End) -> Result<(), store::Error> {
        let outcome = end.outcome.name();
        let ending = Ending { execution: run.execution, claim: None, end };
        for ended in self.store.complete(&[ending], Some(run.status), "reconciler").await? {
            if ended.applied {
                tracing::warn!(execution_id = %run.execution, workspace_id = %run.workspace, ?verdict, outcome,
                    "An execution was ended as the engine says");
                ::metrics::counter!(metrics::RECONCILED.name, "verdict" => format!("{verdict:?}")).increment(1);
            }
            if ended.freed {
                self.hints.ready(ended.workspace);
            }
            self.waiters.wake(run.execution);
        }
        Ok(())
    }
}

fn lost() -> End {
    let message = "the engine does not know of it; it may have been performed in part, so it is not started again";
    let error = Some(Failure::new(Class::EngineLost, message));
    End { outcome: execution::Status::Failed, output: None, error }
}
