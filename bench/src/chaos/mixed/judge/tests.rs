//! Breaks each promise once in the evidence. The judge must report that promise, and nothing else.

use uuid::Uuid;

use super::super::facts::{Fact, JobRecord, Step};
use super::super::journal::{Hold, Line, WorkerStep};
use super::super::plan::{JobResult, Plan, SHARED};
use super::super::tries::Try;
use super::{JobEvidence, JobVerdict, judge};

const EVENT: Uuid = Uuid::from_u128(1);
const JOB: Uuid = Uuid::from_u128(2);

/// A run of one job, step by step: `h claims`, `h requests completed`, `h done failed`, `h refused completed`,
/// `recovered`, `completed`, `failed`, `retried`. `o` is Forebay's own worker: `o claims`, `o tries completed`.
fn verdict(fails: i32, lines: &[&str]) -> JobVerdict {
    let mut story = Story::default();
    story.fact(Step::Pending, None);
    lines.iter().for_each(|line| story.record(line));
    let plan = Plan { event: EVENT, kind: SHARED, fails, work_ms: 1 };
    let job = JobRecord { id: JOB, event: EVENT, retries: story.retries, facts: story.facts };
    let evidence = JobEvidence { plans: &[plan], jobs: &[job], journal: &story.journal, tries: &story.tries };
    JobVerdict { findings: Vec::new(), ..judge(&evidence) }
}

#[derive(Default)]
struct Story {
    facts: Vec<Fact>,
    journal: Vec<Line>,
    tries: Vec<Try>,
    retries: i32,
    holder: Option<String>,
}

impl Story {
    fn record(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let how = match words.last() {
            Some(&"failed") => JobResult::Failed,
            _ => JobResult::Completed,
        };
        match words.as_slice() {
            [who, "claims"] => {
                self.holder = Some((*who).to_owned());
                self.fact(Step::Claimed, Some(who));
                self.note(who, WorkerStep::Claimed);
            }
            [who, "requests", _] => self.note(who, WorkerStep::Requested(how)),
            [who, "done", _] => self.note(who, WorkerStep::Done(how)),
            [who, "refused", _] => self.note(who, WorkerStep::Refused(how)),
            [who, "tries", _] => {
                let execution = execution(who);
                self.tries.push(Try { execution, event: EVENT, retries: self.retries, how });
            }
            ["recovered"] => self.fact(Step::Recovered, None),
            ["retried"] => self.fact(Step::Retried, None),
            ["completed"] => self.fact(Step::Completed, None),
            ["failed"] => {
                self.retries += 1;
                self.fact(Step::Failed, None);
            }
            ["counted"] => self.retries += 1,
            _ => panic!("a story does not say {line:?}"),
        }
    }

    fn fact(&mut self, step: Step, who: Option<&str>) {
        let version = i32::try_from(self.facts.len() + 1).expect("a short story");
        let worker = who.map(str::to_owned).or_else(|| self.holder.clone());
        let run = worker.as_deref().filter(|worker| worker.starts_with('o')).map(execution);
        self.facts.push(Fact { version, step, worker, claimed_at: Some(1), run, retries: self.retries });
    }

    /// Forebay's own worker keeps no journal.
    fn note(&mut self, who: &str, what: WorkerStep) {
        if who.starts_with('o') {
            return;
        }
        let hold = Hold { job: JOB, worker: who.to_owned(), claimed_at: 1 };
        self.journal.push(Line { hold, retries: self.retries, what });
    }
}

fn execution(who: &str) -> Uuid {
    Uuid::from_u128(u128::from(who.bytes().map(u64::from).sum::<u64>()))
}

const WELL: [&str; 4] = ["h claims", "h requests completed", "completed", "h done completed"];

#[test]
fn a_job_that_ends_as_planned_breaks_nothing() {
    let good = verdict(0, &WELL);
    assert_eq!((good.ended_once, good.ended_by.http), (1, 1));
    assert_eq!(good, JobVerdict { ended_once: 1, ended_by: good.ended_by, ..JobVerdict::default() });
    // One of each, with a death in between: two failures, and the third try completes.
    let mixed = verdict(
        2,
        &[
            "s claims",
            "s requests failed",
            "failed",
            "s done failed",
            "retried",
            "h claims",
            "recovered",
            "o claims",
            "o tries failed",
            "failed",
            "retried",
            "h2 claims",
            "h2 requests completed",
            "completed",
            "h refused failed",
        ],
    );
    assert_eq!((mixed.ended_once, mixed.failures, mixed.recovered, mixed.late_refused), (1, 2, 1, 1));
    assert_eq!(
        mixed.ended_twice + mixed.lost + mixed.wrong_tries + mixed.double_runs + mixed.unasked + mixed.illegal,
        0
    );
}

