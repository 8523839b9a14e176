//! Patterns and documents that take long to compute: whoever sends them waits, and nobody else does.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::tenant::text;
use crate::support::{Tenant, World};

/// It needs more states than any automaton may have, so that each byte is looked at in hundreds of ways.
const SLOW: &str = "(?:a?){250}a{250}";

/// Texts that nearly match it.
fn texts() -> Vec<String> {
    (0..2_000).map(|n| format!("{}b{n}", "a".repeat(240))).collect()
}

/// Asks for the health of the service until the others are done; the longest that took.
async fn slowest_health(world: &World, done: &tokio_util::sync::CancellationToken) -> Duration {
    let anonymous = world.server.anonymous();
    let mut slowest = Duration::ZERO;
    while !done.is_cancelled() {
        let asked = Instant::now();
        assert_eq!(anonymous.get("/healthz").await.status, 200);
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    slowest
}

/// Sends each request twice at once, with a key that may only read, while the service's health is asked for.
async fn check(world: &World, tenant: &Tenant, requests: &[(&str, Value)]) -> (Vec<u16>, Duration) {
    let key = json!({ "name": "reader", "workspaceId": tenant.id, "scopes": ["read"] });
    let key = text(&world.server.api().post("keys", key).await.expect(201)["key"]);
    let reader = tenant.api.with_key(&key);
    let done = tokio_util::sync::CancellationToken::new();
    let attack = async {
        let all = requests.iter().chain(requests).map(|(path, body)| reader.post(path, body.clone()));
        let replies = futures_util::future::join_all(all).await;
        done.cancel();
        replies.into_iter().map(|reply| reply.status).collect::<Vec<_>>()
    };
    tokio::join!(attack, slowest_health(world, &done))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_takes_long_is_stopped_and_keeps_nobody_waiting() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let expression = format!("inputs.texts.filter(t, t.matches('{SLOW}'))");
    let evaluate = json!({ "expression": expression, "input": { "texts": texts() } });
    let requests: Vec<(&str, Value)> = vec![("workflow/expressions/evaluate", evaluate); 2];
    let (statuses, slowest) = check(&world, &tenant, &requests).await;
    assert!(statuses.iter().all(|status| *status == 422), "{statuses:?}: the budget stops each of them");
    assert!(slowest < Duration::from_secs(2), "/healthz took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_with_many_large_patterns_are_refused_and_keep_nobody_waiting() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let field = |n: usize| (format!("f{n}"), json!({ "type": "string", "pattern": format!("\\w{{{}}}", 20 + n % 10) }));
    let inputs: serde_json::Map<String, Value> = (0..400).map(field).collect();
    let nodes = json!({ "say": { "kind": "LOG", "with": { "message": "x" } } });
    let document = json!({ "name": "patterns", "inputs": inputs, "nodes": nodes });
    let requests: Vec<(&str, Value)> = vec![("workflow/definitions/validate", json!({ "document": document })); 2];
    let (statuses, slowest) = check(&world, &tenant, &requests).await;
    assert!(statuses.iter().all(|status| *status == 422), "{statuses:?}");
    assert!(slowest < Duration::from_secs(2), "/healthz took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_takes_long_to_judge_is_refused_and_a_run_that_computes_long_fails() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let inputs = json!({ "texts": { "type": "array", "items": { "type": "string", "pattern": SLOW } } });
    let nodes = json!({ "say": { "kind": "LOG", "with": { "message": "x" } } });
    let body = json!({ "document": { "name": "judged", "inputs": inputs, "nodes": nodes } });
    let judged = text(&tenant.api.post("workflow/definitions/apply", body).await.expect(200)["definition"]["id"]);
    let message = format!("${{{{ inputs.texts.filter(t, t.matches('{SLOW}')) }}}}");
    let computes =
        tenant.apply("computes", json!({ "it": { "kind": "TRANSFORM", "with": { "value": message } } })).await;
    let start = |definition: &str| json!({ "workflowDefinitionId": definition, "input": { "texts": texts() } });
    let done = tokio_util::sync::CancellationToken::new();
    let attack = async {
        let refused = tenant.api.post("workflow/executions/start", start(&judged)).await;
        assert_eq!(refused.problem(422), "validation_failed", "{}", refused.text);
        let started = tenant.api.post("workflow/executions/start", start(&computes)).await.expect(202);
        let ended = tenant.ended(&text(&started["executionId"])).await;
        assert_eq!(ended["status"], "FAILED", "{ended}");
        done.cancel();
    };
    let ((), slowest) = tokio::join!(attack, slowest_health(&world, &done));
    assert!(slowest < Duration::from_secs(2), "/healthz took {slowest:?}");
}
