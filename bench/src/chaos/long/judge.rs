//! Judges a run of long-running work. Values in, values out.
//!
//! Witnesses: the executions' rows, what triggers noted of nodes and asks inside the service's own transactions, the
//! receiver's calls, the workers' journals, and what those who answered were told.
//!
//! Invariants it judges
//! - Each plan is one root that ended once, as planned, with what was planned, and with as many executions below it:
//!   `wrong`, `lost`.
//! - No call arrives, and no task is handed out, for a node that was recorded completed; none is completed twice:
//!   `repeated_after_complete`. What a paused process sends in the moment it wakes is counted apart.
//! - A wait has one answer, and one of those who gave it was told so: `token_reuse`. A task is ended under the claim
//!   that holds it, and nobody else is told that it ended it: `wrong`.
//!
//! Not here: limits, slots and owners (`chaos::judge`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use uuid::Uuid;

use super::super::zombies::Zombies;
use super::approver::{Given, Told};
use super::facts::{Asked, Done, Execution, Place, Step};
use super::plan::{CHOICE, CLAIM, Plan};
use super::worker::{How, Line, What};
use crate::receiver::Delivery;

/// How many findings are told one by one.
const TOLD: usize = 12;

/// All that a run left to be judged.
pub(super) struct Evidence<'a> {
    pub(super) plans: &'a [Plan],
    pub(super) executions: &'a [Execution],
    /// How often each execution ended, or was changed after its end.
    pub(super) ends: &'a HashMap<Uuid, usize>,
    pub(super) done: &'a Done,
    pub(super) asked: &'a [Asked],
    pub(super) calls: &'a [Delivery],
    pub(super) lines: &'a [Line],
    pub(super) given: &'a [Given],
    pub(super) zombies: &'a Zombies<'a>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) wrong: usize,
    pub(super) repeated_after_complete: usize,
    pub(super) token_reuse: usize,
    pub(super) lost: usize,
    /// Calls of paused processes in the moment they woke, of what others had completed meanwhile.
    pub(super) zombie_sends: usize,
    /// Calls that came again, which they may when a process dies.
    pub(super) repeats: usize,
    /// Ends of tasks that were asked for under a claim that was gone, and refused.
    pub(super) late_refused: usize,
    /// Answers to a wait that had one.
    pub(super) second_answers: usize,
    /// The first findings, in words.
    pub(super) told: Vec<String>,
}

impl Verdict {
    fn find(&mut self, count: impl FnOnce(&mut Verdict) -> &mut usize, finding: impl FnOnce() -> String) {
        *count(self) += 1;
        if self.told.len() < TOLD {
            self.told.push(finding());
        }
    }
}

pub(super) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    plans(evidence, &mut verdict);
    ends(evidence, &mut verdict);
    calls(evidence, &mut verdict);
    waits(evidence, &mut verdict);
    tasks(evidence, &mut verdict);
    verdict
}

fn plans(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let mut roots: BTreeMap<i64, Vec<&Execution>> = BTreeMap::new();
    let mut below: HashMap<Uuid, usize> = HashMap::new();
    for execution in evidence.executions {
        match execution.is_root() {
            true => roots.entry(execution.n).or_default().push(execution),
            false => *below.entry(execution.root).or_default() += 1,
        }
        if !execution.ended {
            verdict.find(|v| &mut v.lost, || format!("{} of {} has no end", execution.id, execution.n));
        }
    }
    for plan in evidence.plans {
        match roots.remove(&plan.n).as_deref() {
            None => verdict.find(|v| &mut v.lost, || format!("{} was never there", plan.n)),
            Some([root]) if root.ended => {
                let below = below.get(&root.id).copied().unwrap_or_default();
                if let Some(how) = differs(evidence, plan, root, below) {
                    verdict.find(|v| &mut v.wrong, || format!("{} of {}: {how}", root.id, plan.n));
                }
            }
            Some([_]) => {}
            Some(many) => verdict.find(|v| &mut v.wrong, || format!("{} is there {} times", plan.n, many.len())),
        }
    }
    for (n, roots) in roots {
        verdict.find(|v| &mut v.wrong, || format!("nobody planned {n}, which is there: {}", roots[0].id));
    }
}

