//! How one execution is orchestrated: what happened on the left, what is ordered on the right.
//!
//!     each opens 3 by 2       a loop of three items, at most two at once
//!     each[0] ok              the first item
//!     child starts            a node's child runs
//!
//! Here are loops, children and stops in single steps. Not here: graphs (`run`), a whole tree with crashes (`tree`).

mod ahead;
mod tree;

use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Delivery, Kind};
use kernel::ids::NodeKey;
use kernel::kind::for_each::OnItemError;
use kernel::orchestration::{Effect, Event, NodeSnapshot, Orchestration, Target, TargetState};
use kernel::run::attempts::AttemptEvent;
use kernel::run::failure::{Class, Failure, Policy};
use kernel::run::item_loop;
use kernel::run::node::{NodeEnd, Status};
use kernel::run::{Outcome, Stop};

use crate::run::graph;
use crate::run::rows::execution;

fn check(text: &str, rows: &[(&str, Status)], events: &[&str], expected: Expect) {
    let plan = Arc::new(graph::plan(text));
    let rows = rows.iter().map(|(name, status)| NodeSnapshot {
        node: plan.index_of(&NodeKey::new(name).expect("a name")).expect("a node"),
        status: *status,
        label: None,
        attempt: 1,
    });
    let (mut machine, effects) = Orchestration::resume(Arc::clone(&plan), execution(), None, rows);
    let mut observed = line(&plan, "start", &effects);
    for text in events {
        observed += &line(&plan, text, &machine.apply(event(&plan, text)));
    }
    expected.assert_eq(&observed);
}

fn event(plan: &Plan, text: &str) -> Event {
    let (name, what) = text.split_once(' ').unwrap_or((text, ""));
    let (name, attempt) =
        name.split_once('#').map_or((name, 1), |(name, said)| (name, said.parse().expect("a number")));
    let (name, index) = name.split_once('[').map_or((name, None), |(name, index)| (name, index.strip_suffix(']')));
    let node = || plan.index_of(&NodeKey::new(name).expect("a name")).expect("a node of the graph");
    let at =
        || index.map_or_else(|| Target::node(node()), |index| Target::item(node(), index.parse().expect("a number")));
    let failed = |class| Event::Attempt(at(), AttemptEvent::Failed { attempt, failure: Failure::new(class, "no") });
    match (name, what) {
        ("cancel", "") => Event::Stopped(Stop::Cancel),
        ("deadline", "") => Event::Stopped(Stop::Deadline),
        (_, "ok") => Event::Attempt(at(), AttemptEvent::Succeeded { attempt, took: None }),
        (_, "skips") => Event::Attempt(at(), AttemptEvent::Skipped { attempt }),
        (_, "fails") => failed(Class::ValidationError),
        (_, "times out") => failed(Class::Timeout),
        (_, "unknown") => failed(Class::ResultUnknown),
        (_, "due") => Event::Due { at: at() },
        (_, "retries") => Event::Attempt(at(), AttemptEvent::RetryStored { attempt, wait: Duration::from_secs(1) }),
        (_, "settles") => Event::Attempt(at(), AttemptEvent::Settled { status: Status::Completed, label: None }),
        (_, "aborted") => Event::Attempt(at(), AttemptEvent::Aborted { begun: true }),
        (_, "starts") => Event::Entered { at: at(), state: TargetState::Child },
        (_, "delays") => Event::Entered { at: at(), state: TargetState::Delay },
        (_, "waits") => Event::Entered { at: at(), state: TargetState::Wait },
        (_, opens) => opened(plan, node(), opens),
    }
}

/// `opens 3 by 2`, `opens 3 by 2 of children`, `opens 3 by 2 after 0 COMPLETED 1 RUNNING`.
fn opened(plan: &Plan, node: NodeIx, text: &str) -> Event {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| words[at].parse().expect("a number");
    let does = if text.contains("of children") { Kind::Workflow } else { Kind::HttpRequest };
    let shape = item_loop::LoopSpec {
        execution: execution(),
        key: plan.node(node).key.clone(),
        count: number(1),
        parallel: number(3),
        on_item_error: OnItemError::Fail,
        retry: Policy { max_attempts: 2, ..Policy::DEFAULT },
        delivery: Delivery::default(),
    };
    let stored = words.iter().position(|word| *word == "after").map_or(&[][..], |after| &words[after + 1..]);
    let items = stored.chunks(2).map(|pair| item_loop::StoredItem {
        index: pair[0].parse().expect("a number"),
        status: Status::parse(pair[1]).expect("a status"),
        attempt: 1,
    });
    Event::LoopOpened { node, shape, does, items: items.collect() }
}

