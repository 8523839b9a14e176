//! Definitions are stored as text. Inputs are checked against the inputs that the definition declares, wherever a start
//! request comes from.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::{Reply, send};
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World};

const ORDER: &str = "\
name: order
inputs:
  id: {type: string, required: true, pattern: '^[A-Z][0-9]+$'}
  total: {type: number, minimum: 0, default: 10}
nodes:
  say: {kind: LOG, with: {message: 'Order ${{ inputs.id }}: ${{ inputs.total }}'}}
outputs: ${{ nodes.say.output.message }}
";

async fn publish(tenant: &Tenant, source: &str) -> String {
    let body = json!({ "source": source });
    text(&tenant.api.post("workflow/definitions/apply", body).await.expect(200)["definition"]["id"])
}

async fn start(tenant: &Tenant, definition: &str, input: Value) -> Reply {
    let body = json!({ "workflowDefinitionId": definition, "input": input });
    tenant.api.post("workflow/executions/start", body).await
}

async fn start_once(tenant: &Tenant, definition: &str, key: &str, input: Value) -> Reply {
    let request = tenant.api.request(Method::POST, "workflow/executions/start").header("idempotency-key", key);
    send(request.json(&json!({ "workflowDefinitionId": definition, "input": input }))).await
}

/// `pointer message` of each problem.
fn problems_of(body: &Value) -> Vec<String> {
    assert_eq!(body["code"], "validation_failed", "{body}");
    let line = |problem: &Value| format!("{} {}", text(&problem["pointer"]), text(&problem["message"]));
    body["problems"].as_array().expect("problems").iter().map(line).collect()
}

#[tokio::test]
async fn a_text_is_published_and_what_is_wrong_with_one_has_its_place() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let source = ORDER.replace("LOG", "LOGG").replace("inputs.total", "inputs.");
    for path in ["validate", "apply", ""] {
        let path = format!("workflow/definitions/{path}");
        let path = path.trim_end_matches('/');
        let refused = tenant.api.post(path, json!({ "source": source })).await.expect(422);
        assert_eq!(refused["code"], "definition_invalid");
        let problem = &refused["problems"][0];
        assert_eq!(
            (&problem["code"], &problem["line"], &problem["column"]),
            (&json!("unknown_kind"), &json!(6), &json!(15))
        );
        assert_eq!((&problem["text"], &problem["suggestion"]), (&json!("LOGG"), &json!("LOG")));
        assert_eq!(refused["problems"][1]["code"], "bad_expression", "{refused}");
        assert_eq!(refused["problems"][1]["line"], 6);
    }
    let definition = publish(&tenant, ORDER).await;
    let versions = format!("workflow/definitions/{definition}/versions");
    tenant.api.post(&versions, json!({ "source": "a: [" })).await.expect(422);
    tenant.api.post(&versions, json!({ "source": ORDER })).await.expect(200);
    let neither = tenant.api.post("workflow/definitions/validate", json!({})).await.expect(422);
    assert_eq!(neither["code"], "validation_failed");
    assert_eq!(world.count(&tenant, "workflow_definition_version").await, 1);
}

#[tokio::test]
async fn an_input_is_judged_and_its_defaults_are_stored() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = publish(&tenant, ORDER).await;
    let refused = start(&tenant, &definition, json!({ "id": 5, "total": -1 })).await.expect(422);
    assert_eq!(problems_of(&refused), ["/input/id must be text, not a number", "/input/total must be at least 0"]);
    assert_eq!(problems_of(&tenant.try_start(&definition).await.expect(422)), ["/input id is missing"]);
    assert_eq!(world.count(&tenant, "workflow_execution").await, 0);

    let started = start(&tenant, &definition, json!({ "id": "A1", "note": "kept" })).await.expect(202);
    let done = tenant.completed(&text(&started["executionId"])).await;
    assert_eq!(done["input"], json!({ "id": "A1", "note": "kept", "total": 10 }));
    assert_eq!(done["output"], "Order A1: 10");

    let item = |input: Value| json!({ "workflowDefinitionId": definition, "input": input });
    let items = [item(json!({ "id": "B1" })), item(json!({ "id": "b1" })), item(json!({ "id": "B2", "total": 3 }))];
    let bulk = tenant.api.post("workflow/executions/bulk", json!({ "items": items })).await.expect(200);
    let statuses: Vec<&Value> = bulk["items"].as_array().expect("items").iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, [202, 422, 202]);
    assert_eq!(problems_of(&bulk["items"][1]["problem"]), ["/input/id must match ^[A-Z][0-9]+$"]);

    let rerun = format!("workflow/executions/{}/rerun", text(&done["id"]));
    let refused = tenant.api.post(&rerun, json!({ "input": { "total": "all" } })).await.expect(422);
    assert_eq!(problems_of(&refused).len(), 2);
    let again = tenant.api.post(&rerun, json!({ "input": { "id": "C1" } })).await.expect(202);
    assert_eq!(tenant.completed(&text(&again["executionId"])).await["output"], "Order C1: 10");
}

#[tokio::test]
async fn a_version_that_another_process_publishes_judges_the_next_start_of_every_process() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let another = world.another(&[]).await;
    let there = tenant.at(&another.base);
    let definition = publish(&tenant, ORDER).await;
    let first = start_once(&tenant, &definition, "k", json!({ "id": "A1" })).await.expect(202);
    start(&there, &definition, json!({ "id": "A2" })).await.expect(202);

    // Stricter, then looser, each published where the other process cannot have seen it.
    publish(&there, &ORDER.replace("minimum: 0, default: 10", "required: true")).await;
    let refused = start(&tenant, &definition, json!({ "id": "A3" })).await.expect(422);
    assert_eq!(problems_of(&refused), ["/input total is missing"]);
    let repeated = start_once(&tenant, &definition, "k", json!({ "id": "A1" })).await.expect(202);
    assert_eq!(repeated["executionId"], first["executionId"], "what was accepted stays so");
    start_once(&tenant, &definition, "k", json!({ "id": "A9" })).await.expect(422);
    start_once(&tenant, &definition, "new", json!({ "id": "A4" })).await.expect(422);

    publish(&tenant, "name: order\nnodes: {}\n").await;
    let started = start(&there, &definition, json!(["anything"])).await.expect(202);
    let done = there.completed(&text(&started["executionId"])).await;
    assert_eq!((&done["version"], &done["input"]), (&json!(3), &json!(["anything"])));
    assert_eq!(world.count("workflow_execution").await, 3);
}

#[tokio::test]
async fn undeclared_inputs_are_refused_where_the_author_says_so() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = publish(&tenant, &format!("additional_inputs: false\n{ORDER}")).await;
    let refused = start(&tenant, &definition, json!({ "id": "A1", "totl": 5 })).await.expect(422);
    assert_eq!(problems_of(&refused), ["/input/totl unknown input totl, did you mean total?"]);
}
