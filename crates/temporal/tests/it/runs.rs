//! Tests the parts of a run that do not depend on its graph: long chains, repeated starts, workers that start and stop,
//! and the payloads in its history.

use std::time::Duration;

use engine::{Engine, RunDescription};
use kernel::execution::Status;
use kernel::ids::{ClaimId, ExecutionId};
use kernel::queue::StartOutcome;
use kernel::run::node;
use serde_json::{Value, json};
use store::queue::control::Terminated;
use temporal::{PayloadKeys, TemporalSettings, testing};

use crate::host::settings;
use crate::world::{Act, Scenario, World, until};

fn light() -> Value {
    json!({ "nodes": { "say": { "kind": "LOG", "with": { "message": "hi" } } } })
}

/// Two thousand calls in a row are more than one history may hold.
#[tokio::test]
async fn a_chain_of_two_thousand_nodes_is_continued_as_new_and_completes() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let node = |n: usize| match n {
        0 => json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok" } }),
        // Every third node makes a call. A node that only computes costs a marker and no event of its own.
        n if n % 3 == 0 => {
            json!({ "kind": "HTTP_REQUEST", "needs": format!("n{}", n - 1), "with": { "url": "BASE/ok" } })
        }
        n => json!({ "kind": "TRANSFORM", "needs": format!("n{}", n - 1), "with": { "value": n } }),
    };
    let nodes: serde_json::Map<String, Value> = (0..2_000).map(|n| (format!("n{n}"), node(n))).collect();
    let definition = world.publish(&json!({ "nodes": nodes, "outputs": "${{ nodes.n1999.output }}" })).await;
    let id = world.enqueue(definition, Value::Null).await;
    world.claim(process.id, &process.engine).await;
    // So many nodes take longer than anything else is waited for.
    for calls in (0..667).step_by(50) {
        until("it goes on", async || world.receiver.calls("/ok") >= calls).await;
    }
    let ended = world.ended(id).await;
    assert_eq!((ended.status, ended.output), (Status::Completed, Some(json!(1_999))));
    assert_eq!(world.receiver.calls("/ok"), 667, "no call is made twice");
    let runs = testing::runs(&settings(), id).await.expect("its runs");
    assert!(runs > 1, "it was never continued as new");
    let last = testing::history(&settings(), id).await.expect("a history");
    assert!(last.len() < 2_000_000, "{} bytes", last.len());
}

/// Light nodes that follow one another share a local activity, the first ones that of the begin. The activity of the
/// last node records the end. Before, each of these chains had a marker for each light node, the begin and the end.
#[tokio::test]
async fn a_run_needs_no_activity_but_those_that_wait_for_another_program() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let chain = |kinds: &[&str]| {
        let node = |(at, kind): (usize, &&str)| {
            let mut node = match *kind {
                "LOG" => {
                    json!({ "kind": "LOG", "with": { "message": format!("${{{{ nodes.n{}.status }}}}", at.max(1) - 1) } })
                }
                _ => json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok" } }),
            };
            if at > 0 {
                node["needs"] = json!(format!("n{}", at - 1));
            } else if *kind == "LOG" {
                node["with"]["message"] = json!("first");
            }
            (format!("n{at}"), node)
        };
        let nodes: serde_json::Map<String, Value> = kinds.iter().enumerate().map(node).collect();
        json!({ "nodes": nodes, "outputs": { "last": format!("${{{{ nodes.n{}.status }}}}", kinds.len() - 1) } })
    };
    // A task of the workflow is 3 events, an activity too; the start, the end and the timer of the deadline are 1 each.
    let table: [(&[&str], (usize, usize)); 4] = [
        (&["LOG"; 5], (1, 5)),
        (&["LOG", "LOG", "CALL"], (1, 12)),
        (&["CALL", "LOG", "LOG"], (2, 12)),
        (&["LOG", "CALL", "LOG", "CALL"], (2, 18)),
    ];
    for (kinds, expected) in table {
        let id = world.enqueue(world.publish(&chain(kinds)).await, Value::Null).await;
        world.claim(process.id, &process.engine).await;
        let ended = world.ended(id).await;
        assert_eq!(
            (ended.status, ended.output),
            (Status::Completed, Some(json!({ "last": "COMPLETED" }))),
            "{kinds:?}"
        );
        let is_closed = async || matches!(process.engine.describe(id).await, Ok(RunDescription::Closed(_)));
        until("it has closed", is_closed).await;
        assert_eq!(testing::event_counts(&settings(), id).await.expect("its events"), expected, "{kinds:?}");
    }
}

