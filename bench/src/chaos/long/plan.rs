//! Plans each execution before it starts: what it runs, what the harness does to it, and how it must end.
//!
//! Invariants
//! - An execution's end follows from its input and from what the harness does. Only timing, deaths and who performs the
//!   work are left to the machine.
//! - `n` names a plan: it is in the input of the root and of everything below it.
//!
//! Not here: the documents (`documents`), action it (`load`, `approver`, `worker`).

use serde_json::{Value, json};

use super::documents::{self as doc, Document};
use crate::random::Random;
use crate::receiver::value_of;

/// The choice in the default of a wait that timed out.
const NOBODYS: i64 = 0;
/// Added to a plan's number for the execution that it starts and does not wait for.
const DETACHED: i64 = 1_000_000;

/// One planned execution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) n: i64,
    /// Which workspace, by place.
    pub(super) tenant: usize,
    pub(super) runs: Document,
    pub(super) input: Value,
    pub(super) action: Action,
    pub(super) end: End,
}

/// What the harness does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Only starts it.
    Nothing,
    /// Another execution starts it.
    Elsewhere,
    /// Answers with a key. Early: before the wait opens.
    Answer { early: bool },
    /// Uses this many tokens, each this often, all at once.
    Race { tokens: usize, times: usize },
    /// Appends the event that it waits for, through the API or in a transaction that stays open for this long. Early:
    /// before it waits.
    Append { early: bool, open_ms: Option<u64> },
    /// Cancels it after this long.
    Cancel { after_ms: u64 },
}

/// How it must end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub(super) status: &'static str,
    /// The class of its failure.
    pub(super) class: Option<&'static str>,
    /// The expected output. A text `?name` stands for a value that only the run decides; the judge checks it by that
    /// name.
    pub(super) output: Option<Value>,
    /// How many executions are below it. None if that depends on when it was canceled.
    pub(super) below: Option<usize>,
}

/// The accepted answer's choice.
pub(super) const CHOICE: &str = "?choice";
/// The claim under which a task was completed.
pub(super) const CLAIM: &str = "?claim";

impl End {
    fn completed(output: Value, below: usize) -> End {
        End { status: "COMPLETED", class: None, output: Some(output), below: Some(below) }
    }

    fn failed(class: &'static str, below: usize) -> End {
        End { status: "FAILED", class: Some(class), output: None, below: Some(below) }
    }
}

/// The parameters of the random plans.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Workspaces by tier: FREE, PRO and ENTERPRISE, by place.
    pub(super) tenants: usize,
    /// Items of the one large loop.
    pub(super) big: i64,
    /// How long a task's worker may be silent, in ms.
    pub(super) lease_ms: u64,
}

/// Every plan, in the order of starting; the first is the large loop.
pub(super) fn draw(random: &mut Random, count: usize, bounds: Bounds) -> Vec<Plan> {
    let mut plans = vec![looped(0, tenant(random, bounds), big(random, bounds.big))];
    let mut n = 1;
    while plans.len() < count {
        plans.extend(one(random, n, bounds));
        n += 1;
    }
    plans
}

/// The tiers of `Setup::tenants`, in turn.
const TIERS: [&str; 5] = ["FREE", "PRO", "ENTERPRISE", "PRO", "FREE"];

/// A random workspace. Larger ones are chosen more often.
fn tenant(random: &mut Random, bounds: Bounds) -> usize {
    let wanted = match random.below(20) {
        0..3 => "FREE",
        3..10 => "PRO",
        _ => "ENTERPRISE",
    };
    let of_tier: Vec<usize> = (0..bounds.tenants).filter(|place| TIERS[place % TIERS.len()] == wanted).collect();
    of_tier.get(random.below(of_tier.len())).copied().unwrap_or_default()
}

