//! One list of scenarios, each with a literal expected trace. This file is part of the tests of every engine, and the
//! module `host` of those tests runs all scenarios. So a scenario that is added here runs on every engine.
//!
//! Differences that lie in the nature of an engine are not in a trace: ids, times, response headers.

#[path = "conformance/long.rs"]
mod long;

use expect_test::{Expect, expect};
use kernel::run::node::Status;
use serde_json::{Value, json};

use crate::host;
use crate::world::{Act, Scenario};

async fn check(document: Value, input: Value, expected: Expect) {
    host::check(Scenario { document, input, act: Act::Nothing }, expected).await;
}

async fn check_canceled(document: Value, node: &'static str, status: Status, expected: Expect) {
    let act = Act::CancelWhen { node, status };
    host::check(Scenario { document, input: Value::Null, act }, expected).await;
}

/// For graphs of which only the summary is worth reading.
async fn check_summed(document: Value, input: Value, expected: Expect) {
    host::check(Scenario { document, input, act: Act::Summed }, expected).await;
}

fn http(path: &str) -> Value {
    json!({ "url": format!("BASE{path}") })
}

fn log() -> Value {
    json!({ "message": "done" })
}

fn fast() -> Value {
    json!({ "max_attempts": 3, "initial": "10ms", "factor": 1, "max": "10ms" })
}

/// Generates this many nodes from their numbers.
fn many(count: usize, name: &str, node: impl Fn(usize) -> Value) -> serde_json::Map<String, Value> {
    (0..count).map(|n| (format!("{name}{n:03}"), node(n))).collect()
}

