//! How one execution is orchestrated: what happened on the left, what is ordered on the right.
//!
//!     each opens 3 by 2       a loop of three items, at most two at once
//!     each[0] ok              the first item
//!     child starts            a node's child runs
//!
//! Here are loops, children and stops in single steps. Not here: graphs (`run`), a whole tree with crashes (`tree`).

mod tree;

use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Delivery, Kind};
use kernel::ids::NodeKey;
use kernel::kind::for_each::OnItemError;
use kernel::orchestration::{Effect, Event, Orchestration, Row, Target};
use kernel::run::attempts::Fact;
use kernel::run::each;
use kernel::run::failure::{Class, Failure, Policy};
use kernel::run::node::{End, Status};
use kernel::run::{Outcome, Stop};

use crate::run::graph;
use crate::run::rows::execution;

fn check(text: &str, rows: &[(&str, Status)], events: &[&str], expected: Expect) {
    let plan = Arc::new(graph::plan(text));
    let rows = rows.iter().map(|(name, status)| Row {
        node: plan.index_of(&NodeKey::new(name).expect("a name")).expect("a node"),
        status: *status,
        label: None,
        attempt: 1,
    });
    let (mut machine, effects) = Orchestration::resume(Arc::clone(&plan), execution(), None, rows);
    let mut told = line(&plan, "start", &effects);
    for text in events {
        told += &line(&plan, text, &machine.apply(event(&plan, text)));
    }
    expected.assert_eq(&told);
}

fn event(plan: &Plan, text: &str) -> Event {
    let (name, what) = text.split_once(' ').unwrap_or((text, ""));
    let (name, attempt) =
        name.split_once('#').map_or((name, 1), |(name, said)| (name, said.parse().expect("a number")));
    let (name, index) = name.split_once('[').map_or((name, None), |(name, index)| (name, index.strip_suffix(']')));
    let node = || plan.index_of(&NodeKey::new(name).expect("a name")).expect("a node of the graph");
    let at =
        || index.map_or_else(|| Target::node(node()), |index| Target::item(node(), index.parse().expect("a number")));
    let failed = |class| Event::Of(at(), Fact::Failed { attempt, failure: Failure::new(class, "no") });
    match (name, what) {
        ("cancel", "") => Event::Stopped(Stop::Cancel),
        ("deadline", "") => Event::Stopped(Stop::Deadline),
        (_, "ok") => Event::Of(at(), Fact::Succeeded { attempt, took: None }),
        (_, "skips") => Event::Of(at(), Fact::Skipped { attempt }),
        (_, "fails") => failed(Class::ValidationError),
        (_, "times out") => failed(Class::Timeout),
        (_, "unknown") => failed(Class::ResultUnknown),
        (_, "due") => Event::Of(at(), Fact::RetryDue { attempt }),
        (_, "retries") => Event::Of(at(), Fact::RetryStored { attempt, wait: Duration::from_secs(1) }),
        (_, "settles") => Event::Of(at(), Fact::Settled { status: Status::Completed, label: None }),
        (_, "aborted") => Event::Of(at(), Fact::Aborted { begun: true }),
        (_, "starts") => Event::ChildStarted { at: at() },
        (_, opens) => opened(plan, node(), opens),
    }
}

/// `opens 3 by 2`, `opens 3 by 2 of children`, `opens 3 by 2 after 0 COMPLETED 1 RUNNING`.
fn opened(plan: &Plan, node: NodeIx, text: &str) -> Event {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| words[at].parse().expect("a number");
    let does = if text.contains("of children") { Kind::Workflow } else { Kind::HttpRequest };
    let shape = each::Shape {
        execution: execution(),
        key: plan.node(node).key.clone(),
        count: number(1),
        parallel: number(3),
        on_item_error: OnItemError::Fail,
        retry: Policy { max_attempts: 2, ..Policy::DEFAULT },
        delivery: Delivery::default(),
    };
    let stored = words.iter().position(|word| *word == "after").map_or(&[][..], |after| &words[after + 1..]);
    let items = stored.chunks(2).map(|pair| each::Stored {
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
            End::Completed { .. } => format!("complete {}", name(*at)),
            End::Failed { .. } => format!("fail {}", name(*at)),
            End::Skipped => format!("skip {}", name(*at)),
            End::Canceled => format!("cancel {}", name(*at)),
            End::Lost => format!("lose {}", name(*at)),
        },
        Effect::Perform { at, attempt: 1 } => format!("perform {}", name(*at)),
        Effect::Perform { at, attempt } => format!("perform {}#{attempt}", name(*at)),
        Effect::Wait { at, attempt, .. } => format!("wait for {}#{attempt}", name(*at)),
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
    let told: Vec<String> = effects.iter().map(tell).collect();
    format!("{event}: {}\n", if told.is_empty() { "-".to_owned() } else { told.join(", ") })
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
fn what_is_lost_of_an_item_is_lost_of_its_loop() {
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
fn what_an_earlier_owner_made_is_found_before_it_is_stopped() {
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
fn whoever_performs_a_node_may_keep_its_attempts_itself() {
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
fn a_loop_that_is_over_or_never_began_opens_no_more() {
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
