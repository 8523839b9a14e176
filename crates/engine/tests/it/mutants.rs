//! Rules of the embedded engine broken on purpose: the scenarios' traces must differ.

use engine::mutant::{Mutant, mutate};
use serde_json::{Value, json};

use crate::world::{Act, Scenario, World};

/// Plays a graph as it should be, which shows a line, and with a rule broken, which must not come to the same.
async fn caught(mutant: Mutant, nodes: Value, right: &str) {
    let world = World::new().await;
    let process = world.process().await;
    let scenario = Scenario { document: json!({ "nodes": nodes }), input: json!({ "yes": true }), act: Act::Nothing };
    let (_, good) = world.play(process.id, &process.engine, &scenario).await;
    assert!(good.contains(right), "{good}");
    mutate(mutant);
    let (_, bad) = world.play(process.id, &process.engine, &scenario).await;
    mutate(Mutant::None);
    assert_ne!(bad, good, "{mutant:?} is not noticed");
}

/// One test: the rule is broken for the whole process.
#[tokio::test]
async fn a_broken_rule_of_the_engine_is_noticed() {
    let branches = json!({
        "ask": { "kind": "CONDITION", "with": { "if": "inputs.yes" } },
        "yes": { "kind": "LOG", "needs": "ask.true", "with": { "message": "yes" } },
        "no": { "kind": "LOG", "needs": "ask.false", "with": { "message": "no" } },
    });
    caught(Mutant::ForgetsLabels, branches.clone(), "yes COMPLETED").await;
    caught(Mutant::CancelsSkips, branches, "no SKIPPED").await;
    let retry = json!({ "max_attempts": 2, "initial": "10ms" });
    let fails = json!({ "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/status/500" }, "retry": retry } });
    caught(Mutant::ForgetsAttempts, fails, "call FAILED at attempt 2").await;
}
