//! Breaks rules of the embedded engine on purpose. The traces of the scenarios must then differ from the expected ones.

use engine::mutant::{Mutant, mutate};
use serde_json::{Value, json};

use crate::world::{Act, Scenario, World};

/// Runs a graph correctly, which shows a line, and with a rule broken, which must give another trace.
async fn caught(mutant: Mutant, nodes: Value, right: &str) {
    let world = World::new().await;
    let process = world.process().await;
    let scenario = Scenario { document: json!({ "nodes": nodes }), input: json!({ "yes": true }), act: Act::Nothing };
    let (_, good) = world.play(process.id, &process.engine, &scenario).await;
    assert!(good.contains(right), "{good}");
    mutate(mutant);
    let (_, bad) = world.play(process.id, &process.engine, &scenario).await;
    mutate(Mutant::None);
    assert_ne!(bad, good, "no scenario notices {mutant:?}");
}

/// All in one test, because the rule is broken for the whole process.
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
