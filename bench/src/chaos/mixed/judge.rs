//! Judges a run of mixed workers. A pure function of its inputs.
//!
//! Three sources: the facts in the database, the journals of HTTP and SQL workers, and the tries that executions of
//! Forebay's own worker requested. The judge joins them by claim: the worker and the time of its claim, or the
//! execution.
//!
//! Invariants it judges
//! - A job has exactly one end, no fact follows that end, and no other end was confirmed to a worker: `ended_twice`,
//!   `lost`.
//! - A job failed as often as planned, three times at most. The death of a worker is not a failure: `wrong_tries`.
//! - No worker worked on a job without a claim that is among the job's facts: `double_runs`.
//! - Every end was requested by the holder: `unasked`. Every step is legal: `illegal`.
//!
//! By design of the table, the service cannot distinguish two workers in plain SQL. If an SQL worker ends a job that
//! another SQL worker holds, this is counted separately.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::facts::JobRecord;
use super::journal::{Line, WorkerStep};
use super::life::{FAILURES, HoldEnd, HoldPeriod, Life};
use super::plan::{JobResult, Plan};
use super::tries::Try;

/// How many findings are printed one by one.
const MOST_FINDINGS: usize = 8;
/// The first letter of the names of SQL workers, and of HTTP workers.
const SQL: char = 's';
const HTTP: char = 'h';

/// Everything that a run left to be judged.
#[derive(Debug)]
pub(super) struct JobEvidence<'a> {
    pub(super) plans: &'a [Plan],
    pub(super) jobs: &'a [JobRecord],
    pub(super) journal: &'a [Line],
    pub(super) tries: &'a [Try],
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobVerdict {
    pub(super) ended_once: usize,
    pub(super) ended_twice: usize,
    pub(super) lost: usize,
    pub(super) wrong_tries: usize,
    pub(super) double_runs: usize,
    pub(super) unasked: usize,
    pub(super) illegal: usize,
    /// Jobs that one SQL worker ended while another SQL worker held them.
    pub(super) indistinct: usize,
    /// Ends that were requested under an old claim, and refused.
    pub(super) late_refused: usize,
    pub(super) recovered: usize,
    pub(super) failures: usize,
    pub(super) ended_by: EndedBy,
    /// The first findings, as text.
    pub(super) findings: Vec<String>,
}

/// How many tries each sort of worker ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndedBy {
    pub(super) ours: usize,
    pub(super) http: usize,
    pub(super) sql: usize,
}

pub(super) fn judge(evidence: &JobEvidence<'_>) -> JobVerdict {
    let mut lines = grouped(evidence.journal, |line| line.hold.job);
    let mut tries = grouped(evidence.tries, |one| one.event);
    let mut jobs = grouped(evidence.jobs, |job| job.event);
    let mut verdict = JobVerdict::default();
    for plan in evidence.plans {
        match jobs.remove(&plan.event).as_deref() {
            Some([job]) => {
                let case = Case {
                    plan,
                    life: Life::of(job),
                    lines: lines.remove(&job.id).unwrap_or_default(),
                    tries: tries.remove(&plan.event).unwrap_or_default(),
                };
                verdict.case(&case);
            }
            Some(many) => {
                verdict.find(|v| &mut v.ended_twice, || format!("event {} has {} jobs", plan.event, many.len()))
            }
            None => verdict.find(|v| &mut v.lost, || format!("event {} has no job", plan.event)),
        }
    }
    for (event, _) in jobs {
        verdict.find(|v| &mut v.illegal, || format!("event {event} has a job, but was never appended"));
    }
    for id in lines.keys().chain(tries.keys()) {
        verdict.find(|v| &mut v.double_runs, || format!("job {id} was worked on but does not exist"));
    }
    verdict
}

fn grouped<T>(all: &[T], by: impl Fn(&T) -> Uuid) -> BTreeMap<Uuid, Vec<&T>> {
    let mut groups: BTreeMap<Uuid, Vec<&T>> = BTreeMap::new();
    for one in all {
        groups.entry(by(one)).or_default().push(one);
    }
    groups
}

fn named(checks: &[(&str, bool)]) -> Vec<String> {
    checks.iter().filter(|(_, broke)| *broke).map(|(name, _)| (*name).to_owned()).collect()
}

/// The evidence about one job.
struct Case<'a> {
    plan: &'a Plan,
    life: Life,
    lines: Vec<&'a Line>,
    tries: Vec<&'a Try>,
}

impl JobVerdict {
    /// The violations that later events cannot revoke.
    pub(super) fn for_good(&self) -> Vec<String> {
        named(&[
            ("ended_twice", self.ended_twice > 0),
            ("wrong_tries", self.wrong_tries > 0),
            ("double_runs", self.double_runs > 0),
            ("illegal", self.illegal > 0),
        ])
    }

    pub(super) fn broken(&self, rebuild_equal: bool) -> Vec<String> {
        named(&[
            ("ended_twice", self.ended_twice > 0),
            ("lost", self.lost > 0),
            ("wrong_tries", self.wrong_tries > 0),
            ("double_runs", self.double_runs > 0),
            ("unasked", self.unasked > 0),
            ("illegal", self.illegal > 0),
            ("rebuild_equal", !rebuild_equal),
        ])
    }