/// How an execution differs from its plan.
fn differs(evidence: &Evidence<'_>, plan: &Plan, root: &Execution, below: usize) -> Option<String> {
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

fn fits(evidence: &Evidence<'_>, n: i64, root: Uuid, expected: &Value, found: &Value) -> bool {
    match expected.as_str() {
        Some(CHOICE) => {
            let may = |given: &&Given| given.n == n && given.told != Told::Refused;
            let mut may: Vec<&Given> = evidence.given.iter().filter(may).collect();
            if may.iter().any(|given| given.told == Told::Accepted) {
                may.retain(|given| given.told == Told::Accepted);
            }
            may.iter().any(|given| found.as_i64() == Some(given.choice))
        }
        Some(CLAIM) => {
            let claim: Option<Uuid> = found.as_str().and_then(|claim| claim.parse().ok());
            let asked = |line: &Line| Some(line.claim) == claim && line.what == What::Asks(How::Completed);
            let handed =
                |asked: &Asked| asked.claim == claim && asked.step == Step::Handed && asked.place.execution == root;
            claim.is_some() && evidence.lines.iter().any(asked) && evidence.asked.iter().any(handed)
        }
        _ => expected == found,
    }
}

fn ends(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    for (execution, times) in evidence.ends.iter().filter(|(_, times)| **times > 1) {
        verdict.find(|v| &mut v.wrong, || format!("{execution} ended {times} times"));
    }
}

fn calls(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let roots: HashMap<Uuid, Uuid> = evidence.executions.iter().map(|one| (one.id, one.root)).collect();
    for call in evidence.calls {
        let place = Place { execution: call.execution, node: call.node.clone(), iteration: call.iteration };
        let Some((completed, _)) = evidence.done.get(&place).filter(|(at, _)| call.begin > *at) else { continue };
        let root = roots.get(&call.execution).copied().unwrap_or(call.execution);
        if evidence.zombies.sent(root, call.begin, call.end) {
            verdict.zombie_sends += 1;
            continue;
        }
        let late = call.begin - completed;
        verdict.find(|v| &mut v.repeated_after_complete, || format!("{place:?} was called {late} µs after its end"));
    }
    verdict.repeats = evidence.calls.iter().filter(|call| call.nth > 0).count();
    for (place, (_, times)) in evidence.done.iter().filter(|(_, (_, times))| *times > 1) {
        verdict.find(|v| &mut v.repeated_after_complete, || format!("{place:?} was completed {times} times"));
    }
    for asked in evidence.asked.iter().filter(|asked| asked.step == Step::Handed) {
        if evidence.done.get(&asked.place).is_some_and(|(at, _)| asked.at > *at) {
            verdict
                .find(|v| &mut v.repeated_after_complete, || format!("{:?} was handed out after its end", asked.place));
        }
    }
}

fn waits(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let mut accepted: BTreeMap<i64, usize> = BTreeMap::new();
    for given in evidence.given {
        match given.told {
            Told::Accepted => *accepted.entry(given.n).or_default() += 1,
            Told::Refused => verdict.second_answers += 1,
            Told::Unclear => {}
        }
    }
    let mut stored: BTreeMap<&Place, usize> = BTreeMap::new();
    for asked in evidence.asked.iter().filter(|asked| !asked.is_task && asked.step == Step::Answered) {
        *stored.entry(&asked.place).or_default() += 1;
    }
    for (n, times) in accepted.into_iter().filter(|(_, times)| *times > 1) {
        verdict.find(|v| &mut v.token_reuse, || format!("{n}: {times} were told that their answer is accepted"));
    }
    for (place, times) in stored.into_iter().filter(|(_, times)| *times > 1) {
        verdict.find(|v| &mut v.token_reuse, || format!("{place:?} was answered {times} times"));
    }
}

fn tasks(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    // Under which claims each attempt was ended, as the database has it.
    let mut ended: BTreeMap<(Uuid, i32), Vec<Option<Uuid>>> = BTreeMap::new();
    for asked in evidence.asked.iter().filter(|asked| asked.is_task && asked.step == Step::Answered) {
        ended.entry((asked.task, asked.attempt)).or_default().push(asked.claim);
    }
    for ((task, attempt), claims) in ended.iter().filter(|(_, claims)| claims.len() > 1) {
        verdict.find(|v| &mut v.wrong, || format!("attempt {attempt} at task {task} was ended by {claims:?}"));
    }
    for line in evidence.lines {
        let by = ended.get(&(line.task, line.attempt)).map(Vec::as_slice).unwrap_or_default();
        match line.what {
            What::Done(_) if !by.contains(&Some(line.claim)) => {
                verdict.find(|v| &mut v.wrong, || format!("{line:?}, which is not its own: {by:?}"));
            }
            What::Refused(_) if !by.contains(&Some(line.claim)) => verdict.late_refused += 1,
            What::Claimed | What::Asks(_) | What::Done(_) | What::Refused(_) => {}
        }
    }
}