#[tokio::test]
async fn an_empty_graph_completes_at_once() {
    let document = json!({ "nodes": {} });
    check(
        document,
        json!(null),
        expect![[r#"
        ended COMPLETED
        audited execution.start
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
        a COMPLETED {"n":7}
        b COMPLETED {"body":{"path":"/ok"},"status":200}
        c COMPLETED {"data":null,"level":"info","message":"n is 7"}
        ended COMPLETED {"said":"n is 7","status":200}
        audited execution.start
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
        large COMPLETED took false {"branch":"false"}
        review SKIPPED
        after SKIPPED
        accept COMPLETED {"data":null,"level":"info","message":"accept"}
        end COMPLETED {"data":null,"level":"info","message":"end"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn two_conditions_beside_each_other_skip_in_order() {
    let document = json!({ "nodes": {
        "start": { "kind": "LOG", "with": log() },
        "one": { "kind": "CONDITION", "needs": "start", "with": { "if": "inputs.yes" } },
        "two": { "kind": "CONDITION", "needs": "start", "with": { "if": "!inputs.yes" } },
        "one_no": { "kind": "LOG", "needs": "one.false", "with": log() },
        "one_yes": { "kind": "LOG", "needs": "one.true", "with": log() },
        "two_no": { "kind": "LOG", "needs": "two.false", "with": log() },
        "two_yes": { "kind": "LOG", "needs": "two.true", "with": log() },
    } });
    check(
        document,
        json!({ "yes": true }),
        expect![[r#"
        start COMPLETED {"data":null,"level":"info","message":"done"}
        one COMPLETED took true {"branch":"true"}
        one_no SKIPPED
        two COMPLETED took false {"branch":"false"}
        two_yes SKIPPED
        one_yes COMPLETED {"data":null,"level":"info","message":"done"}
        two_no COMPLETED {"data":null,"level":"info","message":"done"}
        ended COMPLETED
        audited execution.start
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
        call COMPLETED at attempt 2 after HTTP_SERVER_ERROR {"body":{"path":"/flaky/1"},"status":200}
        after COMPLETED {"data":null,"level":"info","message":"done"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_call_that_keeps_failing_uses_its_attempts_up() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/status/503"), "retry": fast() },
        "after": { "kind": "LOG", "needs": "call", "with": log() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED at attempt 3 after HTTP_SERVER_ERROR, HTTP_SERVER_ERROR: HTTP_SERVER_ERROR
        after SKIPPED
        ended FAILED: HTTP_SERVER_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn too_many_requests_are_retried() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/status/429"), "retry": { "max_attempts": 2, "initial": "10ms" } },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED at attempt 2 after HTTP_CLIENT_ERROR: HTTP_CLIENT_ERROR
        ended FAILED: HTTP_CLIENT_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_was_not_expected_is_tried_again() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok", "expect_status": 201 }, "retry": fast() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED at attempt 3 after EXECUTION_ERROR, EXECUTION_ERROR: EXECUTION_ERROR
        ended FAILED: EXECUTION_ERROR
        audited execution.start
        audited queue_item.fail
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
        start COMPLETED {"data":null,"level":"info","message":"start"}
        beside COMPLETED {"data":null,"level":"info","message":"beside"}
        bad FAILED: HTTP_CLIENT_ERROR
        after SKIPPED
        cleanup COMPLETED {"data":null,"level":"info","message":"clean"}
        ended FAILED: HTTP_CLIENT_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn of_two_failures_the_first_is_reported() {
    let document = json!({ "nodes": {
        "start": { "kind": "LOG", "with": log() },
        "light": { "kind": "FAIL", "needs": "start", "with": { "message": "first" } },
        "call": { "kind": "HTTP_REQUEST", "needs": "start", "with": http("/status/400") },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        start COMPLETED {"data":null,"level":"info","message":"done"}
        light FAILED: CONTROL_FLOW_ERROR
        call FAILED: HTTP_CLIENT_ERROR
        ended FAILED: CONTROL_FLOW_ERROR
        audited execution.start
        audited queue_item.fail
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
        rescue COMPLETED {"data":null,"level":"info","message":"CONTROL_FLOW_ERROR"}
        ended COMPLETED {"why":"CONTROL_FLOW_ERROR"}
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_call_with_on_error_continue_continues_after_its_last_attempt() {
    let document = json!({ "nodes": {
        "risky": { "kind": "HTTP_REQUEST", "on_error": "continue", "with": http("/status/500"), "retry": fast() },
        "rescue": { "kind": "LOG", "needs": "risky.error", "with": { "message": "${{ nodes.risky.error.status }}" } },
    }, "outputs": { "why": "${{ nodes.rescue.output.message }}" } });
    check(
        document,
        json!(null),
        expect![[r#"
        risky FAILED at attempt 3 after HTTP_SERVER_ERROR, HTTP_SERVER_ERROR: HTTP_SERVER_ERROR
        rescue COMPLETED {"data":null,"level":"info","message":"500"}
        ended COMPLETED {"why":"500"}
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_fail_node_fails_the_execution() {
    let document = json!({ "nodes": {
        "stop": { "kind": "FAIL", "with": { "message": "no ${{ inputs.what }}" } },
        "after": { "kind": "LOG", "needs": "stop", "with": log() },
    } });
    check(
        document,
        json!({ "what": "way" }),
        expect![[r#"
        stop FAILED: CONTROL_FLOW_ERROR
        after SKIPPED
        ended FAILED: CONTROL_FLOW_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn every_light_kind_returns_its_output() {
    let document = json!({ "nodes": {
        "transform": { "kind": "TRANSFORM", "with": { "value": ["${{ inputs.n }}", { "deep": "${{ inputs.n }}!" }] } },
        "log": { "kind": "LOG", "needs": "transform",
                 "with": { "message": "n", "level": "warn", "data": "${{ nodes.transform.output }}" } },
        "branch": { "kind": "CONDITION", "needs": "log", "with": { "if": "inputs.n >= 3 && nodes.log.status == \"COMPLETED\"" } },
    } });
    check(
        document,
        json!({ "n": 3 }),
        expect![[r#"
        transform COMPLETED [3,{"deep":"3!"}]
        log COMPLETED {"data":[3,{"deep":"3!"}],"level":"warn","message":"n"}
        branch COMPLETED took true {"branch":"true"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn all_success_is_skipped_when_one_source_was() {
    let document = json!({ "nodes": {
        "ask": { "kind": "CONDITION", "with": { "if": "inputs.yes" } },
        "left": { "kind": "LOG", "needs": "ask.true", "with": log() },
        "right": { "kind": "LOG", "needs": "ask.false", "with": log() },
        "both": { "kind": "LOG", "needs": ["left", "right"], "with": log() },
    } });
    check(
        document,
        json!({ "yes": true }),
        expect![[r#"
        ask COMPLETED took true {"branch":"true"}
        right SKIPPED
        left COMPLETED {"data":null,"level":"info","message":"done"}
        both SKIPPED
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn any_success_waits_for_every_source_and_needs_one() {
    let document = json!({ "nodes": {
        "fails": { "kind": "HTTP_REQUEST", "on_error": "continue", "with": http("/status/404") },
        "works": { "kind": "HTTP_REQUEST", "needs": "fails.error", "with": http("/ok") },
        "start": { "kind": "LOG", "with": log() },
        "one": { "kind": "LOG", "needs": ["start", "works"], "when": "any_success", "with": log() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        start COMPLETED {"data":null,"level":"info","message":"done"}
        fails FAILED: HTTP_CLIENT_ERROR
        works COMPLETED {"body":{"path":"/ok"},"status":200}
        one COMPLETED {"data":null,"level":"info","message":"done"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn all_done_is_skipped_when_all_its_sources_were() {
    let document = json!({ "nodes": {
        "ask": { "kind": "CONDITION", "with": { "if": "inputs.yes" } },
        "left": { "kind": "LOG", "needs": "ask.false", "with": log() },
        "right": { "kind": "LOG", "needs": "ask.false", "with": log() },
        "end": { "kind": "LOG", "needs": ["left", "right"], "when": "all_done", "with": log() },
    } });
    check(
        document,
        json!({ "yes": true }),
        expect![[r#"
        ask COMPLETED took true {"branch":"true"}
        left SKIPPED
        right SKIPPED
        end SKIPPED
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_diamond_joins_when_the_later_branch_is_done() {
    let document = json!({ "nodes": {
        "top": { "kind": "TRANSFORM", "with": { "value": 1 } },
        "slow": { "kind": "HTTP_REQUEST", "needs": "top", "with": http("/late/600") },
        "quick": { "kind": "HTTP_REQUEST", "needs": "top", "with": http("/late/1") },
        "bottom": { "kind": "LOG", "needs": ["slow", "quick"],
                    "with": { "message": "${{ nodes.slow.output.status }} ${{ nodes.quick.output.status }}" } },
    }, "outputs": "${{ nodes.bottom.output.message }}" });
    check(
        document,
        json!(null),
        expect![[r#"
        top COMPLETED 1
        quick COMPLETED {"body":{"path":"/late/1"},"status":200}
        slow COMPLETED {"body":{"path":"/late/600"},"status":200}
        bottom COMPLETED {"data":null,"level":"info","message":"200 200"}
        ended COMPLETED "200 200"
        audited execution.start
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
        wait COMPLETED {}
        after COMPLETED {"data":null,"level":"info","message":"after"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_delay_until_a_time_that_is_past_is_over_at_once() {
    let document = json!({ "nodes": {
        "wait": { "kind": "DELAY", "with": { "until": "2020-01-31T09:00:00Z" } },
        "after": { "kind": "LOG", "needs": "wait", "with": log() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        wait COMPLETED {}
        after COMPLETED {"data":null,"level":"info","message":"done"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_delay_that_cannot_be_read_fails() {
    let document = json!({ "nodes": {
        "wait": { "kind": "DELAY", "with": { "for": "${{ inputs.long }}" } },
        "after": { "kind": "LOG", "needs": "wait", "with": log() },
    } });
    check(
        document,
        json!({ "long": "soon" }),
        expect![[r#"
        wait FAILED: VALIDATION_ERROR
        after SKIPPED
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_condition_that_is_neither_fails() {
    let document = json!({ "nodes": {
        "ask": { "kind": "CONDITION", "with": { "if": "inputs.word" } },
        "after": { "kind": "LOG", "needs": "ask.true", "with": log() },
    } });
    check(
        document,
        json!({ "word": "maybe" }),
        expect![[r#"
        ask FAILED: VALIDATION_ERROR
        after SKIPPED
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_invalid_template_fails_its_node_and_no_call_is_made() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": { "url": "${{ inputs.where }}" } },
        "after": { "kind": "LOG", "needs": "call", "with": log() },
    } });
    check(
        document,
        json!({ "where": 7 }),
        expect![[r#"
        call FAILED: VALIDATION_ERROR
        after SKIPPED
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn outputs_that_cannot_be_resolved_fail_the_execution() {
    let document = json!({
        "nodes": { "a": { "kind": "TRANSFORM", "with": { "value": 1 } } },
        "outputs": { "x": "${{ nodes.a.output > \"text\" }}" },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        a COMPLETED 1
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
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
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

/// No reader of JSON could read it again.
#[tokio::test]
async fn an_output_that_nests_too_deep_fails_its_node_and_its_error_edge_is_taken() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/deep"), "retry": fast(), "on_error": "continue" },
        "after": { "kind": "LOG", "needs": "call.error", "with": log() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED: UNSTORABLE_OUTPUT
        after COMPLETED {"data":null,"level":"info","message":"done"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn outputs_of_a_megabyte_pass_from_node_to_node() {
    let document = json!({ "nodes": {
        "big": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/big", "max_response_bytes": 2_000_000 } },
        "copy": { "kind": "TRANSFORM", "needs": "big", "with": { "value": "${{ nodes.big.output.body.text }}" } },
        "again": { "kind": "TRANSFORM", "needs": "copy", "with": { "value": { "same": "${{ nodes.copy.output }}" } } },
    }, "outputs": "${{ nodes.again.output.same }}" });
    check(document, json!(null), expect![[r#"
        big COMPLETED {"body":{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… 1000033 bytes
        copy COMPLETED "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… 1000002 bytes
        again COMPLETED {"same":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… 1000011 bytes
        ended COMPLETED "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… 1000002 bytes
        audited execution.start
    "#]]).await;
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
        audited execution.start
        audited queue_item.fail
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
        call FAILED at attempt 2 after TIMEOUT: TIMEOUT
        ended FAILED: TIMEOUT
        audited execution.start
        audited queue_item.fail
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
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_call_in_flight_is_broken_off_at_the_deadline() {
    let document = json!({ "timeout": "500ms", "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/slow") },
        "after": { "kind": "LOG", "needs": "call", "with": log() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        after CANCELED
        call CANCELED
        ended TIMED_OUT: DEADLINE_PASSED
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_node_that_waits_for_its_next_attempt_ends_at_the_deadline() {
    let document = json!({ "timeout": "1s", "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/status/500"), "retry": { "max_attempts": 3, "initial": "1h", "max": "1h" } },
        "after": { "kind": "LOG", "needs": "call", "with": log() },
    } });
    check(
        document,
        json!(null),
        expect![[r#"
        after CANCELED
        call CANCELED at attempt 2 after HTTP_SERVER_ERROR
        ended TIMED_OUT: DEADLINE_PASSED
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_wide_graph_of_light_nodes() {
    let document = {
        let mut nodes = many(150, "n", |_| json!({ "kind": "TRANSFORM", "needs": "go", "with": { "value": "x" } }));
        let all: Vec<String> = nodes.keys().cloned().collect();
        nodes.insert("go".to_owned(), json!({ "kind": "LOG", "with": log() }));
        nodes.insert(
            "end".to_owned(),
            json!({ "kind": "LOG", "needs": all, "with": { "message": "${{ nodes.n149.output }}" } }),
        );
        json!({ "nodes": nodes, "outputs": "${{ nodes.end.output.message }}" })
    };
    check_summed(
        document,
        json!(null),
        expect![[r#"
        151 × COMPLETED "x"
        1 × COMPLETED {"data":null,"level":"info","message":"done"}
        1 × COMPLETED {"data":null,"level":"info","message":"x"}
        1 × execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_deep_graph_of_light_nodes() {
    let document = {
        let nodes = many(120, "n", |n| match n {
            0 => json!({ "kind": "TRANSFORM", "with": { "value": "x" } }),
            n => json!({ "kind": "TRANSFORM", "needs": format!("n{:03}", n - 1),
                         "with": { "value": format!("${{{{ nodes.n{:03}.output }}}}", n - 1) } }),
        });
        json!({ "nodes": nodes, "outputs": "${{ nodes.n119.output }}" })
    };
    check_summed(
        document,
        json!(null),
        expect![[r#"
        121 × COMPLETED "x"
        1 × execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_deep_graph_of_calls() {
    let document = {
        let nodes = many(12, "n", |n| match n {
            0 => json!({ "kind": "HTTP_REQUEST", "with": http("/ok") }),
            n => json!({ "kind": "HTTP_REQUEST", "needs": format!("n{:03}", n - 1), "with": http("/ok") }),
        });
        json!({ "nodes": nodes, "outputs": "${{ nodes.n011.output.body.path }}" })
    };
    check(
        document,
        json!(null),
        expect![[r#"
        n000 COMPLETED {"body":{"path":"/ok"},"status":200}
        n001 COMPLETED {"body":{"path":"/ok"},"status":200}
        n002 COMPLETED {"body":{"path":"/ok"},"status":200}
        n003 COMPLETED {"body":{"path":"/ok"},"status":200}
        n004 COMPLETED {"body":{"path":"/ok"},"status":200}
        n005 COMPLETED {"body":{"path":"/ok"},"status":200}
        n006 COMPLETED {"body":{"path":"/ok"},"status":200}
        n007 COMPLETED {"body":{"path":"/ok"},"status":200}
        n008 COMPLETED {"body":{"path":"/ok"},"status":200}
        n009 COMPLETED {"body":{"path":"/ok"},"status":200}
        n010 COMPLETED {"body":{"path":"/ok"},"status":200}
        n011 COMPLETED {"body":{"path":"/ok"},"status":200}
        ended COMPLETED "/ok"
        audited execution.start
    "#]],
    )
    .await;
}

/// More calls at once than may be in flight. The joining node stands for the last one, because their order is random.
#[tokio::test]
async fn a_wide_graph_of_calls() {
    let mut nodes = many(80, "n", |_| json!({ "kind": "HTTP_REQUEST", "needs": "go", "with": http("/status/204") }));
    let all: Vec<String> = nodes.keys().cloned().collect();
    nodes.insert("go".to_owned(), json!({ "kind": "LOG", "with": log() }));
    nodes.insert(
        "end".to_owned(),
        json!({ "kind": "LOG", "needs": all, "with": { "message": "${{ nodes.n079.status }}" } }),
    );
    let document = json!({ "nodes": nodes, "outputs": "${{ nodes.end.output.message }}" });
    check_summed(
        document,
        Value::Null,
        expect![[r#"
        1 × COMPLETED "COMPLETED"
        80 × COMPLETED {"body":"","status":204}
        1 × COMPLETED {"data":null,"level":"info","message":"COMPLETED"}
        1 × COMPLETED {"data":null,"level":"info","message":"done"}
        1 × execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn canceled_before_it_starts() {
    let document = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": http("/ok") } } });
    let act = Act::CancelFirst;
    host::check(
        Scenario { document, input: Value::Null, act },
        expect![[r#"
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn canceled_during_a_call() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/slow") },
        "after": { "kind": "LOG", "needs": "call", "with": log() },
    } });
    check_canceled(
        document,
        "call",
        Status::Running,
        expect![[r#"
        after CANCELED
        call CANCELED
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn canceled_during_a_delay() {
    let document = json!({ "nodes": {
        "before": { "kind": "LOG", "with": log() },
        "wait": { "kind": "DELAY", "needs": "before", "with": { "for": "4s" } },
        "after": { "kind": "LOG", "needs": "wait", "with": log() },
    } });
    check_canceled(
        document,
        "wait",
        Status::Running,
        expect![[r#"
        before COMPLETED {"data":null,"level":"info","message":"done"}
        after CANCELED
        wait CANCELED
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn canceled_while_waiting_for_the_next_attempt() {
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": http("/status/500"), "retry": { "max_attempts": 3, "initial": "4s" } },
        "after": { "kind": "LOG", "needs": "call", "with": log() },
    } });
    check_canceled(
        document,
        "call",
        Status::Retrying,
        expect![[r#"
        after CANCELED
        call CANCELED at attempt 2 after HTTP_SERVER_ERROR
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn canceled_with_everything_under_way() {
    let document = json!({ "nodes": {
        "start": { "kind": "LOG", "with": log() },
        "call": { "kind": "HTTP_REQUEST", "needs": "start", "with": http("/slow") },
        "other": { "kind": "HTTP_REQUEST", "needs": "start", "with": http("/slow") },
        "wait": { "kind": "DELAY", "needs": "start", "with": { "for": "4s" } },
        "done": { "kind": "TRANSFORM", "needs": "start", "with": { "value": 1 } },
        "end": { "kind": "LOG", "needs": ["call", "wait", "done"], "when": "all_done", "with": log() },
    } });
    check_canceled(
        document,
        "other",
        Status::Running,
        expect![[r#"
        start COMPLETED {"data":null,"level":"info","message":"done"}
        done COMPLETED 1
        call CANCELED
        end CANCELED
        other CANCELED
        wait CANCELED
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn failed_nodes_run_again_and_the_others_keep_their_outputs() {
    let once = json!({ "max_attempts": 1 });
    let document = json!({
        "nodes": {
            "fetch": { "kind": "HTTP_REQUEST", "with": http("/ok") },
            "big": { "kind": "CONDITION", "needs": "fetch", "with": { "if": "nodes.fetch.output.status == 200" } },
            "yes": { "kind": "HTTP_REQUEST", "needs": "big.true", "retry": once, "with": http("/flaky/1") },
            "no": { "kind": "LOG", "needs": "big.false", "with": log() },
            "tell": { "kind": "LOG", "needs": "yes", "with": { "message": "${{ nodes.fetch.output.body.path }}" } },
        },
        "outputs": { "of": "${{ nodes.tell.output.message }}" },
    });
    let act = Act::Rerun { from: "failed" };
    host::check(
        Scenario { document, input: json!({}), act },
        expect![[r#"
        fetch COMPLETED {"body":{"path":"/ok"},"status":200}
        big COMPLETED took true {"branch":"true"}
        no SKIPPED
        yes FAILED: HTTP_SERVER_ERROR
        tell SKIPPED
        ended FAILED: HTTP_SERVER_ERROR
        audited execution.start
        audited queue_item.fail
        again
        fetch COMPLETED kept {"body":{"path":"/ok"},"status":200}
        big COMPLETED kept took true {"branch":"true"}
        no SKIPPED kept
        yes COMPLETED {"body":{"path":"/flaky/1"},"status":200}
        tell COMPLETED {"data":null,"level":"info","message":"/ok"}
        ended COMPLETED {"of":"/ok"}
        audited execution.rerun
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_run_from_a_node_repeats_it_and_what_follows() {
    let document = json!({
        "nodes": {
            "a": { "kind": "HTTP_REQUEST", "with": http("/ok") },
            "b": { "kind": "HTTP_REQUEST", "needs": "a", "with": http("/late/5") },
            "c": { "kind": "TRANSFORM", "needs": "b", "with": { "value": "${{ nodes.a.output.status }}" } },
        },
    });
    let act = Act::Rerun { from: "b" };
    host::check(
        Scenario { document, input: json!({}), act },
        expect![[r#"
        a COMPLETED {"body":{"path":"/ok"},"status":200}
        b COMPLETED {"body":{"path":"/late/5"},"status":200}
        c COMPLETED 200
        ended COMPLETED
        audited execution.start
        again
        a COMPLETED kept {"body":{"path":"/ok"},"status":200}
        b COMPLETED {"body":{"path":"/late/5"},"status":200}
        c COMPLETED 200
        ended COMPLETED
        audited execution.rerun
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_switch_takes_the_first_case_that_fits_or_its_default() {
    let switch = |value: &str| {
        json!({ "kind": "SWITCH", "with": {
            "value": value,
            "cases": [
                { "equals": "gold", "label": "fast" },
                { "equals": ["silver", 7, null], "label": "usual" },
                { "if": "inputs.total > 1000", "label": "review" },
            ],
            "default": "other",
        } })
    };
    let document = json!({
        "nodes": {
            "first": switch("${{ inputs.tier }}"),
            "second": switch("${{ inputs.none }}"),
            "third": switch("x"),
            "fast": { "kind": "LOG", "needs": "first.fast", "with": log() },
            "usual": { "kind": "LOG", "needs": ["first.usual", "second.usual"], "when": "any_success", "with": log() },
            "other": { "kind": "LOG", "needs": ["first.other", "third.other"], "when": "any_success", "with": log() },
        },
    });
    check(
        document,
        json!({ "tier": "gold", "total": 5 }),
        expect![[r#"
        first COMPLETED took fast {"branch":"fast"}
        second COMPLETED took usual {"branch":"usual"}
        third COMPLETED took other {"branch":"other"}
        fast COMPLETED {"data":null,"level":"info","message":"done"}
        usual COMPLETED {"data":null,"level":"info","message":"done"}
        other COMPLETED {"data":null,"level":"info","message":"done"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_switch_without_a_matching_case_or_default_fails() {
    let document = json!({
        "nodes": {
            "which": { "kind": "SWITCH", "on_error": "continue", "with": {
                "value": "${{ inputs.tier }}", "cases": [{ "equals": "gold", "label": "fast" }],
            } },
            "fast": { "kind": "LOG", "needs": "which.fast", "with": log() },
            "sorry": { "kind": "LOG", "needs": "which.error", "with": { "message": "${{ nodes.which.error.type }}" } },
        },
    });
    check(
        document,
        json!({ "tier": "tin" }),
        expect![[r#"
        which FAILED: CONTROL_FLOW_ERROR
        fast SKIPPED
        sorry COMPLETED {"data":null,"level":"info","message":"CONTROL_FLOW_ERROR"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_node_whose_condition_does_not_hold_is_skipped_whatever_its_kind() {
    let document = json!({
        "nodes": {
            "fetch": { "kind": "HTTP_REQUEST", "if": "inputs.go", "with": http("/ok") },
            "call": { "kind": "HTTP_REQUEST", "needs": "fetch", "if": "nodes.fetch.output.status != 200", "with": http("/ok") },
            "wait": { "kind": "DELAY", "needs": "fetch", "if": "${{ inputs.wait }}", "with": { "for": "1ms" } },
            "slept": { "kind": "DELAY", "needs": "fetch", "if": "inputs.go", "with": { "for": "1ms" } },
            "say": { "kind": "LOG", "needs": "fetch", "if": "nodes.fetch.output.status == 200", "with": log() },
            "hush": { "kind": "LOG", "needs": "say", "if": false, "with": log() },
            "after": { "kind": "LOG", "needs": "call", "with": log() },
            "done": { "kind": "LOG", "needs": ["call", "wait", "slept", "say"], "when": "all_done", "with": log() },
        },
    });
    check(
        document,
        json!({ "go": true, "wait": false }),
        expect![[r#"
        fetch COMPLETED {"body":{"path":"/ok"},"status":200}
        call SKIPPED
        after SKIPPED
        wait SKIPPED
        say COMPLETED {"data":null,"level":"info","message":"done"}
        hush SKIPPED
        slept COMPLETED {}
        done COMPLETED {"data":null,"level":"info","message":"done"}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_condition_that_has_no_truth_fails_its_node() {
    let document = json!({
        "nodes": {
            "call": { "kind": "HTTP_REQUEST", "if": "inputs.word", "with": http("/ok") },
            "after": { "kind": "LOG", "needs": "call", "with": log() },
        },
    });
    check(
        document,
        json!({ "word": "yes" }),
        expect![[r#"
        call FAILED: VALIDATION_ERROR
        after SKIPPED
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_event_is_emitted_once_a_node_and_in_the_order_of_its_stream() {
    let document = json!({
        "nodes": {
            "placed": { "kind": "EMIT_EVENT", "with": { "type": "order.placed", "data": { "n": "${{ inputs.n }}" } } },
            "paid": { "kind": "EMIT_EVENT", "needs": "placed",
                "with": { "type": "order.paid", "data": { "after": "${{ nodes.placed.output.stream_version }}" } } },
        },
    });
    check(
        document,
        json!({ "n": 7 }),
        expect![[r#"
        placed COMPLETED {"stream_version":1}
        paid COMPLETED {"stream_version":2}
        ended COMPLETED
        audited execution.start
        event order.placed execution 1 {"n": 7}
        event order.paid execution 2 {"after": 1}
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_invalid_event_is_not_emitted() {
    let document = json!({
        "nodes": {
            "bad": { "kind": "EMIT_EVENT", "with": { "type": "order.placed", "stream_id": "${{ inputs.id }}" } },
            "after": { "kind": "LOG", "needs": "bad", "with": log() },
        },
    });
    check(
        document,
        json!({ "id": "seven" }),
        expect![[r#"
        bad FAILED: VALIDATION_ERROR
        after SKIPPED
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn success_and_failure_consider_only_the_nodes_before() {
    let once = json!({ "max_attempts": 1 });
    let document = json!({
        "nodes": {
            "first": { "kind": "LOG", "with": log() },
            "bad": { "kind": "HTTP_REQUEST", "needs": "first", "retry": once, "with": http("/status/404") },
            "good": { "kind": "HTTP_REQUEST", "needs": "first", "with": http("/late/400") },
            "mend": { "kind": "LOG", "needs": "bad", "when": "all_done", "if": "failure()", "with": log() },
            "praise": { "kind": "LOG", "needs": "bad", "when": "all_done", "if": "success()", "with": log() },
            "alone": { "kind": "LOG", "needs": "good", "if": "success()", "with": { "message": "${{ failure() }}" } },
        },
    });
    check(
        document,
        json!({}),
        expect![[r#"
        first COMPLETED {"data":null,"level":"info","message":"done"}
        bad FAILED: HTTP_CLIENT_ERROR
        mend COMPLETED {"data":null,"level":"info","message":"done"}
        praise SKIPPED
        good COMPLETED {"body":{"path":"/late/400"},"status":200}
        alone COMPLETED {"data":null,"level":"info","message":"false"}
        ended FAILED: HTTP_CLIENT_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}
