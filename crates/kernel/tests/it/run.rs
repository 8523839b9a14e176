//! How a graph runs: what happened on the left, what is ordered on the right.
//!
//! Invariants
//! - Every scenario is driven twice. The second time the run is rebuilt from its stored rows after
//!   every single event; it must order the same, and end the same.
//!
//! Not here: generated graphs (`properties`), the notation (`graph`).

pub(crate) mod graph;
mod properties;
mod rows;

use std::sync::Arc;

use expect_test::{Expect, expect};
use kernel::plan::Plan;
use kernel::run::{Effect, Run};

use rows::{Rows, execution};

fn check(graph: &str, events: &[&str], expected: Expect) {
    let plan = Arc::new(graph::plan(graph));
    expected.assert_eq(&straight(&plan, events));
    assert_eq!(straight(&plan, events), rebuilt(&plan, events), "a run taken up again must go on the same way");
}

fn straight(plan: &Arc<Plan>, events: &[&str]) -> String {
    let (mut run, effects) = Run::start(Arc::clone(plan), execution());
    let mut told = line(plan, "start", &effects);
    let mut rows = Rows::default();
    rows.store(&effects);
    for text in events {
        let effects = run.apply(graph::event(plan, text, |node| rows.attempt(node)));
        rows.store(&effects);
        told += &line(plan, text, &effects);
    }
    told
}

fn rebuilt(plan: &Arc<Plan>, events: &[&str]) -> String {
    let mut rows = Rows::default();
    let (_, effects) = rows.resume(plan);
    let mut told = line(plan, "start", &effects);
    rows.store(&effects);
    let mut end = finish(&effects);
    for text in events {
        let (mut run, again) = rows.resume(plan);
        let expected = end.clone().map_or_else(|| rows.expected_again(), |end| vec![end]);
        assert_eq!(again, expected, "before {text:?}");
        let event = graph::event(plan, text, |node| rows.attempt(node));
        if end.is_none() {
            // Nobody can ask an ended execution to stop.
            rows.hear(&event);
        }
        let effects = run.apply(event);
        rows.store(&effects);
        told += &line(plan, text, &effects);
        end = end.or(finish(&effects));
    }
    told
}

fn finish(effects: &[Effect]) -> Option<Effect> {
    effects.iter().find(|effect| matches!(effect, Effect::Finish(_))).cloned()
}

