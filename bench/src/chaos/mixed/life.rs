//! The life of one job, as its facts tell it: who held it when, and how each hold ended.
//!
//!     pending ─▶ claimed (touched)* ─▶ completed
//!        ▲          │      └─▶ failed ─▶ retried, at most twice
//!        └ recovered┘
//!
//! This is the judge's own table, not the service's: what is not in the drawing is illegal.

use uuid::Uuid;

use super::facts::{Fact, Job, Step};
use super::journal::Hold;
use super::plan::How;

/// Failures after which a job is not tried again.
pub(super) const FAILURES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Ended(How),
    Recovered,
}

/// One worker's time with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) hold: Hold,
    /// The execution, if it is our own worker's.
    pub(super) run: Option<Uuid>,
    /// Failures before it.
    pub(super) retries: i32,
    pub(super) over: Option<Over>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) stays: Vec<Stay>,
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) recovered: usize,
    /// A step that cannot follow the one before, if there is one.
    pub(super) illegal: Option<(i32, Step)>,
    /// Each failure counted one, and nothing else did.
    pub(super) miscounted: bool,
    last: Option<Step>,
}

impl Life {
    pub(super) fn of(job: &Job) -> Life {
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

    /// How often it came to an end that nothing follows.
    pub(super) fn ends(&self) -> usize {
        self.completed + usize::from(self.last == Some(Step::Failed) && self.failed >= FAILURES)
    }

    pub(super) fn stay(&self, hold: &Hold) -> Option<&Stay> {
        self.stays.iter().find(|stay| stay.hold == *hold)
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
            Step::Claimed => self.stays.push(Stay {
                hold: Hold {
                    job,
                    worker: fact.worker.clone().unwrap_or_default(),
                    claimed_at: fact.claimed_at.unwrap_or_default(),
                },
                run: fact.run,
                retries: fact.retries,
                over: None,
            }),
            Step::Completed => self.over(Over::Ended(How::Completed)),
            Step::Failed => self.over(Over::Ended(How::Failed)),
            Step::Recovered => self.over(Over::Recovered),
            Step::Pending | Step::Touched | Step::Retried | Step::Other => {}
        }
        if fact.step != Step::Touched {
            self.last = Some(fact.step);
        }
    }

    fn over(&mut self, over: Over) {
        match over {
            Over::Ended(How::Completed) => self.completed += 1,
            Over::Ended(How::Failed) => self.failed += 1,
            Over::Recovered => self.recovered += 1,
        }
        if let Some(stay) = self.stays.last_mut() {
            stay.over = Some(over);
        }
    }
}
