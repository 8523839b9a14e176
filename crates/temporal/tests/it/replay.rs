//! Replays histories of earlier builds with this one, and breaks rules on purpose, which must be noticed.

use std::time::Duration;

use kernel::execution;
use kernel::run::node::Status;
use serde_json::{Value, json};
use temporal::testing::{Mutant, mutate, replay};
use temporal::{PayloadKeys, TemporalSettings};

use crate::host::{HISTORIES, settings};
use crate::world::{Act, Scenario, World};

#[tokio::test]
async fn every_kept_history_is_replayed_by_this_build() {
    let mut count = 0;
    for file in std::fs::read_dir(HISTORIES).expect("kept histories") {
        let path = file.expect("a file").path();
        let saved = std::fs::read(&path).expect("a history");
        let broken = replay(&saved, &PayloadKeys::default()).await.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert_eq!(broken, None, "{path:?}: runs that an earlier build began would hang with this build");
        count += 1;
    }
    assert!(count >= 25, "{count}");
}

#[tokio::test]
async fn a_workflow_that_goes_another_way_is_caught_by_a_kept_history() {
    mutate(Mutant::Backwards);
    let saved = std::fs::read(format!("{HISTORIES}/a_diamond_joins_when_the_later_branch_is_done.pb")).expect("kept");
    let broken = replay(&saved, &PayloadKeys::default()).await.expect("a replay");
    assert!(broken.as_ref().is_some_and(|what| what.contains("does not match")), "{broken:?}");
}

/// Runs a scenario with a rule broken. Its trace must differ from the correct one, of which one line is given.
async fn caught(mutant: Mutant, act: Act, nodes: Value, right: &str) {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let document = json!({ "nodes": nodes });
    let input = json!({ "yes": true });
    let scenario = Scenario { document, input, act };
    let (_, good) = world.play(process.id, &process.engine, &scenario).await;
    assert!(good.contains(right), "{good}");
    mutate(mutant);
    let (_, bad) = world.play(process.id, &process.engine, &scenario).await;
    assert_ne!(bad, good, "no scenario notices {mutant:?}");
}

#[tokio::test]
async fn a_forgotten_branch_is_noticed() {
    let nodes = json!({
        "ask": { "kind": "CONDITION", "with": { "if": "inputs.yes" } },
        "yes": { "kind": "LOG", "needs": "ask.true", "with": { "message": "yes" } },
    });
    caught(Mutant::ForgetsLabels, Act::Nothing, nodes, "yes COMPLETED").await;
}

#[tokio::test]
async fn a_forgotten_on_error_is_noticed() {
    let nodes = json!({
        "risky": { "kind": "FAIL", "on_error": "continue", "with": { "message": "no" } },
        "rescue": { "kind": "LOG", "needs": "risky.error", "with": { "message": "rescued" } },
    });
    caught(Mutant::ForgetsOnError, Act::Nothing, nodes, "rescue COMPLETED").await;
}

#[tokio::test]
async fn a_skip_that_is_stored_as_something_else_is_noticed() {
    let nodes = json!({
        "ask": { "kind": "CONDITION", "with": { "if": "inputs.yes" } },
        "no": { "kind": "LOG", "needs": "ask.false", "with": { "message": "no" } },
    });
    caught(Mutant::CancelsSkips, Act::Nothing, nodes, "no SKIPPED").await;
}

/// Temporal itself would not notice: the call goes on after the slot is free.
#[tokio::test]
async fn an_end_that_waits_for_nobody_is_noticed() {
    assert!(ended_and_at_rest(Duration::from_secs(2)).await, "an end waits for what it aborts");
    mutate(Mutant::LeavesBehind);
    // Its worker does not learn of the cancel by itself before this test is over.
    assert!(!ended_and_at_rest(Duration::from_secs(60)).await, "a call that was left behind is not noticed");
}

/// Cancels an execution during a call. True if the call was aborted by the time the execution had ended.
async fn ended_and_at_rest(heartbeat: Duration) -> bool {
    let world = World::new().await;
    let process = world.process(TemporalSettings { heartbeat, ..settings() }).await;
    let document = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/slow" } } } });
    let id = world.enqueue(world.publish(&document).await, Value::Null).await;
    world.claim(process.id, &process.engine).await;
    world.receiver.until_called("/slow", 1).await;
    let act = Act::CancelWhen { node: "call", status: Status::Running };
    world.act(id, &process.engine, act).await;
    assert_eq!(world.ended(id).await.status, execution::Status::Canceled);
    world.receiver.is_at_rest().await
}