fn line(plan: &Plan, event: &str, effects: &[Effect]) -> String {
    let name = |at: Target| {
        let key = plan.node(at.node).key.as_str();
        at.index().map_or_else(|| key.to_owned(), |index| format!("{key}[{index}]"))
    };
    let tell = |effect: &Effect| match effect {
        Effect::Settle { at, end } => match end {
            NodeEnd::Completed { .. } => format!("complete {}", name(*at)),
            NodeEnd::Failed { .. } => format!("fail {}", name(*at)),
            NodeEnd::Skipped => format!("skip {}", name(*at)),
            NodeEnd::Canceled => format!("cancel {}", name(*at)),
            NodeEnd::Lost => format!("lose {}", name(*at)),
        },
        Effect::Perform { at, attempt: 1 } => format!("perform {}", name(*at)),
        Effect::Perform { at, attempt } => format!("perform {}#{attempt}", name(*at)),
        Effect::Wait { at, attempt, .. } => format!("wait for {}#{attempt}", name(*at)),
        Effect::CheckWait { at } => format!("check {}", name(*at)),
        Effect::Abort { at } => format!("abort {}", name(*at)),
        Effect::Find { at } => format!("find {}", name(*at)),
        Effect::StopChild { at, stop } => format!("stop the child of {} ({stop:?})", name(*at)),
        Effect::Collect { node, failed: None } => format!("collect {}", name(Target::node(*node))),
        Effect::Collect { node, failed: Some(index) } => {
            format!("tell why {} failed", name(Target::item(*node, *index)))
        }
        Effect::Finish(Outcome::Failed { node }) => format!("finish failed at {}", name(Target::node(*node))),
        Effect::Finish(outcome) => format!("finish {outcome:?}"),
    };
    let observed: Vec<String> = effects.iter().map(tell).collect();
    format!("{event}: {}\n", if observed.is_empty() { "-".to_owned() } else { observed.join(", ") })
}