#[test]
fn an_end_that_was_confirmed_to_two_workers_is_two_ends() {
    let late = ["h claims", "recovered", "s claims", "s requests completed", "completed", "s done completed"];
    assert_eq!(verdict(0, &[&late[..], &["h requests completed", "h refused completed"]].concat()).ended_twice, 0);
    assert_eq!(verdict(0, &[&late[..], &["h requests completed", "h done completed"]].concat()).ended_twice, 1);
    let again = verdict(0, &[&WELL[..], &["completed"]].concat());
    assert_eq!((again.ended_twice, again.illegal), (1, 1));
}

#[test]
fn one_in_plain_sql_may_end_what_another_in_plain_sql_holds_and_nobody_elses() {
    let findings_of = |first: &str, second: &str| {
        let lines = ["1 claims", "recovered", "2 claims", "1 requests completed", "completed", "1 done completed"];
        verdict(0, &lines.map(|line| line.replace('1', first).replace('2', second)).each_ref().map(String::as_str))
    };
    let both = findings_of("s1", "s2");
    assert_eq!((both.indistinct, both.unasked, both.ended_twice), (1, 0, 0));
    let other = findings_of("s1", "h2");
    assert_eq!((other.indistinct, other.unasked, other.ended_twice), (0, 1, 1));
    let ours = findings_of("s1", "o2");
    assert_eq!((ours.indistinct, ours.unasked, ours.ended_twice), (0, 1, 1));
}

#[test]
fn a_job_without_an_end_is_lost() {
    assert_eq!(verdict(0, &[]).lost, 1);
    assert_eq!(verdict(0, &["h claims"]).lost, 1);
    assert_eq!(
        verdict(99, &["h claims", "h requests failed", "failed", "h done failed"]).lost,
        1,
        "two tries are owed"
    );
    let plan = Plan { event: EVENT, kind: SHARED, fails: 0, work_ms: 1 };
    assert_eq!(judge(&JobEvidence { plans: &[plan], jobs: &[], journal: &[], tries: &[] }).lost, 1);
}

#[test]
fn a_job_fails_as_often_as_planned() {
    let fails = ["h claims", "h requests failed", "failed", "h done failed"];
    let again = [&fails[..], &["retried"]].concat();
    let always = [&again[..], &again, &fails].concat();
    let right = verdict(99, &always);
    assert_eq!((right.ended_once, right.wrong_tries, right.illegal), (1, 0, 0));
    assert_eq!(verdict(1, &[&again[..], &WELL].concat()).wrong_tries, 0);
    assert_eq!(verdict(0, &[&again[..], &WELL].concat()).wrong_tries, 1, "it was not to fail");
    assert_eq!(verdict(2, &[&again[..], &WELL].concat()).wrong_tries, 1, "it was to fail again");
    let fourth = verdict(99, &[&always[..], &["retried"], &fails].concat());
    assert_eq!((fourth.wrong_tries, fourth.illegal), (1, 1));
    let death = ["h claims", "counted", "recovered"];
    assert_eq!(verdict(0, &[&death[..], &WELL].concat()).wrong_tries, 1, "a death does not count as a failure");
}

#[test]
fn work_without_a_claim_is_a_double_run() {
    let mut story = [&WELL[..1], &["o tries completed"], &WELL[1..]].concat();
    assert_eq!(verdict(0, &story).double_runs, 1, "an execution that holds nothing");
    story.remove(1);
    assert_eq!(
        verdict(0, &[&["s refused completed"], &story[..]].concat()).double_runs,
        1,
        "a worker that holds nothing"
    );
}

#[test]
fn an_end_that_its_holder_did_not_ask_for_is_found() {
    assert_eq!(verdict(0, &["h claims", "completed"]).unasked, 1);
    assert_eq!(verdict(0, &["o claims", "completed"]).unasked, 1);
    assert_eq!(verdict(0, &["o claims", "o tries completed", "completed"]).unasked, 0);
    assert_eq!(verdict(0, &["h claims", "h requests failed", "completed"]).unasked, 1, "another end than it asked for");
}

#[test]
fn a_claim_of_what_is_held_is_illegal() {
    assert_eq!(verdict(0, &[&["s claims"], &WELL[..]].concat()).illegal, 1);
}