fn one(random: &mut Random, n: i64, bounds: Bounds) -> Vec<Plan> {
    let at = tenant(random, bounds);
    match random.below(100) {
        0..20 => vec![family(random, n, at)],
        20..37 => vec![looped(n, at, small(random))],
        37..45 => vec![brood(random, n, at)],
        45..58 => vec![approval(random, n, at)],
        58..67 => vec![event(random, n, at)],
        67..75 => vec![idle(random, n, at)],
        75..90 => vec![task(random, n, at, bounds)],
        90..93 => vec![gang(random, n, at)],
        93..95 => detached(n, at),
        _ => vec![endless(random, n, at)],
    }
}

/// How a call goes: it succeeds, fails once, or always fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    Well,
    Late,
    Never,
}

impl Goes {
    /// One in `never` always fails, one in ten fails once.
    fn draw(random: &mut Random, never: u64) -> Goes {
        match (random.one_in(never), random.one_in(10)) {
            (true, _) => Goes::Never,
            (false, true) => Goes::Late,
            (false, false) => Goes::Well,
        }
    }

    fn item(self, n: i64, i: i64) -> Value {
        json!({ "n": n, "i": i, "flaky": self == Goes::Late, "refused": self == Goes::Never })
    }

    fn brings(self, n: i64, i: i64) -> Value {
        if self == Goes::Never { Value::Null } else { json!(value_of(n, i)) }
    }
}

/// Three children, the third with a child of its own, whose failure does not fail its parent.
fn family(random: &mut Random, n: i64, tenant: usize) -> Plan {
    let goes = [Goes::draw(random, 12), Goes::draw(random, 12), Goes::draw(random, 4)];
    let children: Vec<Value> = (1..).zip(goes).map(|(i, goes)| goes.item(n, i)).collect();
    let end = match goes[..2].contains(&Goes::Never) {
        true => End::failed("HTTP_CLIENT_ERROR", 4),
        false => End::completed(
            json!({
                "first": value_of(n, 1), "second": value_of(n, 2),
                "third": if goes[2] == Goes::Never { "FAILED" } else { "COMPLETED" },
                "third_value": goes[2].brings(n, 3), "end": value_of(n, 4),
            }),
            4,
        ),
    };
    let input = json!({ "n": n, "children": children });
    Plan { n, tenant, runs: doc::FAMILY, input, action: Action::Nothing, end }
}

struct Loop {
    goes: Vec<Goes>,
    parallel: u64,
    mode: &'static str,
}

fn small(random: &mut Random) -> Loop {
    let mode = ["fail", "continue", "collect"][random.below(3)];
    let count = random.between(0, 24);
    let mut goes: Vec<Goes> = (0..count).map(|_| Goes::draw(random, if mode == "fail" { 60 } else { 8 })).collect();
    // With several failures the machine would decide which comes first, so exactly one item fails.
    if mode == "fail"
        && let Some(first) = goes.iter().position(|goes| *goes == Goes::Never)
    {
        goes.fill(Goes::Well);
        goes[first] = Goes::Never;
    }
    Loop { goes, parallel: random.between(1, 8), mode }
}

fn big(random: &mut Random, count: i64) -> Loop {
    let goes = (0..count).map(|_| Goes::draw(random, 20)).collect();
    Loop { goes, parallel: 4, mode: "collect" }
}

fn looped(n: i64, tenant: usize, Loop { goes, parallel, mode }: Loop) -> Plan {
    let input = json!({ "n": n, "parallel": parallel, "mode": mode, "items": items(n, &goes) });
    let end = match mode == "fail" && goes.contains(&Goes::Never) {
        true => End::failed("HTTP_CLIENT_ERROR", 0),
        false => End::completed(collected(n, &goes, mode), 0),
    };
    Plan { n, tenant, runs: doc::LOOP, input, action: Action::Nothing, end }
}