fn line(plan: &Plan, event: &str, effects: &[Effect]) -> String {
    let told: Vec<String> = effects.iter().filter_map(|effect| graph::tell(plan, effect)).collect();
    format!("{event}: {}\n", if told.is_empty() { "-".to_owned() } else { told.join(", ") })
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
fn a_failed_node_stops_what_follows_it() {
    check(
        "a -> b -> c",
        &["a ok", "b fails"],
        expect![[r#"
        start: perform a
        a ok: perform b
        b fails: skip c, finish failed at b
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

#[test]
fn a_failure_leaves_independent_branches_running_and_fails_at_the_end() {
    check(
        "root -> a -> a2; root -> b -> b2 -> b3",
        &["root ok", "a fails", "b ok", "b2 ok", "b3 ok"],
        expect![[r#"
            start: perform root
            root ok: perform a, perform b
            a fails: skip a2
            b ok: perform b2
            b2 ok: perform b3
            b3 ok: finish failed at a
        "#]],
    );
}

#[test]
fn the_first_failure_is_the_one_told() {
    check(
        "root -> a, b, c",
        &["root ok", "c fails", "a fails", "b ok"],
        expect![[r#"
        start: perform root
        root ok: perform a, perform b, perform c
        c fails: -
        a fails: -
        b ok: finish failed at c
    "#]],
    );
}

#[test]
fn a_failure_that_continues_takes_its_error_edges_only() {
    check(
        "a -error-> mend -> z; a -> next; a: continue",
        &["a fails", "mend ok", "z ok"],
        expect![[r#"
        start: perform a
        a fails: perform mend, skip next
        mend ok: perform z
        z ok: finish completed
    "#]],
    );
    check(
        "a -error-> mend -> z; a -> next; a: continue",
        &["a ok", "next ok"],
        expect![[r#"
        start: perform a
        a ok: skip mend, perform next, skip z
        next ok: finish completed
    "#]],
    );
}

#[test]
fn a_failure_that_continues_does_not_fail_the_execution_even_without_an_error_edge() {
    check(
        "a -> b; a: continue",
        &["a fails"],
        expect![[r#"
        start: perform a
        a fails: skip b, finish completed
    "#]],
    );
}

#[test]
fn a_condition_that_continues_takes_neither_branch_when_it_fails() {
    check(
        "if -true-> x; if -false-> y; if -error-> e; if: continue",
        &["if fails", "e ok"],
        expect![[r#"
        start: perform if
        if fails: skip x, skip y, perform e
        e ok: finish completed
    "#]],
    );
}

#[test]
fn a_retry_waits_then_performs_the_next_attempt_and_gives_up_at_the_last() {
    check(
        "a -> b; a: retry 2",
        &["a times out", "a due", "a times out"],
        expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        a due: perform a (attempt 2)
        a times out: skip b, finish failed at a
    "#]],
    );
    check(
        "a -> b",
        &["a times out", "a due", "a times out", "a due", "a ok", "b ok"],
        expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        a due: perform a (attempt 2)
        a times out: wait for a (attempt 3)
        a due: perform a (attempt 3)
        a ok: perform b
        b ok: finish completed
    "#]],
    );
}

#[test]
fn what_is_not_worth_a_retry_fails_at_once_and_a_policy_of_one_attempt_never_waits() {
    check(
        "a: retry 5",
        &["a fails"],
        expect![[r#"
        start: perform a
        a fails: finish failed at a
    "#]],
    );
    check(
        "a: retry 1",
        &["a times out"],
        expect![[r#"
        start: perform a
        a times out: finish failed at a
    "#]],
    );
}

#[test]
fn error_edges_wait_until_the_last_attempt_failed() {
    check(
        "a -error-> mend; a: continue, retry 2",
        &["a times out", "a due", "a times out", "mend ok"],
        expect![[r#"
            start: perform a
            a times out: wait for a (attempt 2)
            a due: perform a (attempt 2)
            a times out: perform mend
            mend ok: finish completed
        "#]],
    );
}

#[test]
fn a_wait_keeps_the_run_open_while_others_finish() {
    check(
        "root -> a, b",
        &["root ok", "a times out", "b ok", "a due", "a ok"],
        expect![[r#"
        start: perform root
        root ok: perform a, perform b
        a times out: wait for a (attempt 2)
        b ok: -
        a due: perform a (attempt 2)
        a ok: finish completed
    "#]],
    );
}

#[test]
fn cancel_settles_what_has_not_started_and_waits_for_what_is_in_flight() {
    check(
        "a -> c; a, b -> d",
        &["b times out", "cancel", "a aborted"],
        expect![[r#"
        start: perform a, perform b
        b times out: wait for b (attempt 2)
        cancel: abort a, cancel c, cancel b, cancel d
        a aborted: cancel a, finish canceled
    "#]],
    );
    check(
        "a, b -> c",
        &["cancel", "b ok", "a aborted"],
        expect![[r#"
        start: perform a, perform b
        cancel: abort a, abort b, cancel c
        b ok: -
        a aborted: cancel a, finish canceled
    "#]],
    );
}

#[test]
fn cancel_with_nothing_in_flight_finishes_at_once() {
    check(
        "a -> b",
        &["a times out", "cancel"],
        expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        cancel: cancel a, cancel b, finish canceled
    "#]],
    );
}

#[test]
fn a_canceled_run_starts_nothing_more_whatever_its_nodes_still_say() {
    check(
        "a -> b",
        &["cancel", "a ok"],
        expect![[r#"
        start: perform a
        cancel: abort a, cancel b
        a ok: finish canceled
    "#]],
    );
    check(
        "a -> b",
        &["cancel", "a times out"],
        expect![[r#"
        start: perform a
        cancel: abort a, cancel b
        a times out: finish canceled
    "#]],
    );
    check(
        "a -error-> b; a: continue",
        &["cancel", "a fails"],
        expect![[r#"
        start: perform a
        cancel: abort a, cancel b
        a fails: finish canceled
    "#]],
    );
}

#[test]
fn a_deadline_stops_a_run_as_a_cancel_does() {
    check(
        "a -> b",
        &["deadline", "a aborted"],
        expect![[r#"
        start: perform a
        deadline: abort a, cancel b
        a aborted: cancel a, finish timed out
    "#]],
    );
    check(
        "a -> b",
        &["a times out", "deadline"],
        expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        deadline: cancel a, cancel b, finish timed out
    "#]],
    );
}

#[test]
fn the_first_reason_to_stop_stands() {
    check(
        "a",
        &["cancel", "deadline", "cancel", "a aborted"],
        expect![[r#"
        start: perform a
        cancel: abort a
        deadline: -
        cancel: -
        a aborted: cancel a, finish canceled
    "#]],
    );
    check(
        "a",
        &["deadline", "cancel", "a aborted"],
        expect![[r#"
        start: perform a
        deadline: abort a
        cancel: -
        a aborted: cancel a, finish timed out
    "#]],
    );
}

#[test]
fn an_abort_that_nobody_asked_for_changes_nothing() {
    check(
        "a",
        &["a aborted", "a ok"],
        expect![[r#"
        start: perform a
        a aborted: -
        a ok: finish completed
    "#]],
    );
}

#[test]
fn old_news_changes_nothing() {
    let twice = ["a ok", "a ok", "a fails", "a due", "b due", "c ok", "b ok", "c ok"];
    check(
        "a -> b -> c",
        &twice,
        expect![[r#"
        start: perform a
        a ok: perform b
        a ok: -
        a fails: -
        a due: -
        b due: -
        c ok: -
        b ok: perform c
        c ok: finish completed
    "#]],
    );
    check(
        "a",
        &["a ok", "a ok", "a fails", "cancel", "deadline", "a aborted", "a due"],
        expect![[r#"
        start: perform a
        a ok: finish completed
        a ok: -
        a fails: -
        cancel: -
        deadline: -
        a aborted: -
        a due: -
    "#]],
    );
}

#[test]
fn a_retry_that_comes_due_twice_is_performed_once() {
    check(
        "a",
        &["a times out", "a due", "a due", "a ok"],
        expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        a due: perform a (attempt 2)
        a due: -
        a ok: finish completed
    "#]],
    );
}

#[test]
fn news_of_an_earlier_attempt_is_old_news() {
    check("a", &["a times out", "a due", "a#1 times out", "a#1 ok", "a#2 due", "a ok"], expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        a due: perform a (attempt 2)
        a#1 times out: -
        a#1 ok: -
        a#2 due: -
        a ok: finish completed
    "#]]);
    check("a", &["a times out", "a due", "a times out", "a#2 due", "a due", "a ok"], expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        a due: perform a (attempt 2)
        a times out: wait for a (attempt 3)
        a#2 due: -
        a due: perform a (attempt 3)
        a ok: finish completed
    "#]]);
}