#[tokio::test]
async fn a_workflow_is_started_with_its_ids_its_nodes_and_the_retries_of_its_version() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let document = json!({ "nodes": {
        "say": { "kind": "LOG", "with": { "message": "hi" } },
        "call": { "kind": "HTTP_REQUEST", "needs": "say", "with": { "url": "BASE/ok" }, "retry": { "max_attempts": 9, "initial": "5s" } },
    } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, Value::Null).await;
    world.claim(process.id, &process.engine).await;
    let ended = world.ended(id).await;
    let observed = testing::input(&settings(), id).await.expect("an input");
    assert_eq!(
        observed,
        json!({
            "executionId": id,
            "workspaceId": ended.workspace,
            "workflowDefinitionId": definition,
            "versionId": ended.version,
            "nodeIds": ["say", "call"],
            "retryConfig": {
                "max_attempts": 9, "initial_ms": 5000, "factor": 2, "max_ms": 60000,
                "nodes": { "say": { "max_attempts": 3, "initial_ms": 1000, "factor": 2, "max_ms": 30000 } },
            },
            "semantics": kernel::SEMANTICS,
        })
    );
    process.worker.stop().await;
}

#[tokio::test]
async fn a_start_may_be_repeated_in_every_state() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let document = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/late/300" } } } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, Value::Null).await;
    world.claim(process.id, &process.engine).await;
    assert_eq!(process.engine.start(process.id, id).await, StartOutcome::Started, "while it runs");
    assert_eq!(world.ended(id).await.status, Status::Completed);
    let is_closed = async || matches!(process.engine.describe(id).await, Ok(RunDescription::Closed(_)));
    until("it has closed", is_closed).await;
    assert_eq!(process.engine.start(process.id, id).await, StartOutcome::Started, "after it has closed");
    assert_eq!(world.receiver.calls("/late/300"), 1, "it ran once");
    let unknown = ExecutionId(store::new_id());
    assert!(matches!(process.engine.start(process.id, unknown).await, StartOutcome::Refused(_)));
    assert!(matches!(process.engine.describe(unknown).await, Ok(RunDescription::Unknown)));
}

#[tokio::test]
async fn a_run_without_a_slot_waits_and_one_that_ended_performs_nothing() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let document = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok" } } } });
    let definition = world.publish(&document).await;
    let (waits, ended) = (world.enqueue(definition, Value::Null).await, world.enqueue(definition, Value::Null).await);
    world.database.store.cancel(ended, world.workspace, "test").await.expect("canceled");
    // Neither was claimed, as if the start had overtaken its claim or come after the end.
    for id in [waits, ended] {
        assert_eq!(process.engine.start(process.id, id).await, StartOutcome::Started);
    }
    let is_closed = async || matches!(process.engine.describe(ended).await, Ok(RunDescription::Closed(_)));
    until("it has closed", is_closed).await;
    assert_eq!(
        (world.receiver.calls("/ok"), world.database.store.execution(waits, None).await.expect("it").status),
        (0, Status::Pending)
    );
    world.claim_only(process.id).await;
    assert_eq!(world.ended(waits).await.status, Status::Completed);
    assert_eq!(world.receiver.calls("/ok"), 1);
}

impl World {
    /// Claims ready items and starts nothing.
    async fn claim_only(&self, process: kernel::ids::ProcessId) {
        let asks = [kernel::queue::round_robin::Quota { workspace: self.workspace, limit: 20 }];
        let claim = ClaimId(store::new_id());
        self.database.store.claim(&asks, claim, process, None).await.expect("a claim");
    }
}

#[tokio::test]
async fn a_run_whose_terminate_never_reached_temporal_ends_itself_by_the_fence() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let document = json!({ "nodes": {
        "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/late/400" } },
        "after": { "kind": "HTTP_REQUEST", "needs": "call", "with": { "url": "BASE/ok" } },
    } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, Value::Null).await;
    world.claim(process.id, &process.engine).await;
    world.receiver.until_called("/late/400", 1).await;
    let observed = world.database.store.terminate(id, world.workspace, "test").await.expect("fenced");
    assert!(matches!(observed, Terminated::Fenced(_)));
    let ended = world.ended(id).await;
    assert_eq!(
        (ended.status, ended.error.as_ref().map(|error| error["type"].clone())),
        (Status::Canceled, Some(json!("TERMINATED")))
    );
    assert_eq!(world.receiver.calls("/ok"), 0, "nothing is performed after the fence");
    assert_eq!(world.leftovers().await, (0, 0));
}