/// A loop of children.
fn brood(random: &mut Random, n: i64, tenant: usize) -> Plan {
    let goes: Vec<Goes> = (0..random.between(1, 8)).map(|_| Goes::draw(random, 6)).collect();
    let input = json!({ "n": n, "items": items(n, &goes) });
    let end = End::completed(collected(n, &goes, "collect"), goes.len());
    Plan { n, tenant, runs: doc::BROOD, input, action: Action::Nothing, end }
}

fn items(n: i64, goes: &[Goes]) -> Vec<Value> {
    (1..).zip(goes).map(|(i, goes)| goes.item(n, i)).collect()
}

fn collected(n: i64, goes: &[Goes], mode: &str) -> Value {
    let values: Vec<Value> = (1..).zip(goes).map(|(i, goes)| goes.brings(n, i)).collect();
    let failed: Vec<usize> = (0..goes.len()).filter(|at| goes[*at] == Goes::Never).collect();
    let count = failed.len();
    json!({ "values": values, "failed": count, "errors": if mode == "collect" { failed } else { Vec::new() } })
}

/// Answered by somebody. One in three waits is in a child.
fn approval(random: &mut Random, n: i64, tenant: usize) -> Plan {
    let action = match random.below(3) {
        0 => Action::Race { tokens: random.below(3) + 1, times: random.below(3) + 1 },
        1 => Action::Answer { early: false },
        _ => Action::Answer { early: true },
    };
    // The child's id is not known before it exists.
    let below = usize::from(action != Action::Answer { early: true } && random.one_in(3));
    let output = json!({ "choice": CHOICE, "timed_out": false, "after": value_of(n, 2) });
    let runs = if below == 1 { doc::STEWARD } else { doc::APPROVAL };
    Plan { n, tenant, runs, input: json!({ "n": n }), action, end: End::completed(output, below) }
}

/// Waits for an event whose transaction is slow.
fn event(random: &mut Random, n: i64, tenant: usize) -> Plan {
    let open_ms = random.between(0, 1_500);
    let action = Action::Append { early: random.one_in(2), open_ms: (!random.one_in(3)).then_some(open_ms) };
    let output = json!({ "mark": value_of(n, 5), "after": value_of(n, 2) });
    Plan { n, tenant, runs: doc::EVENT, input: json!({ "n": n }), action, end: End::completed(output, 0) }
}

/// Nobody answers.
fn idle(random: &mut Random, n: i64, tenant: usize) -> Plan {
    let goes_on = random.one_in(2);
    let input = json!({ "n": n, "on_timeout": if goes_on { "continue" } else { "fail" } });
    let end = match goes_on {
        true => End::completed(json!({ "choice": NOBODYS, "timed_out": true, "after": value_of(n, 2) }), 0),
        false => End::failed("TIMEOUT", 0),
    };
    Plan { n, tenant, runs: doc::IDLE, input, action: Action::Nothing, end }
}

/// A task for a worker. It fails as often as its input says, in some cases finally, and sometimes takes longer than a
/// lease.
fn task(random: &mut Random, n: i64, tenant: usize, bounds: Bounds) -> Plan {
    let (fails, is_final) = match random.below(10) {
        0 => (99, false),
        1 => (1, true),
        2 => (1, false),
        _ => (0, false),
    };
    let ms = match random.one_in(2) {
        true => random.between(bounds.lease_ms, bounds.lease_ms * 3 / 2),
        false => random.between(5, 120),
    };
    let input = json!({ "n": n, "work": { "n": n, "i": 1, "fails": fails, "final": is_final, "ms": ms } });
    let end = match (fails, is_final) {
        (99, _) => End::failed("EXECUTION_ERROR", 0),
        (_, true) => End::failed("VALIDATION_ERROR", 0),
        _ => End::completed(json!({ "value": value_of(n, 1), "claim": CLAIM }), 0),
    };
    Plan { n, tenant, runs: doc::TASK, input, action: Action::Nothing, end }
}