    fn find(&mut self, count: impl FnOnce(&mut JobVerdict) -> &mut usize, finding: impl FnOnce() -> String) {
        *count(self) += 1;
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding());
        }
    }

    fn case(&mut self, case: &Case<'_>) {
        let (event, life) = (case.plan.event, &case.life);
        self.recovered += life.recovered;
        self.failures += life.failed;
        let late = case.late();
        match life.ends() {
            0 => self.find(|v| &mut v.lost, || format!("the job of {event} neither completed nor failed: {life:?}")),
            1 if late.is_empty() => self.ended_once += 1,
            _ => self.find(|v| &mut v.ended_twice, || format!("the job of {event}: {late:?} in addition to {life:?}")),
        }
        if life.ends() > 0 && case.tries_are_wrong() {
            self.find(
                |v| &mut v.wrong_tries,
                || format!("the job of {event} should have failed {} times: {life:?}", case.plan.fails),
            );
        }
        if let Some(step) = life.illegal {
            self.find(|v| &mut v.illegal, || format!("the job of {event}: illegal step {step:?}: {life:?}"));
        }
        for end in case.without_claim() {
            self.find(|v| &mut v.double_runs, || format!("the job of {event}: {end} without a claim in {life:?}"));
        }
        for stay in &life.holds {
            self.stay(case, stay);
        }
        self.late_refused += case.refused_late();
    }

    fn stay(&mut self, case: &Case<'_>, stay: &HoldPeriod) {
        let Some(HoldEnd::Ended(how)) = stay.over else { return };
        match (stay.run, stay.hold.worker.chars().next()) {
            (Some(_), _) => self.ended_by.ours += 1,
            (None, Some(SQL)) => self.ended_by.sql += 1,
            (None, _) => self.ended_by.http += 1,
        }
        if case.asked(stay, how) {
            return;
        }
        match case.asked_by_other_sql(stay, how) {
            true => self.indistinct += 1,
            false => self.find(|v| &mut v.unasked, || format!("its holder did not request the end of {stay:?}")),
        }
    }
}

impl Case<'_> {
    /// Ends that were confirmed to a worker that did not hold the job.
    fn late(&self) -> Vec<&Line> {
        let is_late = |line: &&&Line| {
            let WorkerStep::Done(how) = line.what else { return false };
            let is_his = self.life.stay(&line.hold).is_some_and(|stay| stay.over == Some(HoldEnd::Ended(how)));
            !is_his && !self.is_sql_for_sql(line, how)
        };
        self.lines.iter().filter(is_late).copied().collect()
    }

    /// True if an SQL worker ended a job that another SQL worker held.
    fn is_sql_for_sql(&self, line: &Line, how: JobResult) -> bool {
        let of_other = |stay: &HoldPeriod| {
            stay.hold != line.hold
                && stay.run.is_none()
                && stay.hold.worker.starts_with(SQL)
                && stay.over == Some(HoldEnd::Ended(how))
        };
        line.hold.worker.starts_with(SQL) && self.life.holds.iter().any(of_other)
    }

    fn tries_are_wrong(&self) -> bool {
        let planned = usize::try_from(self.plan.fails).unwrap_or_default().min(FAILURES);
        let completes = usize::from(planned < FAILURES);
        self.life.miscounted || self.life.failed != planned || self.life.completed != completes
    }

    /// Work without a claim in the facts.
    fn without_claim(&self) -> Vec<String> {
        let runs: BTreeSet<(Uuid, i32)> =
            self.life.holds.iter().filter_map(|stay| Some((stay.run?, stay.retries))).collect();
        let lines = self.lines.iter().filter(|line| self.life.stay(&line.hold).is_none());
        let tries = self.tries.iter().filter(|one| !runs.contains(&(one.execution, one.retries)));
        lines.map(|line| format!("{line:?}")).chain(tries.map(|one| format!("{one:?}"))).collect()
    }

    /// True if the holder requested this end.
    fn asked(&self, stay: &HoldPeriod, how: JobResult) -> bool {
        match stay.run {
            Some(run) => self.tries.iter().any(|one| one.execution == run && one.how == how),
            None => self.lines.iter().any(|line| line.hold == stay.hold && line.what == WorkerStep::Requested(how)),
        }
    }

    fn asked_by_other_sql(&self, stay: &HoldPeriod, how: JobResult) -> bool {
        let is_sql = |worker: &str| worker.starts_with(SQL);
        let asked = |line: &&Line| line.what == WorkerStep::Requested(how) && is_sql(&line.hold.worker);
        stay.run.is_none() && is_sql(&stay.hold.worker) && self.lines.iter().copied().any(|line| asked(&line))
    }

    fn refused_late(&self) -> usize {
        let is_gone = |line: &Line| {
            let over = self.life.stay(&line.hold).and_then(|stay| stay.over);
            matches!(line.what, WorkerStep::Refused(_))
                && line.hold.worker.starts_with(HTTP)
                && over == Some(HoldEnd::Recovered)
        };
        self.lines.iter().filter(|line| is_gone(line)).count()
    }
}