#[test]
fn a_loop_is_a_node_whose_items_are_ordered_as_nodes_are() {
    check(
        "a -> each -> z; each: loop",
        &[],
        &["a ok", "each opens 3 by 2", "each[1] ok", "each[1] ok", "each[0] skips", "each[2] ok", "each ok", "z ok"],
        expect![[r#"
            start: perform a
            a ok: complete a, perform each
            each opens 3 by 2: perform each[0], perform each[1]
            each[1] ok: complete each[1], perform each[2]
            each[1] ok: -
            each[0] skips: skip each[0]
            each[2] ok: complete each[2], collect each
            each ok: complete each, perform z
            z ok: complete z, finish Completed
        "#]],
    );
}

#[test]
fn an_item_that_fails_is_tried_again_and_then_fails_its_loop() {
    check(
        "each; each: loop",
        &[],
        &["each opens 3 by 2", "each[0] times out", "each[0]#2 due", "each[0]#2 times out", "each[1] ok", "each fails"],
        expect![[r#"
            start: perform each
            each opens 3 by 2: perform each[0], perform each[1]
            each[0] times out: wait for each[0]#2
            each[0]#2 due: perform each[0]#2
            each[0]#2 times out: fail each[0]
            each[1] ok: complete each[1], tell why each[0] failed
            each fails: fail each, finish failed at each
        "#]],
    );
}

#[test]
fn a_due_time_means_what_its_target_does() {
    check(
        "retry, delay, wait, call, child -> z; child: child",
        &[],
        &[
            "retry times out",
            "retry due",
            "retry due",
            "delay delays",
            "delay due",
            "delay due",
            "wait waits",
            "wait due",
            "call due",
            "child starts",
            "child due",
            "cancel",
            "wait due",
            "wait aborted",
        ],
        expect![[r#"
            start: perform retry, perform delay, perform wait, perform call, perform child
            retry times out: wait for retry#2
            retry due: perform retry#2
            retry due: -
            delay delays: -
            delay due: complete delay
            delay due: -
            wait waits: -
            wait due: check wait
            call due: -
            child starts: -
            child due: -
            cancel: abort retry, abort wait, abort call, stop the child of child (Cancel), cancel z
            wait due: -
            wait aborted: cancel wait
        "#]],
    );
}

#[test]
fn a_delay_that_an_earlier_owner_stored_is_over_when_its_time_is_due() {
    check(
        "pause, call -> z; pause: delay",
        &[("pause", Status::Running), ("call", Status::Running)],
        &["call due", "pause due", "call ok"],
        expect![[r#"
            start: perform pause, perform call
            call due: -
            pause due: complete pause
            call ok: complete call, perform z
        "#]],
    );
}

#[test]
fn an_unknown_item_makes_its_loop_unknown() {
    check(
        "each -> z; each: loop",
        &[],
        &["each opens 2 by 2", "each[0] unknown", "each[1] ok"],
        expect![[r#"
        start: perform each
        each opens 2 by 2: perform each[0], perform each[1]
        each[0] unknown: lose each[0]
        each[1] ok: complete each[1], lose each, skip z, finish failed at each
    "#]],
    );
}

#[test]
fn a_stop_reaches_items_children_and_waits_and_ends_last() {
    check(
        "each, child, call, slow -> z; each: loop; child: child",
        &[],
        &[
            "each opens 4 by 3 of children",
            "each[0] starts",
            "each[1] ok",
            "child starts",
            "slow times out",
            "deadline",
            "call aborted",
            "child aborted",
            "each[0] aborted",
            "each[3] aborted",
            "each[2] aborted",
        ],
        expect![[r#"
            start: perform each, perform child, perform call, perform slow
            each opens 4 by 3 of children: perform each[0], perform each[1], perform each[2]
            each[0] starts: -
            each[1] ok: complete each[1], perform each[3]
            child starts: -
            slow times out: wait for slow#2
            deadline: stop the child of child (Deadline), abort call, cancel slow, cancel z, stop the child of each[0] (Deadline), abort each[2], abort each[3]
            call aborted: cancel call
            child aborted: cancel child
            each[0] aborted: cancel each[0]
            each[3] aborted: cancel each[3]
            each[2] aborted: cancel each[2], cancel each, finish TimedOut
        "#]],
    );
}

#[test]
fn children_of_an_earlier_owner_are_found_before_they_are_stopped() {
    let rows = [("each", Status::Running), ("child", Status::Running), ("call", Status::Running)];
    check(
        "each, child, call -> z; each: loop; child: child",
        &rows,
        &[
            "cancel",
            "call aborted",
            "each opens 3 by 2 of children after 0 COMPLETED 1 RUNNING",
            "each[1] aborted",
            "child starts",
            "child aborted",
        ],
        expect![[r#"
            start: perform each, perform child, perform call
            cancel: find each, find child, abort call, cancel z
            call aborted: cancel call
            each opens 3 by 2 of children after 0 COMPLETED 1 RUNNING: find each[1]
            each[1] aborted: cancel each[1], cancel each
            child starts: -
            child aborted: cancel child, finish Canceled
        "#]],
    );
}

#[test]
fn a_shell_may_count_the_attempts_itself() {
    check(
        "a -> each; each: loop",
        &[],
        &["a#2 retries", "a#2 due", "a settles", "each opens 1 by 1", "each[0]#2 retries", "cancel", "each[0] settles"],
        expect![[r#"
            start: perform a
            a#2 retries: wait for a#2
            a#2 due: perform a#2
            a settles: complete a, perform each
            each opens 1 by 1: perform each[0]
            each[0]#2 retries: wait for each[0]#2
            cancel: cancel each[0], cancel each, finish Canceled
            each[0] settles: -
        "#]],
    );
}

#[test]
fn an_ended_loop_does_not_open_again() {
    check(
        "a -> each; each: loop",
        &[],
        &["each opens 2 by 2", "a ok", "each opens 0 by 2", "each ok", "each opens 2 by 2"],
        expect![[r#"
            start: perform a
            each opens 2 by 2: -
            a ok: complete a, perform each
            each opens 0 by 2: collect each
            each ok: complete each, finish Completed
            each opens 2 by 2: -
        "#]],
    );
}
