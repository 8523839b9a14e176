//! Runs of an engine elsewhere that should have ended: asks it what became of them.
//!
//! Invariants
//! - Only what was handed over a while ago is asked about: a start may be on its way before that.
//! - Runs that the engine lists as open cost one question for a page of them; only suspects, and a few of the others
//!   in turn, are described one by one. A description decides, a list never does.
//! - Every verdict of a pass is known before the first is carried out. A pass that meets too much
//!   unknown, or another engine than the one that was started, ends nothing and says so, and begins
//!   anew until that is over.
//! - What was ended from outside, or is gone, holds its slot for as long as a node of it may still be performed.
//! - An end names the status it was judged by: one that moved on meanwhile is left for the next pass.
//!
//! Not here: the verdicts (`kernel::run::reconcile`); what is known of runs between passes (`findings`); the embedded
//! engine, whose runs are rows of ours.

mod findings;

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use engine::{Described, Engine};
use futures_util::{StreamExt, TryStreamExt, stream};
use kernel::execution;
use kernel::ids::ExecutionId;
use kernel::run::failure::{Class, Failure};
use kernel::run::reconcile::{self, There, Verdict};
use kernel::signals::metrics;
use store::Store;
use store::run::handed_over::HandedOver;
use store::run::{End, Ending};
use tokio::sync::watch;

use crate::execution::waiters::Waiters;
use crate::process::heartbeat::Alive;
use crate::process::hints::Hints;
use crate::queue::breaker::Breaker;
pub(crate) use findings::{Findings, Seen, Stretch};

/// The most runs looked at in one pass.
const MOST: i64 = 500;
/// How many of a page's open runs are described in one pass, to see whether they go on: every one has its turn within
/// twenty passes.
const DESCRIBED: usize = 25;
/// How many descriptions are asked for at once.
const AT_ONCE: usize = 8;

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
    pub(crate) place: Mutex<Place>,
}

/// Where the next pass goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    from: Option<ExecutionId>,
    /// How often all runs were gone through: whose turn it is to be described.
    round: usize,
}

/// One run as it was judged.
struct Judged {
    run: HandedOver,
    verdict: Verdict,
    /// How it ends, if it does.
    end: Option<End>,
    seen: Seen,
}

impl Reconciler {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let Some(alive) = self.alive.borrow().clone() else { return Ok(None) };
        let (Some(noted), true) = (self.engine.place(), self.breaker.is_closed()) else { return Ok(None) };
        let Place { from, round } = *self.place.lock();
        let runs = self.store.handed_over(&alive.shards, self.after, self.engine.name(), from, MOST).await?;
        let full = i64::try_from(runs.len()).is_ok_and(|found| found >= MOST);
        let next = runs.last().filter(|_| full).map(|run| run.execution);
        if let Some(elsewhere) = runs.iter().find_map(|run| run.place.clone().filter(|place| *place != noted)) {
            return Ok(self.stop(reconcile::halt(0, Some((&elsewhere, &noted)))));
        }
        let judged = match self.judge_all(runs, round).await {
            Ok(judged) => judged,
            // It cannot be asked: nothing is known, and nothing follows.
            Err(reason) => {
                tracing::warn!(reason, "The engine could not be asked about its runs");
                return Ok(None);
            }
        };
        let unknown = judged.iter().filter(|one| one.seen == Seen::Unknown).count();
        if let Some(reason) = reconcile::halt(unknown, None) {
            return Ok(self.stop(Some(reason)));
        }
        let stretch = Stretch { after: from, to: next };
        let counted = self.findings.note(stretch, judged.iter().map(|one| (one.run.execution, one.seen)));
        for (why, count) in [("idle", counted.idle), ("failing", counted.failing)] {
            ::metrics::gauge!(metrics::STUCK.name, "why" => why).set(u32::try_from(count).unwrap_or(u32::MAX));
        }
        self.findings.set(counted.told());
        self.carry_out(judged).await?;
        let round = if next.is_none() { round.wrapping_add(1) } else { round };
        self.go_on(Place { from: next, round });
        Ok(next.map(|_| Duration::ZERO))
    }

    /// Ends nothing, says why, and begins anew.
    fn stop(&self, reason: Option<String>) -> Option<Duration> {
        self.findings.set(reason.map(|reason| format!("stopped: {reason}")));
        self.go_on(Place::default());
        None
    }

    fn go_on(&self, place: Place) {
        *self.place.lock() = place;
    }

    async fn judge_all(&self, runs: Vec<HandedOver>, round: usize) -> Result<Vec<Judged>, String> {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(Vec::new()) };
        let open = self.engine.open(first.execution, last.execution).await?.unwrap_or_default();
        let turns = runs.len().div_ceil(DESCRIBED);
        let judge = |(at, run): (usize, HandedOver)| {
            let looked_at = at % turns == round % turns || !open.contains(&run.execution);
            async move { if looked_at { self.judge(run).await } else { Ok(self.open(run)) } }
        };
        stream::iter(runs.into_iter().enumerate().map(judge)).buffered(AT_ONCE).try_collect().await
    }

    /// One that is listed as open, and not looked at more closely.
    fn open(&self, run: HandedOver) -> Judged {
        let verdict = reconcile::judge(run.status, There::Running);
        Judged { run, verdict, end: None, seen: Seen::Listed { begun: verdict != Verdict::NotBegun } }
    }

    async fn judge(&self, run: HandedOver) -> Result<Judged, String> {
        let described = self.engine.describe(run.execution).await?;
        let seen = Seen::of(run.status, &described);
        let (there, end) = match described {
            Described::Unknown => (There::Unknown, None),
            Described::Running { .. } => (There::Running, None),
            Described::Broken(end) | Described::Closed(end) => (There::Closed(end.outcome), Some(end)),
        };
        let lingers = matches!(seen, Seen::Unknown | Seen::Broken)
            && self.findings.gone_for(run.execution) < self.engine.lingers();
        let verdict = if lingers { Verdict::Leave } else { reconcile::judge(run.status, there) };
        let end = match verdict {
            Verdict::Complete => end,
            Verdict::Lost => Some(lost()),
            Verdict::Leave | Verdict::NotBegun => None,
        };
        Ok(Judged { run, verdict, end, seen })
    }

    async fn carry_out(&self, judged: Vec<Judged>) -> Result<(), store::Error> {
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
                ::metrics::counter!(metrics::RECONCILED.name).increment(1);
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
