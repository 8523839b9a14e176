//! One list of scenarios, each with a literal expected trace. Every one is driven twice: straight,
//! and by a row of processes that die after each fact, each taking up what the last one stored.

use expect_test::{Expect, expect};
use kernel::ids::ExecutionId;
use serde_json::{Value, json};

use crate::world::{Process, World};

async fn check(document: Value, input: Value, expected: Expect) {
    let straight = drive(&document, &input, false).await;
    expected.assert_eq(&straight);
    let interrupted = drive(&document, &input, true).await;
    assert_eq!(interrupted, straight, "a run that changes hands after every fact ends the same");
}

async fn drive(document: &Value, input: &Value, interrupt: bool) -> String {
    let world = World::new().await;
    let definition = world.publish(document).await;
    let id = world.enqueue(definition, input.clone()).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    if interrupt {
        interrupt_after_every_fact(&world, id, process).await;
    }
    let execution = world.ended(id).await;
    assert_eq!(world.leftovers().await, (0, 0), "no slot and no ticket is left");
    world.trace(&execution).await
}

async fn interrupt_after_every_fact(world: &World, id: ExecutionId, mut process: Process) {
    let mut seen = 0;
    loop {
        let execution = world.until(id, |execution| execution.status.is_terminal() || execution.last_seq > seen).await;
        if execution.status.is_terminal() {
            return;
        }
        seen = execution.last_seq;
        process = world.take_over(process).await;
    }
}

fn http(path: &str) -> Value {
    json!({ "url": format!("BASE{path}") })
}

fn fast() -> Value {
    json!({ "max_attempts": 3, "initial": "10ms", "factor": 1, "max": "10ms" })
}

#[tokio::test]
async fn an_empty_graph_completes_at_once() {
    check(
        json!({ "nodes": {} }),
        json!(null),
        expect![[r#"
        ended COMPLETED
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_chain_passes_values_on() {
    let document = json!({
        "nodes": {
            "a": { "kind": "TRANSFORM", "with": { "value": { "n": "${{ inputs.n }}" } } },
            "b": { "kind": "HTTP_REQUEST", "needs": "a", "with": http("/ok") },
            "c": { "kind": "LOG", "needs": "b", "with": { "message": "n is ${{ nodes.a.output.n }}" } },
        },
        "outputs": { "said": "${{ nodes.c.output.message }}", "status": "${{ nodes.b.output.status }}" },
    });
    check(
        document,
        json!({ "n": 7 }),
        expect![[r#"
        a COMPLETED
        b COMPLETED
        c COMPLETED
        ended COMPLETED {"said":"n is 7","status":200}
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_condition_picks_its_branch_and_skips_spread() {
    let document = json!({
        "nodes": {
            "large": { "kind": "CONDITION", "with": { "if": "inputs.total > 100" } },
            "review": { "kind": "LOG", "needs": "large.true", "with": { "message": "review" } },
            "after": { "kind": "LOG", "needs": "review", "with": { "message": "after" } },
            "accept": { "kind": "LOG", "needs": "large.false", "with": { "message": "accept" } },
            "end": { "kind": "LOG", "needs": ["after", "accept"], "when": "any_success", "with": { "message": "end" } },
        },
    });
    check(
        document,
        json!({ "total": 5 }),
        expect![[r#"
        large COMPLETED took false
        review SKIPPED
        after SKIPPED
        accept COMPLETED
        end COMPLETED
        ended COMPLETED
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_flaky_call_is_retried_and_its_attempts_are_kept() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/flaky/1"), "retry": fast() },
        "after": { "kind": "LOG", "needs": "call", "with": { "message": "done" } },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        call COMPLETED at attempt 2
        after COMPLETED
        ended COMPLETED
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_client_error_fails_at_once_and_stops_only_what_follows() {
    let document = json!({ "nodes": {
        "start": { "kind": "LOG", "with": { "message": "start" } },
        "bad": { "kind": "HTTP_REQUEST", "needs": "start", "with": http("/status/404"), "retry": fast() },
        "after": { "kind": "LOG", "needs": "bad", "with": { "message": "never" } },
        "beside": { "kind": "LOG", "needs": "start", "with": { "message": "beside" } },
        "cleanup": { "kind": "LOG", "needs": ["after", "bad"], "when": "all_done", "with": { "message": "clean" } },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        start COMPLETED
        beside COMPLETED
        bad FAILED: HTTP_CLIENT_ERROR
        after SKIPPED
        cleanup COMPLETED
        ended FAILED: HTTP_CLIENT_ERROR
    "#]],
    )
    .await;
}

#[tokio::test]
async fn on_error_continue_takes_the_error_edge() {
    let document = json!({ "nodes": {
        "risky": { "kind": "FAIL", "on_error": "continue", "with": { "message": "no" } },
        "usual": { "kind": "LOG", "needs": "risky", "with": { "message": "usual" } },
        "rescue": { "kind": "LOG", "needs": "risky.error", "with": { "message": "${{ nodes.risky.error.type }}" } },
    }, "outputs": { "why": "${{ nodes.rescue.output.message }}" } });
    check(
        document,
        json!(null),
        expect![[r#"
        risky FAILED: CONTROL_FLOW_ERROR
        usual SKIPPED
        rescue COMPLETED
        ended COMPLETED {"why":"CONTROL_FLOW_ERROR"}
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_delay_is_waited_for() {
    let document = json!({ "nodes": {
        "wait": { "kind": "DELAY", "with": { "for": "30ms" } },
        "after": { "kind": "LOG", "needs": "wait", "with": { "message": "after" } },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        wait COMPLETED
        after COMPLETED
        ended COMPLETED
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_output_that_no_database_can_hold_fails_its_node() {
    let document = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": http("/nul") } } });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED: UNSTORABLE_OUTPUT
        ended FAILED: UNSTORABLE_OUTPUT
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_forbidden_address_is_refused_and_not_retried() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": { "url": "http://169.254.169.254/latest" }, "retry": fast() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED: SECURITY_ERROR
        ended FAILED: SECURITY_ERROR
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_node_timeout_is_classified_and_retried() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/slow"), "timeout": "50ms",
                  "retry": { "max_attempts": 2, "initial": "10ms" } },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED at attempt 2: TIMEOUT
        ended FAILED: TIMEOUT
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_execution_that_runs_too_long_is_timed_out() {
    let document = json!({ "timeout": "100ms", "nodes": {
        "wait": { "kind": "DELAY", "with": { "for": "2s" } },
        "after": { "kind": "LOG", "needs": "wait", "with": { "message": "never" } },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        after CANCELED
        wait CANCELED
        ended TIMED_OUT: DEADLINE_PASSED
    "#]],
    )
    .await;
}
