//! Tests how a graph runs. In each line of a scenario, an event is on the left and the resulting effects are on the
//! right.
//!
//! Invariants
//! - Every scenario runs twice. The second time, the run is rebuilt from its stored rows after every event. It must
//!   have the same effects and the same end.
//!
//! Order, branches and joins are tested here. Not here: failures and retries (`failures`), cancels, deadlines and late
//! events (`stops`), generated graphs (`properties`), the notation (`graph`).

mod failures;
pub(crate) mod graph;
mod properties;
pub(crate) mod rows;
mod stops;

use std::sync::Arc;

use expect_test::{Expect, expect};
use kernel::definition::plan::Plan;
use kernel::run::attempts::AttemptEvent;
use kernel::run::node::Status;
use kernel::run::{Effect, Event, Run};

use rows::{Rows, execution};

fn check(graph: &str, events: &[&str], expected: Expect) {
    let plan = Arc::new(graph::plan(graph));
    expected.assert_eq(&straight(&plan, events));
    assert_eq!(straight(&plan, events), rebuilt(&plan, events), "a run taken up again must go on the same way");
}

fn straight(plan: &Arc<Plan>, events: &[&str]) -> String {
    let (mut run, effects) = Run::start(Arc::clone(plan), execution());
    let mut observed = line(plan, "start", &effects);
    let mut rows = Rows::default();
    rows.store(&effects);
    for text in events {
        let effects = run.apply(graph::event(plan, text, |node| rows.attempt(node)));
        rows.store(&effects);
        observed += &line(plan, text, &effects);
    }
    observed
}

fn rebuilt(plan: &Arc<Plan>, events: &[&str]) -> String {
    let mut rows = Rows::default();
    let (_, effects) = rows.resume(plan);
    let mut observed = line(plan, "start", &effects);
    rows.store(&effects);
    let mut end = finish(&effects);
    for text in events {
        let mut run = again(plan, &rows, end.as_ref());
        let event = graph::event(plan, text, |node| rows.attempt(node));
        if end.is_none() {
            // Nobody can ask an ended execution to stop.
            rows.receive(&event);
        }
        let effects = run.apply(event);
        rows.store(&effects);
        observed += &line(plan, text, &effects);
        end = end.or(finish(&effects));
    }
    again(plan, &rows, end.as_ref());
    observed
}

/// The run from its rows: it orders what is open once more, or says once more how it ended.
fn again(plan: &Arc<Plan>, rows: &Rows, end: Option<&Effect>) -> Run {
    let (run, effects) = rows.resume(plan);
    assert_eq!(effects, end.map_or_else(|| rows.expected_again(), |end| vec![end.clone()]));
    run
}

fn finish(effects: &[Effect]) -> Option<Effect> {
    effects.iter().find(|effect| matches!(effect, Effect::Finish(_))).cloned()
}

fn line(plan: &Plan, event: &str, effects: &[Effect]) -> String {
    let observed: Vec<String> = effects.iter().filter_map(|effect| graph::tell(plan, effect)).collect();
    format!("{event}: {}\n", if observed.is_empty() { "-".to_owned() } else { observed.join(", ") })
}

