//! Breaks each promise once in the evidence. The judge must report that promise, and nothing else.

use serde_json::json;

use super::super::super::log::{Entry, SlotChange as Happened};
use super::super::documents;
use super::super::plan::{Action, End};
use super::*;
use crate::service::Pause;

const RUN: Uuid = Uuid::from_u128(1);
const CHILD: Uuid = Uuid::from_u128(2);
const WORK: Uuid = Uuid::from_u128(3);
const P: Uuid = Uuid::from_u128(10);
const Q: Uuid = Uuid::from_u128(11);

/// A run of one plan: a root with a child, whose loop has one item, called once.
struct Story {
    plan: Plan,
    executions: Vec<Execution>,
    ends: HashMap<Uuid, usize>,
    done: Done,
    waits: Vec<WaitFact>,
    calls: Vec<ReceivedRequest>,
    lines: Vec<Line>,
    given: Vec<GivenAnswer>,
    pauses: Vec<Pause>,
}

fn node_row_key(node: &str, iteration: i32) -> NodeRowKey {
    NodeRowKey { execution: CHILD, node: node.to_owned(), iteration }
}

fn call(begin: i64, nth: u32) -> ReceivedRequest {
    let node = "loop".to_owned();
    ReceivedRequest { execution: CHILD, workspace: RUN, n: 7, node, iteration: 1, begin, end: Some(begin + 5), nth }
}

fn execution(id: Uuid) -> Execution {
    let (status, output) = ("COMPLETED".to_owned(), Some(json!({ "value": 1, "choice": 5 })));
    Execution { id, root: RUN, n: 7, status, output, class: None, ended: true }
}

fn wait_fact(step: Step, is_task: bool, claim: Option<u128>) -> WaitFact {
    let node = if is_task { "work" } else { "ask" };
    WaitFact {
        at: 50,
        step,
        is_task,
        task: WORK,
        node: node_row_key(node, 0),
        attempt: 1,
        claim: claim.map(Uuid::from_u128),
    }
}

fn given(choice: i64, outcome: AnswerOutcome) -> GivenAnswer {
    GivenAnswer { n: 7, choice, outcome }
}

fn line(claim: u128, what: WorkerStep) -> Line {
    Line { task: WORK, claim: Uuid::from_u128(claim), attempt: 1, what }
}

impl Story {
    fn good() -> Story {
        let output = Some(json!({ "value": 1, "choice": CHOICE }));
        let end = End { status: "COMPLETED", class: None, output, below: Some(1) };
        let input = json!({ "n": 7 });
        Story {
            plan: Plan { n: 7, tenant: 0, runs: documents::FAMILY, input, action: Action::Nothing, end },
            executions: vec![execution(RUN), execution(CHILD)],
            ends: HashMap::from([(RUN, 1), (CHILD, 1)]),
            done: HashMap::from([(node_row_key("loop", 1), (100, 1)), (node_row_key("work", 0), (100, 1))]),
            waits: vec![
                wait_fact(Step::Answered, false, None),
                wait_fact(Step::Handed, true, Some(1)),
                wait_fact(Step::Answered, true, Some(1)),
            ],
            calls: vec![call(60, 0)],
            lines: [
                WorkerStep::Claimed,
                WorkerStep::Requested(TaskResult::Completed),
                WorkerStep::Done(TaskResult::Completed),
            ]
            .map(|what| line(1, what))
            .into(),
            given: vec![given(5, AnswerOutcome::Accepted), given(6, AnswerOutcome::Refused)],
            pauses: Vec::new(),
        }
    }

    fn verdict(&self) -> LongVerdict {
        let processes = HashMap::from([(P, "p".to_owned()), (Q, "q".to_owned())]);
        let log = [
            Entry { at: 10, what: Happened::Begun { execution: RUN, owner: Some(P) } },
            Entry { at: 90, what: Happened::Owned { execution: RUN, owner: Some(Q) } },
        ];
        let verdict = judge(&LongEvidence {
            plans: std::slice::from_ref(&self.plan),
            executions: &self.executions,
            ends: &self.ends,
            done: &self.done,
            waits: &self.waits,
            calls: &self.calls,
            lines: &self.lines,
            given: &self.given,
            zombies: &Zombies::new(&log, &self.pauses, &processes),
        });
        LongVerdict { findings: Vec::new(), ..verdict }
    }
}

const GOOD: LongVerdict = LongVerdict {
    wrong: 0,
    repeated_after_complete: 0,
    token_reuse: 0,
    lost: 0,
    zombie_sends: 0,
    repeats: 0,
    late_refused: 0,
    second_answers: 1,
    findings: Vec::new(),
};

