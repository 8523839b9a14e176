//! Patterns and documents that take long to compute delay only the client that sends them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::tenant::text;
use crate::support::{Server, Tenant, World};

/// It needs more states than any automaton may have, so that each byte is looked at in hundreds of ways.
const SLOW: &str = "(?:a?){250}a{250}";

/// Texts that nearly match it.
fn texts() -> Vec<String> {
    (0..2_000).map(|n| format!("{}b{n}", "a".repeat(240))).collect()
}

/// How long a process may take to say how it is while another beside it, which nobody attacks, takes no time at all.
const SOON: Duration = Duration::from_secs(2);

/// Asks for the health of a process until the others are done; the longest that took.
async fn slowest_health(server: &Server, done: &CancellationToken) -> Duration {
    let anonymous = server.anonymous();
    let mut slowest = Duration::ZERO;
    while !done.is_cancelled() {
        let asked = Instant::now();
        assert_eq!(anonymous.get("/healthz").await.status, 200);
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    slowest
}

/// Attacks, and meanwhile asks for the health of the process and of one beside it. What the machine is busy with delays
/// both.
async fn keeps_nobody_waiting<T>(world: &World, attack: impl Future<Output = T>) -> T {
    let (beside, done) = (world.another(&["workflow.engine.enabled=false"]).await, CancellationToken::new());
    let attack = async {
        let attacked = attack.await;
        done.cancel();
        attacked
    };
    let (attacked, slowest, usual) =
        tokio::join!(attack, slowest_health(&world.server, &done), slowest_health(&beside, &done));
    assert!(slowest < SOON + 4 * usual, "/healthz took {slowest:?}, and {usual:?} beside it");
    attacked
}

/// Sends each request twice at once, with a key that may only read.
async fn check(world: &World, tenant: &Tenant, requests: &[(&str, Value)]) -> Vec<u16> {
    let key = json!({ "name": "reader", "workspaceId": tenant.id, "scopes": ["read"] });
    let key = text(&world.server.api().post("keys", key).await.expect(201)["key"]);
    let reader = tenant.api.with_key(&key);
    let all = requests.iter().chain(requests).map(|(path, body)| reader.post(path, body.clone()));
    let replies = keeps_nobody_waiting(world, futures_util::future::join_all(all)).await;
    replies.into_iter().map(|reply| reply.status).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_takes_long_is_stopped_and_keeps_nobody_waiting() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let expression = format!("inputs.texts.filter(t, t.matches('{SLOW}'))");
    let evaluate = json!({ "expression": expression, "input": { "texts": texts() } });
    let requests: Vec<(&str, Value)> = vec![("workflow/expressions/evaluate", evaluate); 2];
    let statuses = check(&world, &tenant, &requests).await;
    assert!(statuses.iter().all(|status| *status == 422), "{statuses:?}: the budget stops each of them");
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
    let statuses = check(&world, &tenant, &requests).await;
    assert!(statuses.iter().all(|status| *status == 422), "{statuses:?}");
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
    let attack = async {
        let refused = tenant.api.post("workflow/executions/start", start(&judged)).await;
        assert_eq!(refused.problem(422), "validation_failed", "{}", refused.text);
        let started = tenant.api.post("workflow/executions/start", start(&computes)).await.expect(202);
        let ended = tenant.ended(&text(&started["executionId"])).await;
        assert_eq!(ended["status"], "FAILED", "{ended}");
    };
    keeps_nobody_waiting(&world, attack).await;
}
