//! Scenarios of long-running work: children, loops, waits and tasks. Each has a literal expected trace that holds for
//! both engines.
//!
//! The lines of a child are below its parent's: the node, iteration and attempt that started it, and how it ended.

use expect_test::{Expect, expect};
use kernel::run::node::Status;
use serde_json::{Value, json};

use super::{check, check_canceled, fast, http};
use crate::host;
use crate::world::{Act, Scenario};

async fn check_with(act: Act, document: Value, expected: Expect) {
    host::check(Scenario { document, input: Value::Null, act }, expected).await;
}

/// A workflow of one call.
fn calls(path: &str) -> Value {
    json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": http(path), "retry": { "max_attempts": 1 } } } })
}

/// A node that runs another node for each item.
fn each(items: Value, mode: &str, does: Value) -> Value {
    json!({ "kind": "FOR_EACH", "with": { "items": items, "parallel": 1, "on_item_error": mode, "do": does } })
}

fn child(workflow: &str) -> Value {
    json!({ "kind": "WORKFLOW", "with": { "workflow": workflow } })
}

#[tokio::test]
async fn a_child_runs_in_its_parents_slot_and_hands_its_output_up() {
    let document = json!({
        "workflows": { "double": {
            "inputs": { "n": { "type": "integer", "required": true } },
            "nodes": { "sum": { "kind": "TRANSFORM", "with": { "value": "${{ inputs.n + inputs.n }}" } } },
            "outputs": { "twice": "${{ nodes.sum.output }}" },
        } },
        "nodes": {
            "call": { "kind": "WORKFLOW", "with": { "workflow": "double", "input": { "n": "${{ inputs.n }}" } } },
            "say": { "kind": "LOG", "needs": "call", "with": { "message": "${{ nodes.call.output.output.twice }}" } },
        },
    });
    check(
        document,
        json!({ "n": 4 }),
        expect![[r#"
        call COMPLETED {"output":{"twice":8},"status":"COMPLETED"}
        say COMPLETED {"data":null,"level":"info","message":"8"}
        ended COMPLETED
          call 0.1 > sum COMPLETED 8
          call 0.1 > ended COMPLETED {"twice":8}
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_child_that_fails_fails_its_node_with_its_own_class() {
    let document = json!({
        "workflows": { "fails": calls("/status/400") },
        "nodes": { "call": child("fails"), "after": { "kind": "LOG", "needs": "call", "with": { "message": "no" } } },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED: HTTP_CLIENT_ERROR
        after SKIPPED
        ended FAILED: HTTP_CLIENT_ERROR
          call 0.1 > call FAILED: HTTP_CLIENT_ERROR
          call 0.1 > ended FAILED: HTTP_CLIENT_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_childs_failure_can_be_continued_from() {
    let document = {
        let mut call = child("fails");
        call["on_error"] = json!("continue");
        json!({
            "workflows": { "fails": { "nodes": { "no": { "kind": "FAIL", "with": { "message": "no" } } } } },
            "nodes": { "call": call, "rescue": { "kind": "LOG", "needs": "call.error", "with": { "message": "rescued" } } },
        })
    };
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED: CONTROL_FLOW_ERROR
        rescue COMPLETED {"data":null,"level":"info","message":"rescued"}
        ended COMPLETED
          call 0.1 > no FAILED: CONTROL_FLOW_ERROR
          call 0.1 > ended FAILED: CONTROL_FLOW_ERROR
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn each_attempt_at_a_node_has_a_child_of_its_own() {
    let document = {
        let mut call = child("flaky");
        call["retry"] = fast();
        json!({ "workflows": { "flaky": calls("/flaky/1") }, "nodes": { "call": call } })
    };
    check(
        document,
        json!(null),
        expect![[r#"
        call COMPLETED at attempt 2 after HTTP_SERVER_ERROR {"output":null,"status":"COMPLETED"}
        ended COMPLETED
          call 0.1 > call FAILED: HTTP_SERVER_ERROR
          call 0.1 > ended FAILED: HTTP_SERVER_ERROR
          call 0.2 > call COMPLETED {"body":{"path":"/flaky/1"},"status":200}
          call 0.2 > ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn children_have_children() {
    let document = json!({
        "workflows": { "below": calls("/ok"), "middle": { "nodes": { "down": child("below") } } },
        "nodes": { "top": child("middle") },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        top COMPLETED {"output":null,"status":"COMPLETED"}
        ended COMPLETED
          top 0.1 > down COMPLETED {"output":null,"status":"COMPLETED"}
          top 0.1 > ended COMPLETED
          top 0.1 >   down 0.1 > call COMPLETED {"body":{"path":"/ok"},"status":200}
          top 0.1 >   down 0.1 > ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_workflow_that_calls_itself_is_stopped_at_the_depth_that_is_allowed() {
    let document = json!({
        "workflows": { "again": { "nodes": { "down": child("again") } } },
        "nodes": { "top": child("again") },
    });
    check(document, json!(null), expect![[r#"
        top FAILED: VALIDATION_ERROR
        ended FAILED: VALIDATION_ERROR
          top 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 > ended FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 > ended FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 > ended FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > ended FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > ended FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > ended FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > ended FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > down FAILED: VALIDATION_ERROR
          top 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 >   down 0.1 > ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]]).await;
}

#[tokio::test]
async fn a_child_that_cannot_be_started_fails_its_node() {
    let document = {
        let mut unknown = child("nobody");
        unknown["on_error"] = json!("continue");
        let mut wrong = child("asks");
        wrong["needs"] = json!("unknown.error");
        json!({
            "workflows": { "asks": { "inputs": { "n": { "type": "integer", "required": true } }, "nodes": {} } },
            "nodes": { "unknown": unknown, "wrong": wrong },
        })
    };
    check(
        document,
        json!(null),
        expect![[r#"
        unknown FAILED: VALIDATION_ERROR
        wrong FAILED: VALIDATION_ERROR
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_childs_own_deadline_passes_and_its_node_fails() {
    let document = json!({
        "workflows": { "slow": { "timeout": "300ms", "nodes": { "wait": { "kind": "DELAY", "with": { "for": "30s" } } } } },
        "nodes": { "call": child("slow") },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        call FAILED: TIMEOUT
        ended FAILED: TIMEOUT
          call 0.1 > wait CANCELED
          call 0.1 > ended TIMED_OUT: DEADLINE_PASSED
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_parents_deadline_ends_its_child() {
    let document = json!({
        "timeout": "500ms",
        "workflows": { "slow": { "nodes": { "wait": { "kind": "DELAY", "with": { "for": "30s" } } } } },
        "nodes": { "call": child("slow") },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        call CANCELED
        ended TIMED_OUT: DEADLINE_PASSED
          call 0.1 > wait CANCELED
          call 0.1 > ended TIMED_OUT: DEADLINE_PASSED
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_cancel_travels_down() {
    let document = json!({
        "workflows": { "slow": calls("/slow") },
        "nodes": { "call": child("slow"), "after": { "kind": "LOG", "needs": "call", "with": { "message": "no" } } },
    });
    check_with(
        Act::CancelAbove { node: "call" },
        document,
        expect![[r#"
        after CANCELED
        call CANCELED
        ended CANCELED
          call 0.1 > call CANCELED
          call 0.1 > ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_child_is_canceled_on_its_own() {
    let document = json!({
        "workflows": { "slow": calls("/slow") },
        "nodes": { "call": child("slow") },
    });
    check_with(
        Act::CancelChild { node: "call" },
        document,
        expect![[r#"
        call FAILED: CONTROL_FLOW_ERROR
        ended FAILED: CONTROL_FLOW_ERROR
          call 0.1 > call CANCELED
          call 0.1 > ended CANCELED
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_loop_collects_what_its_items_produced_in_order() {
    let document = {
        let path = json!({ "url": "BASE/late/${{ 60 - item * 20 }}" });
        let mut all = each(json!([1, 2, 3]), "fail", json!({ "kind": "HTTP_REQUEST", "with": path }));
        all["with"]["parallel"] = json!(3);
        let paths = json!("${{ nodes.all.output.items.map(one, one.body.path) }}");
        json!({ "nodes": { "all": all }, "outputs": { "paths": paths } })
    };
    check(document, json!(null), expect![[r#"
        all COMPLETED {"count":3,"items":[{"body":{"path":"/late/40"},"status":200},{"body":{"path":"/late/20"},… 157 bytes
          [1] all COMPLETED {"body":{"path":"/late/40"},"status":200}
          [2] all COMPLETED {"body":{"path":"/late/20"},"status":200}
          [3] all COMPLETED {"body":{"path":"/late/0"},"status":200}
        ended COMPLETED {"paths":["/late/40","/late/20","/late/0"]}
        audited execution.start
    "#]]).await;
}

#[tokio::test]
async fn a_loop_over_nothing_completes() {
    let document = json!({
        "nodes": { "all": each(json!([]), "fail", json!({ "kind": "LOG", "with": { "message": "no" } })) },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        all COMPLETED {"count":0,"items":[],"failed":0}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_loop_of_light_nodes_sees_item_and_index() {
    let document = {
        let value = json!({ "value": "${{ string(index) + \":\" + item }}" });
        let mut all = each(json!(["a", "b", "c"]), "fail", json!({ "kind": "TRANSFORM", "with": value }));
        all["with"]["do"]["if"] = json!("item != \"b\"");
        json!({ "nodes": { "all": all } })
    };
    check(
        document,
        json!(null),
        expect![[r#"
        all COMPLETED {"count":3,"items":["0:a",null,"2:c"],"failed":0}
          [1] all COMPLETED "0:a"
          [2] all SKIPPED
          [3] all COMPLETED "2:c"
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_loop_that_fails_begins_nothing_more() {
    let document = json!({ "nodes": { "all": each(
        json!(["ok", "status/400", "ok"]), "fail",
        json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/${{ item }}" } }),
    ) } });
    check(
        document,
        json!(null),
        expect![[r#"
        all FAILED: HTTP_CLIENT_ERROR
          [1] all COMPLETED {"body":{"path":"/ok"},"status":200}
          [2] all FAILED: HTTP_CLIENT_ERROR
        ended FAILED: HTTP_CLIENT_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_loop_that_continues_leaves_null_for_what_failed() {
    let document = json!({ "nodes": { "all": each(
        json!(["status/400", "ok"]), "continue",
        json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/${{ item }}" } }),
    ) } });
    check(
        document,
        json!(null),
        expect![[r#"
        all COMPLETED {"count":2,"items":[null,{"body":{"path":"/ok"},"status":200}],"failed":1}
          [1] all FAILED: HTTP_CLIENT_ERROR
          [2] all COMPLETED {"body":{"path":"/ok"},"status":200}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_loop_that_collects_returns_the_errors() {
    let document = json!({
        "nodes": { "all": each(
            json!(["status/400", "ok"]), "collect",
            json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/${{ item }}" } }),
        ) },
        "outputs": { "class": "${{ nodes.all.output.errors[0].error.type }}", "failed": "${{ nodes.all.output.failed }}" },
    });
    check(document, json!(null), expect![[r#"
        all COMPLETED {"count":2,"items":[null,{"body":{"path":"/ok"},"status":200}],"errors":[{"error":{"node":… 223 bytes
          [1] all FAILED: HTTP_CLIENT_ERROR
          [2] all COMPLETED {"body":{"path":"/ok"},"status":200}
        ended COMPLETED {"class":"HTTP_CLIENT_ERROR","failed":1}
        audited execution.start
    "#]]).await;
}

#[tokio::test]
async fn an_item_has_attempts_of_its_own() {
    let document = json!({ "nodes": { "all": each(
        json!(["flaky/1/a", "flaky/2/b"]), "fail",
        json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/${{ item }}" }, "retry": fast() }),
    ) } });
    check(document, json!(null), expect![[r#"
        all COMPLETED {"count":2,"items":[{"body":{"path":"/flaky/1/a"},"status":200},{"body":{"path":"/flaky/2/… 120 bytes
          [1] all COMPLETED at attempt 2 after HTTP_SERVER_ERROR {"body":{"path":"/flaky/1/a"},"status":200}
          [2] all COMPLETED at attempt 3 after HTTP_SERVER_ERROR, HTTP_SERVER_ERROR {"body":{"path":"/flaky/2/b"},"status":200}
        ended COMPLETED
        audited execution.start
    "#]]).await;
}

#[tokio::test]
async fn a_loop_of_children() {
    let document = json!({
        "workflows": { "one": {
            "inputs": { "n": { "type": "integer", "required": true } },
            "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok/${{ inputs.n }}" } } },
            "outputs": { "path": "${{ nodes.call.output.body.path }}" },
        } },
        "nodes": { "all": each(
            json!([1, 2]), "fail",
            json!({ "kind": "WORKFLOW", "with": { "workflow": "one", "input": { "n": "${{ item }}" } } }),
        ) },
    });
    check(document, json!(null), expect![[r#"
        all COMPLETED {"count":2,"items":[{"output":{"path":"/ok/1"},"status":"COMPLETED"},{"output":{"path":"/o… 130 bytes
          [1] all COMPLETED {"output":{"path":"/ok/1"},"status":"COMPLETED"}
          [2] all COMPLETED {"output":{"path":"/ok/2"},"status":"COMPLETED"}
        ended COMPLETED
          all 1.1 > call COMPLETED {"body":{"path":"/ok/1"},"status":200}
          all 1.1 > ended COMPLETED {"path":"/ok/1"}
          all 2.1 > call COMPLETED {"body":{"path":"/ok/2"},"status":200}
          all 2.1 > ended COMPLETED {"path":"/ok/2"}
        audited execution.start
    "#]]).await;
}

#[tokio::test]
async fn a_loop_of_delays() {
    let document = json!({ "nodes": { "all": each(
        json!([1, 2]), "fail", json!({ "kind": "DELAY", "with": { "for": "30ms" } }),
    ) } });
    check(
        document,
        json!(null),
        expect![[r#"
        all COMPLETED {"count":2,"items":[{},{}],"failed":0}
          [1] all COMPLETED {}
          [2] all COMPLETED {}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_loop_over_a_value_that_is_no_list_fails() {
    let document = json!({ "nodes": { "all": each(
        json!("${{ inputs.word }}"), "fail", json!({ "kind": "LOG", "with": { "message": "no" } }),
    ) } });
    check(
        document,
        json!({ "word": "x" }),
        expect![[r#"
        all FAILED: VALIDATION_ERROR
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_cancel_stops_a_loop() {
    let document = json!({ "nodes": { "all": each(
        json!([1, 2]), "fail", json!({ "kind": "HTTP_REQUEST", "with": http("/slow") }),
    ) } });
    check_canceled(
        document,
        "all",
        Status::Running,
        expect![[r#"
        all CANCELED
          [1] all CANCELED
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_wait_is_answered() {
    let document = json!({
        "nodes": {
            "ask": { "kind": "WAIT_FOR_EVENT", "with": { "data": { "yes": { "type": "boolean" } } } },
            "say": { "kind": "LOG", "needs": "ask", "with": { "message": "${{ nodes.ask.output.data.yes }}" } },
        },
    });
    check_with(
        Act::Answer { node: "ask", data: r#"{"yes":true}"#, early: false },
        document,
        expect![[r#"
        ask COMPLETED {"timed_out":false,"by":"key:test","data":{"yes":true}}
        say COMPLETED {"data":null,"level":"info","message":"true"}
        ended COMPLETED
        audited execution.start
        audited wait.answer
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_comes_early_waits_for_its_node() {
    let document = json!({
        "nodes": {
            "ask": { "kind": "WAIT_FOR_EVENT", "with": { "data": { "yes": { "type": "boolean" } } } },
            "say": { "kind": "LOG", "needs": "ask", "with": { "message": "${{ nodes.ask.output.data.yes }}" } },
        },
    });
    check_with(
        Act::Answer { node: "ask", data: r#"{"yes":true}"#, early: true },
        document,
        expect![[r#"
        ask COMPLETED {"timed_out":false,"by":"key:test","data":{"yes":true}}
        say COMPLETED {"data":null,"level":"info","message":"true"}
        ended COMPLETED
        audited execution.start
        audited wait.answer
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_wait_that_expires_continues_with_its_default() {
    let document = json!({
        "nodes": { "ask": { "kind": "WAIT_FOR_EVENT", "timeout": "200ms", "with": { "on_timeout": "continue", "default": { "yes": false } } } },
        "outputs": { "yes": "${{ nodes.ask.output.data.yes }}" },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        ask COMPLETED {"data":{"yes":false},"timed_out":true}
        ended COMPLETED {"yes":false}
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_wait_that_expires_fails() {
    let document = json!({
        "nodes": { "ask": { "kind": "WAIT_FOR_EVENT", "timeout": "200ms", "with": {} } },
    });
    check(
        document,
        json!(null),
        expect![[r#"
        ask FAILED: TIMEOUT
        ended FAILED: TIMEOUT
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_wait_is_canceled() {
    let document = json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT", "with": {} } } });
    check_canceled(
        document,
        "ask",
        Status::Running,
        expect![[r#"
        ask CANCELED
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_task_is_done_by_a_worker() {
    let document = json!({
        "nodes": { "work": { "kind": "TASK", "with": { "queue": "q", "input": { "n": 7 } }, "retry": fast() } },
    });
    check_with(
        Act::Work { queue: "q", ends: &["ok"] },
        document,
        expect![[r#"
        work COMPLETED {"did":{"n":7}}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_task_that_failed_is_offered_again() {
    let document = json!({
        "nodes": { "work": { "kind": "TASK", "with": { "queue": "q", "input": { "n": 7 } }, "retry": fast() } },
    });
    check_with(
        Act::Work { queue: "q", ends: &["broken", "ok"] },
        document,
        expect![[r#"
        work COMPLETED at attempt 2 after EXECUTION_ERROR {"did":{"n":7}}
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_task_that_cannot_be_done_is_not_offered_again() {
    let document = json!({
        "nodes": { "work": { "kind": "TASK", "with": { "queue": "q", "input": { "n": 7 } }, "retry": fast() } },
    });
    check_with(
        Act::Work { queue: "q", ends: &["never"] },
        document,
        expect![[r#"
        work FAILED: VALIDATION_ERROR
        ended FAILED: VALIDATION_ERROR
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_loop_of_tasks() {
    let document = json!({ "nodes": { "all": each(
        json!([1, 2]), "continue",
        json!({ "kind": "TASK", "with": { "queue": "q", "input": "${{ item }}" }, "retry": { "max_attempts": 1 } }),
    ) } });
    check_with(
        Act::Work { queue: "q", ends: &["ok", "broken"] },
        document,
        expect![[r#"
        all COMPLETED {"count":2,"items":[{"did":1},null],"failed":1}
          [1] all COMPLETED {"did":1}
          [2] all FAILED: EXECUTION_ERROR
        ended COMPLETED
        audited execution.start
    "#]],
    )
    .await;
}

/// A call that may be made at most once and never gets a response.
fn once() -> Value {
    json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": http("/slow") })
}

#[tokio::test]
async fn an_at_most_once_call_is_unknown_when_it_is_canceled_in_flight() {
    let after = json!({ "kind": "LOG", "needs": "call", "with": { "message": "no" } });
    let document = json!({ "nodes": { "call": once(), "after": after } });
    check_canceled(
        document,
        "call",
        Status::Running,
        expect![[r#"
        call UNKNOWN: RESULT_UNKNOWN
        after CANCELED
        ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_at_most_once_call_is_unknown_at_the_deadline_of_its_execution() {
    let document = json!({ "timeout": "1s", "nodes": { "call": once() } });
    check(
        document,
        json!(null),
        expect![[r#"
        call UNKNOWN: RESULT_UNKNOWN
        ended TIMED_OUT: DEADLINE_PASSED
        audited execution.start
        audited queue_item.fail
    "#]],
    )
    .await;
}

#[tokio::test]
async fn an_unknown_child_makes_its_parents_unknown() {
    let document = json!({
        "workflows": { "calls": { "nodes": { "call": once() } }, "loops": { "nodes": { "each": each(json!([1, 2]), "continue", child("calls")) } } },
        "nodes": { "down": child("loops") },
    });
    check_with(
        Act::CancelAbove { node: "each" },
        document,
        expect![[r#"
        down UNKNOWN: RESULT_UNKNOWN
        ended CANCELED
          down 0.1 > each UNKNOWN: RESULT_UNKNOWN
          down 0.1 >   [1] each UNKNOWN: RESULT_UNKNOWN
          down 0.1 > ended CANCELED
          down 0.1 >   each 1.1 > call UNKNOWN: RESULT_UNKNOWN
          down 0.1 >   each 1.1 > ended CANCELED
        audited execution.start
        audited execution.cancel
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_failed_loop_continues_with_its_other_items_when_it_is_run_again() {
    let does = json!({ "kind": "HTTP_REQUEST", "with": http("/${{ item }}"), "retry": { "max_attempts": 1 } });
    let document = json!({ "nodes": {
        "all": each(json!(["ok/1", "flaky/1", "ok/3"]), "fail", does),
        "say": { "kind": "LOG", "needs": "all", "with": { "message": "${{ nodes.all.output.count }}" } },
    } });
    check_with(Act::Rerun { from: "failed" }, document, expect![[r#"
        all FAILED: HTTP_SERVER_ERROR
          [1] all COMPLETED {"body":{"path":"/ok/1"},"status":200}
          [2] all FAILED: HTTP_SERVER_ERROR
        say SKIPPED
        ended FAILED: HTTP_SERVER_ERROR
        audited execution.start
        audited queue_item.fail
        again
        all COMPLETED {"count":3,"items":[{"body":{"path":"/ok/1"},"status":200},{"body":{"path":"/flaky/1"},"st… 152 bytes
          [1] all COMPLETED kept {"body":{"path":"/ok/1"},"status":200}
          [2] all COMPLETED {"body":{"path":"/flaky/1"},"status":200}
          [3] all COMPLETED {"body":{"path":"/ok/3"},"status":200}
        say COMPLETED {"data":null,"level":"info","message":"3"}
        ended COMPLETED
        audited execution.rerun
    "#]]).await;
}