/// Checks the good story with one change.
fn check(otherwise: impl FnOnce(&mut Story), expected: LongVerdict) {
    let mut story = Story::good();
    otherwise(&mut story);
    assert_eq!(story.verdict(), expected);
}

#[test]
fn a_run_as_planned_breaks_nothing() {
    check(|_| {}, GOOD);
}

#[test]
fn an_end_that_was_not_planned_is_wrong() {
    let wrong = || LongVerdict { wrong: 1, ..GOOD };
    check(|story| story.executions[0].status = "FAILED".to_owned(), wrong());
    check(|story| story.executions[0].output = Some(json!({ "value": 2, "choice": 5 })), wrong());
    check(|story| story.plan.end.below = Some(2), wrong());
    check(|story| story.plan.end.class = Some("TIMEOUT"), wrong());
    check(|story| story.ends = HashMap::from([(CHILD, 2)]), wrong());
    check(|story| story.executions.push(Execution { id: P, root: P, ..execution(P) }), wrong());
    check(|story| story.executions.push(Execution { id: P, root: P, n: 8, ..execution(P) }), wrong());
}

#[test]
fn what_has_no_end_is_lost() {
    check(|story| story.executions[0].ended = false, LongVerdict { lost: 1, ..GOOD });
    check(|story| story.executions[1].ended = false, LongVerdict { lost: 1, ..GOOD });
    check(|story| story.executions.clear(), LongVerdict { lost: 1, ..GOOD });
}

#[test]
fn a_call_of_what_is_completed_is_a_repeat() {
    check(|story| story.calls.push(call(80, 1)), LongVerdict { repeats: 1, ..GOOD });
    let repeated = || LongVerdict { repeated_after_complete: 1, ..GOOD };
    check(|story| story.calls.push(call(101, 1)), LongVerdict { repeats: 1, ..repeated() });
    check(|story| story.done = HashMap::from([(node_row_key("loop", 1), (100, 2))]), repeated());
    check(|story| story.waits.push(WaitFact { at: 101, ..wait_fact(Step::Handed, true, Some(2)) }), repeated());
}

#[test]
fn what_a_paused_process_sends_when_it_wakes_is_no_repeat_but_what_its_successor_sends_is() {
    let paused = |name: &str| vec![Pause { name: name.to_owned(), from: 70, to: Some(120) }];
    let late = |story: &mut Story| story.calls.push(call(121, 1));
    let sent = LongVerdict { repeats: 1, zombie_sends: 1, ..GOOD };
    check(|story| (late(story), story.pauses = paused("p")).1, sent);
    let repeated = LongVerdict { repeats: 1, repeated_after_complete: 1, ..GOOD };
    check(|story| (late(story), story.pauses = paused("q")).1, repeated);
}

#[test]
fn a_wait_with_two_answers_is_found() {
    check(|story| story.given.push(given(6, AnswerOutcome::Accepted)), LongVerdict { token_reuse: 1, ..GOOD });
    check(|story| story.waits.push(wait_fact(Step::Answered, false, None)), LongVerdict { token_reuse: 1, ..GOOD });
    check(|story| story.given[0].choice = 9, LongVerdict { wrong: 1, ..GOOD });
    check(|story| story.given[0].outcome = AnswerOutcome::Unclear, GOOD);
    check(|story| story.given = vec![given(5, AnswerOutcome::Refused)], LongVerdict { wrong: 1, ..GOOD });
    // One answer was accepted. The other, whose reply was lost, was not.
    check(|story| story.given.extend([given(8, AnswerOutcome::Unclear)]), GOOD);
}

#[test]
fn a_task_is_ended_by_the_claim_that_holds_it() {
    check(
        |story| story.lines.push(line(2, WorkerStep::Refused(TaskResult::Completed))),
        LongVerdict { late_refused: 1, ..GOOD },
    );
    check(|story| story.lines.push(line(2, WorkerStep::Done(TaskResult::Completed))), LongVerdict { wrong: 1, ..GOOD });
    check(|story| story.waits.push(wait_fact(Step::Answered, true, Some(1))), LongVerdict { wrong: 1, ..GOOD });
}

#[test]
fn what_a_task_brought_was_asked_for_under_the_claim_that_it_names() {
    let task = |claim: u128| {
        move |story: &mut Story| {
            story.plan.end.output = Some(json!({ "claim": CLAIM }));
            story.executions[0].output = Some(json!({ "claim": Uuid::from_u128(claim) }));
            story.waits.iter_mut().for_each(|fact| fact.node.execution = RUN);
        }
    };
    check(task(1), GOOD);
    check(task(2), LongVerdict { wrong: 1, ..GOOD });
}
