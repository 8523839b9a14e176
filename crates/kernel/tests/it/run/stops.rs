//! Tests runs that are stopped early, and events that arrive too late.
//!
//! Not here: who may cancel, and when (`simulation`).

use std::sync::Arc;

use expect_test::{Expect, expect};

use super::{check, graph, straight};

/// Checks what a crash would change: what may be performed at most once is not performed again.
fn check_once(graph: &str, events: &[&str], expected: Expect) {
    expected.assert_eq(&straight(&Arc::new(graph::plan(graph)), events));
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
fn an_unexpected_abort_changes_nothing() {
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
fn a_late_event_changes_nothing() {
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
fn an_event_of_an_earlier_attempt_changes_nothing() {
    check(
        "a",
        &["a times out", "a due", "a#1 times out", "a#1 ok", "a#2 due", "a ok"],
        expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        a due: perform a (attempt 2)
        a#1 times out: -
        a#1 ok: -
        a#2 due: -
        a ok: finish completed
    "#]],
    );
    check(
        "a",
        &["a times out", "a due", "a times out", "a#2 due", "a due", "a ok"],
        expect![[r#"
        start: perform a
        a times out: wait for a (attempt 2)
        a due: perform a (attempt 2)
        a times out: wait for a (attempt 3)
        a#2 due: -
        a due: perform a (attempt 3)
        a ok: finish completed
    "#]],
    );
}

#[test]
fn a_stop_loses_what_may_be_performed_once_and_had_begun() {
    check_once(
        "a, b, c -> d; a: once; b: once; d: once",
        &["cancel", "a aborted", "b unbegun", "c aborted"],
        expect![[r#"
        start: perform a, perform b, perform c
        cancel: abort a, abort b, abort c, cancel d
        a aborted: lose a
        b unbegun: cancel b
        c aborted: cancel c, finish canceled
    "#]],
    );
    check_once(
        "a: once",
        &["deadline", "a aborted"],
        expect![[r#"
        start: perform a
        deadline: abort a
        a aborted: lose a, finish timed out
    "#]],
    );
}

#[test]
fn an_unknown_node_of_a_child_makes_its_node_unknown() {
    check(
        "a -> b; a -error-> c; a: continue, retry 3",
        &["a unknown"],
        expect![[r#"
        start: perform a
        a unknown: lose a, skip b, skip c, finish failed at a
    "#]],
    );
    check(
        "a -> b",
        &["cancel", "a unknown"],
        expect![[r#"
        start: perform a
        cancel: abort a, cancel b
        a unknown: lose a, finish canceled
    "#]],
    );
}
