//! Judges a run of long-running work. A pure function of its inputs.
//!
//! Its sources: the executions' rows, the triggers' records of nodes and waits, the receiver's calls, the workers'
//! journals, and the replies to answers. The triggers run inside the service's own transactions.
//!
//! Invariants it judges
//! - Each plan has one root, which ended once, as planned, with the planned output and number of executions below it:
//!   `wrong`, `lost`.
//! - No call arrives, and no task is handed out, for a node that was recorded as completed. No node completes twice:
//!   `repeated_after_complete`. Requests that a paused process sends when it wakes are counted separately.
//! - A wait has one answer, and exactly one client got the reply that its answer was accepted: `token_reuse`. A task is
//!   ended only under the claim that holds it, and no other client gets the reply that it ended the task: `wrong`.
//!
//! Not here: limits, slots and owners (`chaos::judge`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use uuid::Uuid;

use super::super::zombies::Zombies;
use super::approver::{AnswerOutcome, GivenAnswer};
use super::facts::{Done, Execution, NodeRowKey, Step, WaitFact};
use super::plan::{CHOICE, CLAIM, Plan};
use super::worker::{Line, TaskResult, WorkerStep};
use crate::receiver::ReceivedRequest;

/// How many findings are printed one by one.
const MOST_FINDINGS: usize = 12;

/// Everything that a run left to be judged.
pub(super) struct LongEvidence<'a> {
    pub(super) plans: &'a [Plan],
    pub(super) executions: &'a [Execution],
    /// How often each execution ended, or was changed after its end.
    pub(super) ends: &'a HashMap<Uuid, usize>,
    pub(super) done: &'a Done,
    pub(super) waits: &'a [WaitFact],
    pub(super) calls: &'a [ReceivedRequest],
    pub(super) lines: &'a [Line],
    pub(super) given: &'a [GivenAnswer],
    pub(super) zombies: &'a Zombies<'a>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LongVerdict {
    pub(super) wrong: usize,
    pub(super) repeated_after_complete: usize,
    pub(super) token_reuse: usize,
    pub(super) lost: usize,
    /// Calls that paused processes made when they woke, of nodes that others had completed in the meantime.
    pub(super) zombie_sends: usize,
    /// Repeated calls, which are legal after a process died.
    pub(super) repeats: usize,
    /// Ends of tasks that were requested under an old claim, and refused.
    pub(super) late_refused: usize,
    /// Answers to a wait that already had one.
    pub(super) second_answers: usize,
    /// The first findings, in words.
    pub(super) findings: Vec<String>,
}

impl LongVerdict {
    fn find(&mut self, count: impl FnOnce(&mut LongVerdict) -> &mut usize, finding: impl FnOnce() -> String) {
        *count(self) += 1;
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding());
        }
    }
}

pub(super) fn judge(evidence: &LongEvidence<'_>) -> LongVerdict {
    let mut verdict = LongVerdict::default();
    plans(evidence, &mut verdict);
    ends(evidence, &mut verdict);
    calls(evidence, &mut verdict);
    waits(evidence, &mut verdict);
    tasks(evidence, &mut verdict);
    verdict
}

fn plans(evidence: &LongEvidence<'_>, verdict: &mut LongVerdict) {
    let mut roots: BTreeMap<i64, Vec<&Execution>> = BTreeMap::new();
    let mut below: HashMap<Uuid, usize> = HashMap::new();
    for execution in evidence.executions {
        match execution.is_root() {
            true => roots.entry(execution.n).or_default().push(execution),
            false => *below.entry(execution.root).or_default() += 1,
        }
        if !execution.ended {
            verdict.find(|v| &mut v.lost, || format!("execution {} of plan {} has no end", execution.id, execution.n));
        }
    }
    for plan in evidence.plans {
        match roots.remove(&plan.n).as_deref() {
            None => verdict.find(|v| &mut v.lost, || format!("plan {} has no execution", plan.n)),
            Some([root]) if root.ended => {
                let below = below.get(&root.id).copied().unwrap_or_default();
                if let Some(how) = differs(evidence, plan, root, below) {
                    verdict.find(|v| &mut v.wrong, || format!("{} of {}: {how}", root.id, plan.n));
                }
            }
            Some([_]) => {}
            Some(many) => verdict.find(|v| &mut v.wrong, || format!("plan {} has {} roots", plan.n, many.len())),
        }
    }
    for (n, roots) in roots {
        verdict.find(|v| &mut v.wrong, || format!("there is no plan {n}, but an execution of it: {}", roots[0].id));
    }
}

/// How an execution differs from its plan.
fn differs(evidence: &LongEvidence<'_>, plan: &Plan, root: &Execution, below: usize) -> Option<String> {
    let end = &plan.end;
    if root.status != end.status || root.class.as_deref() != end.class {
        return Some(format!("ended {} {:?}, expected {} {:?}", root.status, root.class, end.status, end.class));
    }
    if end.below.is_some_and(|planned| planned != below) {
        return Some(format!("{below} executions below it, expected {:?}", end.below));
    }
    let (Some(expected), found) = (&end.output, root.output.as_ref().unwrap_or(&Value::Null)) else { return None };
    let fields = expected.as_object().into_iter().flatten();
    let mut wrong = fields.filter(|(name, expected)| !fits(evidence, plan.n, root.id, expected, &found[name.as_str()]));
    wrong.next().map(|(name, expected)| format!("{name} is {}, expected {expected}", found[name.as_str()]))
}