/// A loop of tasks.
fn gang(random: &mut Random, n: i64, tenant: usize) -> Plan {
    let fails: Vec<bool> = (0..random.between(2, 8)).map(|_| random.one_in(6)).collect();
    let work = |(i, fails): (i64, &bool)| {
        let (times, ms) = (i64::from(*fails), 20 + 10 * i);
        json!({ "n": n, "i": i, "fails": times, "final": fails, "ms": ms })
    };
    let items: Vec<Value> = (1..).zip(&fails).map(work).collect();
    let values: Vec<Value> =
        (1..).zip(&fails).map(|(i, fails)| if *fails { Value::Null } else { json!(value_of(n, i)) }).collect();
    let errors: Vec<usize> = (0..fails.len()).filter(|at| fails[*at]).collect();
    let output = json!({ "values": values, "failed": errors.len(), "errors": errors });
    let input = json!({ "n": n, "items": items });
    Plan { n, tenant, runs: doc::GANG, input, action: Action::Nothing, end: End::completed(output, 0) }
}

/// An execution that starts another and does not wait for it.
fn detached(n: i64, tenant: usize) -> Vec<Plan> {
    let child = n + DETACHED;
    let input = Goes::Well.item(child, 1);
    let starts = json!({ "n": n, "child": input });
    let end = End::completed(json!({ "value": value_of(child, 1) }), 0);
    vec![
        Plan {
            n,
            tenant,
            runs: doc::DETACHES,
            input: starts,
            action: Action::Nothing,
            end: End::completed(json!({ "status": "COMPLETED" }), 0),
        },
        Plan { n: child, tenant, runs: doc::LEAF, input, action: Action::Elsewhere, end },
    ]
}

/// Never ends by itself: a child with a wait that nobody answers, beside a task.
fn endless(random: &mut Random, n: i64, tenant: usize) -> Plan {
    let ms = random.between(20, 2_000);
    let input = json!({ "n": n, "work": { "n": n, "i": 1, "fails": 0, "final": false, "ms": ms } });
    let action = Action::Cancel { after_ms: random.between(0, 3_000) };
    let end = End { status: "CANCELED", class: None, output: None, below: None };
    Plan { n, tenant, runs: doc::ENDLESS, input, action, end }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const BOUNDS: Bounds = Bounds { tenants: 15, big: 300, lease_ms: 1_000 };

    #[test]
    fn the_same_seed_makes_the_same_plans_and_every_number_is_there_once() {
        let plans = draw(&mut Random::new(7), 200, BOUNDS);
        assert_eq!(plans, draw(&mut Random::new(7), 200, BOUNDS));
        let numbers: BTreeSet<i64> = plans.iter().map(|plan| plan.n).collect();
        assert_eq!(numbers.len(), plans.len());
        assert!(plans.iter().all(|plan| plan.input["n"] == plan.n));
    }

    #[test]
    fn a_short_run_has_every_workflow_every_end_and_every_tier() {
        let plans = draw(&mut Random::new(1), 160, BOUNDS);
        let runs: BTreeSet<usize> = plans.iter().map(|plan| plan.runs.0).collect();
        assert_eq!(
            runs,
            BTreeSet::from([0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13]),
            "branch and sleeper are only below others"
        );
        let ends: BTreeSet<_> = plans.iter().map(|plan| (plan.end.status, plan.end.class)).collect();
        let failed = |class| ("FAILED", Some(class));
        let all = [
            ("CANCELED", None),
            ("COMPLETED", None),
            failed("EXECUTION_ERROR"),
            failed("HTTP_CLIENT_ERROR"),
            failed("TIMEOUT"),
            failed("VALIDATION_ERROR"),
        ];
        assert_eq!(ends, BTreeSet::from(all));
        let tiers: BTreeSet<&str> = plans.iter().map(|plan| TIERS[plan.tenant % TIERS.len()]).collect();
        assert_eq!(tiers.len(), 3);
        assert!(plans.iter().any(|plan| matches!(plan.action, Action::Race { tokens: 2.., times: 2.. })));
    }
}
