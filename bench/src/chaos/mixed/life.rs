//! The life of one job according to its facts: which worker held it when, and how each hold ended.
//!
//!     pending ─▶ claimed (touched)* ─▶ completed
//!        ▲          │      └─▶ failed ─▶ retried, at most twice
//!        └ recovered┘
//!
//! This is the judge's own table, not the service's. A step that is not in the drawing is illegal.

use uuid::Uuid;

use super::facts::{Fact, JobRecord, Step};
use super::journal::Hold;
use super::plan::JobResult;

/// Failures after which a job is not retried.
pub(super) const FAILURES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldEnd {
    Ended(JobResult),
    Recovered,
}

/// One worker's time with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HoldPeriod {
    pub(super) hold: Hold,
    /// The execution, if Forebay's own worker held it.
    pub(super) run: Option<Uuid>,
    /// How often the job had failed before this hold.
    pub(super) retries: i32,
    pub(super) over: Option<HoldEnd>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) holds: Vec<HoldPeriod>,
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) recovered: usize,
    /// The first illegal step, if there is one.
    pub(super) illegal: Option<(i32, Step)>,
    /// True if `retry_count` differs from the number of failures.
    pub(super) miscounted: bool,
    last: Option<Step>,
}

impl Life {
    pub(super) fn of(job: &JobRecord) -> Life {
        let mut life = Life::default();
        for (n, fact) in job.facts.iter().enumerate() {
            if i32::try_from(n + 1) != Ok(fact.version) || !life.may(fact.step) {
                life.illegal.get_or_insert((fact.version, fact.step));
            }
            life.step(job.id, fact);
            life.miscounted |= i32::try_from(life.failed) != Ok(fact.retries);
        }
        life.miscounted |= i32::try_from(life.failed) != Ok(job.retries);
        life
    }

    /// How often the job reached a terminal status.
    pub(super) fn ends(&self) -> usize {
        self.completed + usize::from(self.last == Some(Step::Failed) && self.failed >= FAILURES)
    }

    pub(super) fn stay(&self, hold: &Hold) -> Option<&HoldPeriod> {
        self.holds.iter().find(|stay| stay.hold == *hold)
    }

    fn may(&self, step: Step) -> bool {
        use Step::*;
        match (self.last, step) {
            (None, Pending) | (Some(Pending | Retried | Recovered), Claimed) => true,
            (Some(Claimed), Touched | Completed | Failed | Recovered) => true,
            (Some(Failed), Retried) => self.failed < FAILURES,
            _ => false,
        }
    }

    fn step(&mut self, job: Uuid, fact: &Fact) {
        match fact.step {
            Step::Claimed => self.holds.push(HoldPeriod {
                hold: Hold {
                    job,
                    worker: fact.worker.clone().unwrap_or_default(),
                    claimed_at: fact.claimed_at.unwrap_or_default(),
                },
                run: fact.run,
                retries: fact.retries,
                over: None,
            }),
            Step::Completed => self.over(HoldEnd::Ended(JobResult::Completed)),
            Step::Failed => self.over(HoldEnd::Ended(JobResult::Failed)),
            Step::Recovered => self.over(HoldEnd::Recovered),
            Step::Pending | Step::Touched | Step::Retried | Step::Other => {}
        }
        if fact.step != Step::Touched {
            self.last = Some(fact.step);
        }
    }

    fn over(&mut self, over: HoldEnd) {
        match over {
            HoldEnd::Ended(JobResult::Completed) => self.completed += 1,
            HoldEnd::Ended(JobResult::Failed) => self.failed += 1,
            HoldEnd::Recovered => self.recovered += 1,
        }
        if let Some(stay) = self.holds.last_mut() {
            stay.over = Some(over);
        }
    }
}