#[tokio::test]
async fn outputs_and_inputs_stay_out_of_history_and_what_is_there_is_encrypted() {
    let keys = PayloadKeys::parse(&"5a".repeat(32)).expect("a key");
    let sealed = TemporalSettings { keys: keys.clone(), ..settings() };
    let world = World::new().await;
    let process = world.process(sealed.clone()).await;
    let document = json!({ "nodes": {
        "big": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/big", "max_response_bytes": 2_000_000 } },
        "asks": { "kind": "HTTP_REQUEST", "needs": "big", "retry": { "max_attempts": 2, "initial": "10ms" },
                  "with": { "url": "BASE/flaky/1?q=${{ inputs.word }}" } },
        "secretly_named": { "kind": "TRANSFORM", "needs": "asks", "with": { "value": "${{ inputs.word }}" } },
        "fails": { "kind": "FAIL", "needs": "secretly_named", "with": { "message": "the word is ${{ inputs.word }}" } },
    } });
    let scenario = Scenario { document, input: json!({ "word": "swordfish" }), act: Act::Nothing };
    let (id, trace) = world.play(process.id, &process.engine, &scenario).await;
    assert!(trace.contains("fails FAILED: CONTROL_FLOW_ERROR"), "{trace}");
    let history = testing::history(&sealed, id).await.expect("a history");
    assert!(history.len() < 40_000, "{} bytes of history for a megabyte of output", history.len());
    for secret in ["swordfish", "secretly_named"] {
        let there = history.windows(secret.len()).any(|some| some == secret.as_bytes());
        assert!(!there, "{secret} is in the history");
    }
    assert_eq!(testing::replay(&history, &keys).await.expect("a replay"), None);
    assert!(testing::replay(&history, &PayloadKeys::default()).await.is_err(), "nobody else can read it");
}

#[tokio::test]
async fn short_calls_are_local_and_come_to_the_same() {
    let local = TemporalSettings { local_below: Duration::from_secs(1), ..settings() };
    let world = World::new().await;
    let process = world.process(local.clone()).await;
    let document = json!({ "nodes": {
        "short": { "kind": "HTTP_REQUEST", "timeout": "1s", "with": { "url": "BASE/flaky/1" },
                   "retry": { "max_attempts": 3, "initial": "10ms" } },
        "fails": { "kind": "HTTP_REQUEST", "timeout": "1s", "needs": "short", "with": { "url": "BASE/status/404" } },
    } });
    let scenario = Scenario { document, input: Value::Null, act: Act::Nothing };
    let (id, trace) = world.play(process.id, &process.engine, &scenario).await;
    assert!(trace.contains("short COMPLETED at attempt 2 after HTTP_SERVER_ERROR"), "{trace}");
    assert!(trace.contains("fails FAILED: HTTP_CLIENT_ERROR\nended FAILED: HTTP_CLIENT_ERROR"), "{trace}");
    let history = testing::history(&local, id).await.expect("a history");
    assert!(history.len() < 10_000, "{} bytes", history.len());
    let slow = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "timeout": "1s", "with": { "url": "BASE/slow" },
                                             "retry": { "max_attempts": 1 } } } });
    let act = Act::CancelWhen { node: "call", status: node::Status::Running };
    let (_, trace) =
        world.play(process.id, &process.engine, &Scenario { document: slow, input: Value::Null, act }).await;
    assert!(trace.starts_with("call CANCELED\nended CANCELED") || trace.starts_with("call FAILED: TIMEOUT"), "{trace}");
}

#[tokio::test]
async fn a_version_that_cannot_be_run_ends_its_execution_with_the_reason() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let definition = world.publish(&light()).await;
    let id = world.enqueue(definition, Value::Null).await;
    let sql = "UPDATE workflow_definition_version SET graph = '{\"nodes\": 7}'";
    world.database.client().await.batch_execute(sql).await.expect("a broken graph");
    world.claim(process.id, &process.engine).await;
    let ended = world.ended(id).await;
    assert_eq!(
        (ended.status, ended.error.map(|error| error["type"].clone())),
        (Status::Failed, Some(json!("BAD_GRAPH")))
    );
}

/// No known value passes the check and is refused. If there is one, only its node fails.
#[tokio::test]
async fn an_output_that_only_the_database_refuses_fails_its_node() {
    let world = World::new().await;
    world.refuse_an_output().await;
    let process = world.process(settings()).await;
    let document = json!({ "nodes": {
        "fine": { "kind": "TRANSFORM", "with": { "value": "fine" } },
        "bad": { "kind": "TRANSFORM", "needs": "fine", "with": { "value": "refused" }, "on_error": "continue" },
        "next": { "kind": "TRANSFORM", "needs": "bad", "with": { "value": "next" } },
        "error": { "kind": "TRANSFORM", "needs": "bad.error", "with": { "value": "error" } },
    } });
    let id = world.enqueue(world.publish(&document).await, json!(null)).await;
    world.claim(process.id, &process.engine).await;
    let expected = "fine COMPLETED \"fine\"\nbad FAILED: UNSTORABLE_OUTPUT\nnext SKIPPED\n\
                    error COMPLETED \"error\"\nended COMPLETED\naudited execution.start\n";
    assert_eq!(world.end_of(id).await, expected);
}