fn fits(evidence: &LongEvidence<'_>, n: i64, root: Uuid, expected: &Value, found: &Value) -> bool {
    match expected.as_str() {
        Some(CHOICE) => {
            let may = |given: &&GivenAnswer| given.n == n && given.outcome != AnswerOutcome::Refused;
            let mut may: Vec<&GivenAnswer> = evidence.given.iter().filter(may).collect();
            if may.iter().any(|given| given.outcome == AnswerOutcome::Accepted) {
                may.retain(|given| given.outcome == AnswerOutcome::Accepted);
            }
            may.iter().any(|given| found.as_i64() == Some(given.choice))
        }
        Some(CLAIM) => {
            let claim: Option<Uuid> = found.as_str().and_then(|claim| claim.parse().ok());
            let requested =
                |line: &Line| Some(line.claim) == claim && line.what == WorkerStep::Requested(TaskResult::Completed);
            let handed =
                |fact: &WaitFact| fact.claim == claim && fact.step == Step::Handed && fact.node.execution == root;
            claim.is_some() && evidence.lines.iter().any(requested) && evidence.waits.iter().any(handed)
        }
        _ => expected == found,
    }
}

fn ends(evidence: &LongEvidence<'_>, verdict: &mut LongVerdict) {
    for (execution, times) in evidence.ends.iter().filter(|(_, times)| **times > 1) {
        verdict.find(|v| &mut v.wrong, || format!("{execution} ended {times} times"));
    }
}

fn calls(evidence: &LongEvidence<'_>, verdict: &mut LongVerdict) {
    let roots: HashMap<Uuid, Uuid> = evidence.executions.iter().map(|one| (one.id, one.root)).collect();
    for call in evidence.calls {
        let node = NodeRowKey { execution: call.execution, node: call.node.clone(), iteration: call.iteration };
        let Some((completed, _)) = evidence.done.get(&node).filter(|(at, _)| call.begin > *at) else { continue };
        let root = roots.get(&call.execution).copied().unwrap_or(call.execution);
        if evidence.zombies.sent(root, call.begin, call.end) {
            verdict.zombie_sends += 1;
            continue;
        }
        let late = call.begin - completed;
        verdict.find(|v| &mut v.repeated_after_complete, || format!("{node:?} was called {late} µs after its end"));
    }
    verdict.repeats = evidence.calls.iter().filter(|call| call.nth > 0).count();
    for (node, (_, times)) in evidence.done.iter().filter(|(_, (_, times))| *times > 1) {
        verdict.find(|v| &mut v.repeated_after_complete, || format!("{node:?} was completed {times} times"));
    }
    for fact in evidence.waits.iter().filter(|fact| fact.step == Step::Handed) {
        if evidence.done.get(&fact.node).is_some_and(|(at, _)| fact.at > *at) {
            verdict
                .find(|v| &mut v.repeated_after_complete, || format!("{:?} was handed out after its end", fact.node));
        }
    }
}

fn waits(evidence: &LongEvidence<'_>, verdict: &mut LongVerdict) {
    let mut accepted: BTreeMap<i64, usize> = BTreeMap::new();
    for given in evidence.given {
        match given.outcome {
            AnswerOutcome::Accepted => *accepted.entry(given.n).or_default() += 1,
            AnswerOutcome::Refused => verdict.second_answers += 1,
            AnswerOutcome::Unclear => {}
        }
    }
    let mut stored: BTreeMap<&NodeRowKey, usize> = BTreeMap::new();
    for fact in evidence.waits.iter().filter(|fact| !fact.is_task && fact.step == Step::Answered) {
        *stored.entry(&fact.node).or_default() += 1;
    }
    for (n, times) in accepted.into_iter().filter(|(_, times)| *times > 1) {
        verdict.find(|v| &mut v.token_reuse, || format!("plan {n}: {times} answers were confirmed as accepted"));
    }
    for (node, times) in stored.into_iter().filter(|(_, times)| *times > 1) {
        verdict.find(|v| &mut v.token_reuse, || format!("{node:?} was answered {times} times"));
    }
}

fn tasks(evidence: &LongEvidence<'_>, verdict: &mut LongVerdict) {
    // The claims under which each attempt was ended, according to the database.
    let mut ended: BTreeMap<(Uuid, i32), Vec<Option<Uuid>>> = BTreeMap::new();
    for fact in evidence.waits.iter().filter(|fact| fact.is_task && fact.step == Step::Answered) {
        ended.entry((fact.task, fact.attempt)).or_default().push(fact.claim);
    }
    for ((task, attempt), claims) in ended.iter().filter(|(_, claims)| claims.len() > 1) {
        verdict.find(|v| &mut v.wrong, || format!("attempt {attempt} at task {task} was ended by {claims:?}"));
    }
    for line in evidence.lines {
        let by = ended.get(&(line.task, line.attempt)).map(Vec::as_slice).unwrap_or_default();
        match line.what {
            WorkerStep::Done(_) if !by.contains(&Some(line.claim)) => {
                verdict.find(|v| &mut v.wrong, || format!("{line:?} ended a task that others held: {by:?}"));
            }
            WorkerStep::Refused(_) if !by.contains(&Some(line.claim)) => verdict.late_refused += 1,
            WorkerStep::Claimed | WorkerStep::Requested(_) | WorkerStep::Done(_) | WorkerStep::Refused(_) => {}
        }
    }
}
