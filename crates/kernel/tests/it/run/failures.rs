//! Tests what a failing node does to its graph, and how the node is retried.
//!
//! Not here: which failures are retried (the tests of `kernel::run::failure`).

use expect_test::expect;

use super::check;

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
fn the_first_failure_is_reported() {
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
fn a_failure_without_retry_ends_the_node_immediately() {
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