#[test]
fn a_chain_runs_in_order() {
    check(
        "a -> b -> c",
        &["a ok", "b ok", "c ok"],
        expect![[r#"
        start: perform a
        a ok: perform b
        b ok: perform c
        c ok: finish completed
    "#]],
    );
}

#[test]
fn a_diamond_splits_and_waits_for_both_sides() {
    check(
        "a -> b, c -> d",
        &["a ok", "c ok", "b ok", "d ok"],
        expect![[r#"
        start: perform a
        a ok: perform b, perform c
        c ok: -
        b ok: perform d
        d ok: finish completed
    "#]],
    );
}

#[test]
fn an_empty_graph_finishes_at_once() {
    check(
        "",
        &[],
        expect![[r#"
        start: finish completed
    "#]],
    );
}

#[test]
fn roots_start_together_and_a_node_starts_the_moment_its_own_predecessors_settled() {
    // b2 does not wait for a1, although a1 is one level higher: there are no waves.
    check(
        "a1 -> a2 -> z; b1 -> b2 -> b3 -> z",
        &["b1 ok", "b2 ok", "b3 ok", "a1 ok", "a2 ok", "z ok"],
        expect![[r#"
        start: perform a1, perform b1
        b1 ok: perform b2
        b2 ok: perform b3
        b3 ok: -
        a1 ok: perform a2
        a2 ok: perform z
        z ok: finish completed
    "#]],
    );
}

#[test]
fn a_condition_takes_one_branch_and_skips_spread_down_the_other() {
    check(
        "if -true-> x -> x2 -> x3; if -false-> y -> y2",
        &["if takes false", "y ok", "y2 ok"],
        expect![[r#"
        start: perform if
        if takes false: skip x, perform y, skip x2, skip x3
        y ok: perform y2
        y2 ok: finish completed
    "#]],
    );
}

#[test]
fn a_join_of_two_branches_is_skipped_unless_it_asks_for_any() {
    let events = ["if takes true", "x ok"];
    check(
        "if -true-> x -> z; if -false-> y -> z",
        &events,
        expect![[r#"
        start: perform if
        if takes true: perform x, skip y
        x ok: skip z, finish completed
    "#]],
    );
    let events = ["if takes true", "x ok", "z ok"];
    check(
        "if -true-> x -> z; if -false-> y -> z; z: any_success",
        &events,
        expect![[r#"
        start: perform if
        if takes true: perform x, skip y
        x ok: perform z
        z ok: finish completed
    "#]],
    );
}

#[test]
fn an_unlabelled_edge_is_taken_whatever_the_branch() {
    check(
        "if -true-> x; if -> log",
        &["if takes false", "log ok"],
        expect![[r#"
        start: perform if
        if takes false: skip x, perform log
        log ok: finish completed
    "#]],
    );
}

#[test]
fn any_success_waits_for_all_and_needs_one() {
    check(
        "a, b -> z; z: any_success",
        &["a ok", "b fails", "z ok"],
        expect![[r#"
        start: perform a, perform b
        a ok: -
        b fails: perform z
        z ok: finish failed at b
    "#]],
    );
    check(
        "a, b -> z; z: any_success",
        &["a fails", "b fails"],
        expect![[r#"
        start: perform a, perform b
        a fails: -
        b fails: skip z, finish failed at a
    "#]],
    );
}

#[test]
fn all_done_runs_after_failures_and_after_some_skips() {
    check(
        "a, b -> z; z: all_done",
        &["a fails", "b fails", "z ok"],
        expect![[r#"
        start: perform a, perform b
        a fails: -
        b fails: perform z
        z ok: finish failed at a
    "#]],
    );
    check(
        "if -true-> x -> z; if -false-> y -> z; z: all_done",
        &["if takes true", "x fails", "z ok"],
        expect![[r#"
        start: perform if
        if takes true: perform x, skip y
        x fails: perform z
        z ok: finish failed at x
    "#]],
    );
}

#[test]
fn all_done_is_skipped_only_if_all_its_sources_are() {
    check(
        "a -> b, c -> z; z: all_done",
        &["a fails"],
        expect![[r#"
        start: perform a
        a fails: skip b, skip c, skip z, finish failed at a
    "#]],
    );
    check(
        "a -> b -> z; a -> z; z: all_done",
        &["a fails", "z ok"],
        expect![[r#"
        start: perform a
        a fails: skip b, perform z
        z ok: finish failed at a
    "#]],
    );
}

/// For a shell that keeps attempts itself: it tells how a node settled, whatever came before.
#[test]
fn a_node_that_a_shell_settled_is_applied_once() {
    let plan = Arc::new(graph::plan("a -> b"));
    let (mut run, _) = Run::start(Arc::clone(&plan), execution());
    let failed = Event::Node(0, AttemptEvent::Settled { status: Status::Failed, label: None });
    let effects = run.apply(failed.clone());
    assert_eq!(line(&plan, "a failed", &effects), "a failed: skip b, finish failed at a\n");
    assert_eq!(run.apply(failed), []);
    let (mut run, _) = Run::start(Arc::clone(&plan), execution());
    assert_eq!(
        run.apply(Event::Node(1, AttemptEvent::Settled { status: Status::Skipped, label: None })),
        [],
        "it has not begun"
    );
    let effects = run.apply(Event::Node(0, AttemptEvent::Settled { status: Status::Completed, label: None }));
    assert_eq!(line(&plan, "a ok", &effects), "a ok: perform b\n");
}
