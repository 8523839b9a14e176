//! Judges a run of mixed workers. Values in, values out.
//!
//! Three witnesses: the facts in the database, the journals of the workers that are not ours, and the tries that our
//! own worker's executions asked for. They meet by claim: a worker and the time of its claim, or the execution.
//!
//! Invariants it judges
//! - A job comes to one end that nothing follows, and nobody was told of another: `ended_twice`, `lost`.
//! - It failed as often as planned, three times at most; a worker that died counts nothing: `wrong_tries`.
//! - Nobody worked on a job without a claim that its facts know: `double_runs`.
//! - No end but one that the holder asked for: `unasked`. No step but a legal one: `illegal`.
//!
//! Two workers in plain SQL cannot be told apart, as their document has it: one that ends what another of them holds by
//! then is counted apart.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::facts::Job;
use super::journal::{Line, What};
use super::life::{FAILURES, Life, Over, Stay};
use super::plan::{How, Plan};
use super::tries::Try;

/// How many findings are told one by one.
const TOLD: usize = 8;
/// What the names of workers in plain SQL begin with, and of those over HTTP.
const SQL: char = 's';
const HTTP: char = 'h';

/// All that a run left to be judged.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) plans: &'a [Plan],
    pub(super) jobs: &'a [Job],
    pub(super) journal: &'a [Line],
    pub(super) tries: &'a [Try],
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) ended_once: usize,
    pub(super) ended_twice: usize,
    pub(super) lost: usize,
    pub(super) wrong_tries: usize,
    pub(super) double_runs: usize,
    pub(super) unasked: usize,
    pub(super) illegal: usize,
    /// Ends by one worker in plain SQL of what another one held.
    pub(super) indistinct: usize,
    /// Ends that were asked for under a claim that was gone, and refused.
    pub(super) late_refused: usize,
    pub(super) recovered: usize,
    pub(super) failures: usize,
    pub(super) ended_by: EndedBy,
    /// The first findings, in words.
    pub(super) told: Vec<String>,
}

/// Tries that came to an end, by who ended them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndedBy {
    pub(super) ours: usize,
    pub(super) http: usize,
    pub(super) sql: usize,
}

pub(super) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let mut lines = grouped(evidence.journal, |line| line.hold.job);
    let mut tries = grouped(evidence.tries, |one| one.event);
    let mut jobs = grouped(evidence.jobs, |job| job.event);
    let mut verdict = Verdict::default();
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
        verdict.find(|v| &mut v.illegal, || format!("nobody appended event {event}, which has a job"));
    }
    for id in lines.keys().chain(tries.keys()) {
        verdict.find(|v| &mut v.double_runs, || format!("{id} was worked on and is not there"));
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

/// All there is about one job.
struct Case<'a> {
    plan: &'a Plan,
    life: Life,
    lines: Vec<&'a Line>,
    tries: Vec<&'a Try>,
}

impl Verdict {
    fn find(&mut self, count: impl FnOnce(&mut Verdict) -> &mut usize, finding: impl FnOnce() -> String) {
        *count(self) += 1;
        if self.told.len() < TOLD {
            self.told.push(finding());
        }
    }

    fn case(&mut self, case: &Case<'_>) {
        let (event, life) = (case.plan.event, &case.life);
        self.recovered += life.recovered;
        self.failures += life.failed;
        let late = case.late();
        match life.ends() {
            0 => self.find(|v| &mut v.lost, || format!("the job of {event} has no end: {life:?}")),
            1 if late.is_empty() => self.ended_once += 1,
            _ => self.find(|v| &mut v.ended_twice, || format!("the job of {event}: {late:?} beside {life:?}")),
        }
        if life.ends() > 0 && case.tries_are_wrong() {
            self.find(
                |v| &mut v.wrong_tries,
                || format!("the job of {event} was to fail {} times: {life:?}", case.plan.fails),
            );
        }
        if let Some(step) = life.illegal {
            self.find(|v| &mut v.illegal, || format!("the job of {event}: {step:?} cannot be: {life:?}"));
        }
        for told in case.without_claim() {
            self.find(|v| &mut v.double_runs, || format!("the job of {event}: {told} beside {life:?}"));
        }
        for stay in &life.stays {
            self.stay(case, stay);
        }
        self.late_refused += case.refused_late();
    }

    fn stay(&mut self, case: &Case<'_>, stay: &Stay) {
        let Some(Over::Ended(how)) = stay.over else { return };
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
            false => self.find(|v| &mut v.unasked, || format!("nobody asked for the end of {stay:?}")),
        }
    }
}

impl Case<'_> {
    /// Ends that somebody was told of, and that were not that one's to make.
    fn late(&self) -> Vec<&Line> {
        let is_late = |line: &&&Line| {
            let What::Done(how) = line.what else { return false };
            let is_his = self.life.stay(&line.hold).is_some_and(|stay| stay.over == Some(Over::Ended(how)));
            !is_his && !self.is_sql_for_sql(line, how)
        };
        self.lines.iter().filter(is_late).copied().collect()
    }

    /// A worker in plain SQL that ended what another in plain SQL held.
    fn is_sql_for_sql(&self, line: &Line, how: How) -> bool {
        let of_other = |stay: &Stay| {
            stay.hold != line.hold
                && stay.run.is_none()
                && stay.hold.worker.starts_with(SQL)
                && stay.over == Some(Over::Ended(how))
        };
        line.hold.worker.starts_with(SQL) && self.life.stays.iter().any(of_other)
    }

    fn tries_are_wrong(&self) -> bool {
        let planned = usize::try_from(self.plan.fails).unwrap_or_default().min(FAILURES);
        let completes = usize::from(planned < FAILURES);
        self.life.miscounted || self.life.failed != planned || self.life.completed != completes
    }

    /// Work that no claim of the facts stands for.
    fn without_claim(&self) -> Vec<String> {
        let runs: BTreeSet<(Uuid, i32)> =
            self.life.stays.iter().filter_map(|stay| Some((stay.run?, stay.retries))).collect();
        let lines = self.lines.iter().filter(|line| self.life.stay(&line.hold).is_none());
        let tries = self.tries.iter().filter(|one| !runs.contains(&(one.execution, one.retries)));
        lines.map(|line| format!("{line:?}")).chain(tries.map(|one| format!("{one:?}"))).collect()
    }

    /// Did the holder ask for this end?
    fn asked(&self, stay: &Stay, how: How) -> bool {
        match stay.run {
            Some(run) => self.tries.iter().any(|one| one.execution == run && one.how == how),
            None => self.lines.iter().any(|line| line.hold == stay.hold && line.what == What::Asks(how)),
        }
    }

    fn asked_by_other_sql(&self, stay: &Stay, how: How) -> bool {
        let is_sql = |worker: &str| worker.starts_with(SQL);
        let asked = |line: &&Line| line.what == What::Asks(how) && is_sql(&line.hold.worker);
        stay.run.is_none() && is_sql(&stay.hold.worker) && self.lines.iter().copied().any(|line| asked(&line))
    }

    fn refused_late(&self) -> usize {
        let is_gone = |line: &Line| {
            let over = self.life.stay(&line.hold).and_then(|stay| stay.over);
            matches!(line.what, What::Refused(_)) && line.hold.worker.starts_with(HTTP) && over == Some(Over::Recovered)
        };
        self.lines.iter().filter(|line| is_gone(line)).count()
    }
}
