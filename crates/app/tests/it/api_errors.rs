//! Every refused request gets an RFC 9457 problem with a stable code, and never a 5xx.

use reqwest::Method;
use serde_json::{Value, json};
use store::access::key::Secret;

use crate::support::http::{Api, Reply, send};
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World};

const NOBODY: &str = "019a0000-0000-7000-8000-000000000000";

/// Every route that needs a key: its method, its path and a body it takes.
fn routes(tenant: &Tenant, definition: &str, execution: &str) -> Vec<(Method, String, Value)> {
    let graph = json!({ "document": { "name": "x", "nodes": {} } });
    let (get, post) = (Method::GET, Method::POST);
    let definitions = "workflow/definitions".to_owned();
    let run = format!("workflow/executions/{execution}");
    vec![
        (post.clone(), "workspaces".to_owned(), json!({ "name": "n" })),
        (get.clone(), "workspaces".to_owned(), Value::Null),
        (get.clone(), format!("workspaces/{}", tenant.id), Value::Null),
        (Method::PATCH, format!("workspaces/{}", tenant.id), json!({ "weight": 2 })),
        (post.clone(), "keys".to_owned(), json!({ "name": "k", "workspaceId": tenant.id })),
        (post.clone(), definitions.clone(), graph.clone()),
        (get.clone(), definitions.clone(), Value::Null),
        (post.clone(), format!("{definitions}/validate"), graph.clone()),
        (post.clone(), format!("{definitions}/apply"), graph.clone()),
        (get.clone(), format!("{definitions}/{definition}"), Value::Null),
        (post.clone(), format!("{definitions}/{definition}/versions"), graph),
        (post.clone(), format!("{definitions}/{definition}/publish"), json!({})),
        (post.clone(), "workflow/executions/start".to_owned(), json!({ "workflowDefinitionId": definition })),
        (get.clone(), run.clone(), Value::Null),
        (get.clone(), format!("{run}/nodes"), Value::Null),
        (get.clone(), format!("{run}/summary"), Value::Null),
        (get.clone(), format!("{run}/logs"), Value::Null),
        (post.clone(), format!("{run}/cancel"), json!({})),
        (get.clone(), format!("workflow/queue/{execution}"), Value::Null),
        (post.clone(), format!("workspaces/{}/pause", tenant.id), Value::Null),
        (post.clone(), format!("workspaces/{}/resume", tenant.id), Value::Null),
        (Method::DELETE, format!("workspaces/{}", tenant.id), Value::Null),
        (post.clone(), format!("{definitions}/{definition}/pause"), Value::Null),
        (post.clone(), format!("{definitions}/{definition}/resume"), Value::Null),
        (Method::DELETE, format!("{definitions}/{definition}"), Value::Null),
        (
            post.clone(),
            "workflow/executions/bulk".to_owned(),
            json!({ "items": [{ "workflowDefinitionId": definition }] }),
        ),
        (post.clone(), format!("{run}/terminate"), Value::Null),
        (post.clone(), format!("{run}/rerun"), json!({})),
        (get, "workflow/queue?status=FAILED".to_owned(), Value::Null),
        (post, format!("workflow/queue/{execution}/dismiss"), Value::Null),
    ]
}

async fn ask(api: &Api, (method, path, body): &(Method, String, Value)) -> Reply {
    let request = api.request(method.clone(), path);
    send(if body.is_null() { request } else { request.json(body) }).await
}

const CANCELS: &str = "workflow_execution WHERE cancel_requested_at IS NOT NULL OR status = 'CANCELED'";

/// What a stranger must not be able to change.
async fn side_effects(world: &World) -> (i64, i64, i64) {
    (world.count("activity").await, world.count("workflow_execution").await, world.count(CANCELS).await)
}

/// The same of these tenants.
async fn changed(world: &Shared, tenants: [&Tenant; 2]) -> Vec<i64> {
    let mut found = Vec::new();
    for tenant in tenants {
        for what in ["activity", "workflow_execution", CANCELS] {
            found.push(world.count(tenant, what).await);
        }
    }
    found
}

#[tokio::test]
async fn without_a_valid_key_no_route_does_anything() {
    let world = World::with(&["auth.max_failures_per_address=100000"]).await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.light().await;
    let execution = tenant.start(&definition).await;
    tenant.completed(&execution).await;
    let before = side_effects(&world).await;
    let valid = tenant.api.key.clone().expect("a key");
    let stranger = Secret::generate().expect("randomness");
    let typo = format!("{}0", &valid[..valid.len() - 1]);
    let typo = if typo == valid { format!("{}1", &valid[..valid.len() - 1]) } else { typo };
    let headers: Vec<(&str, Vec<String>)> = vec![
        ("none", vec![]),
        ("empty", vec![String::new()]),
        ("Bearer alone", vec!["Bearer".to_owned()]),
        ("Bearer and a space", vec!["Bearer ".to_owned()]),
        ("another scheme", vec![format!("Basic {valid}")]),
        ("no scheme", vec![valid.clone()]),
        ("malformed", vec!["Bearer nonsense".to_owned()]),
        ("wrong check sum", vec![format!("Bearer {typo}")]),
        ("nobody's key", vec![format!("Bearer {}", stranger.expose())]),
        ("two headers", vec![format!("Bearer {valid}"), format!("Bearer {valid}")]),
    ];
    let anonymous = world.server.anonymous();
    let mut routes = routes(&tenant, &definition, &execution);
    routes.push((Method::GET, "no/such/route".to_owned(), Value::Null));
    for (case, values) in &headers {
        for (method, path, body) in &routes {
            let mut request = anonymous.request(method.clone(), path);
            for value in values {
                request = request.header("authorization", value);
            }
            let reply = send(if body.is_null() { request } else { request.json(body) }).await;
            assert_eq!(reply.problem(401), "unauthenticated", "{case}: {method} {path}");
            assert_eq!(reply.header("www-authenticate"), "Bearer", "{case}: {method} {path}");
            assert!(!reply.text.contains(&valid), "a key is never repeated");
        }
    }
    assert_eq!(side_effects(&world).await, before, "a stranger changes nothing");
    let key = tenant.api.request(Method::GET, "workspaces").header("x-http-method-override", "DELETE");
    assert_eq!(send(key).await.status, 200, "and the right key works");
}

#[tokio::test]
async fn another_workspaces_things_do_not_exist() {
    let world = Shared::new().await;
    let (owner, other) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let definition = owner.light().await;
    let held = owner.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let execution = owner.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let before = changed(&world, [&owner, &other]).await;
    for route in routes(&owner, &definition, &execution).iter().filter(|(_, path, _)| {
        [owner.id.as_str(), definition.as_str(), execution.as_str()].iter().any(|id| path.contains(id))
    }) {
        let reply = ask(&other.api, route).await;
        assert_eq!(reply.problem(404), "not_found", "{} {}", route.0, route.1);
    }
    assert_eq!(other.try_start(&definition).await.problem(404), "not_found");
    for (path, body) in [
        ("workflow/executions/start", json!({ "workflowDefinitionId": definition, "workspaceId": owner.id })),
        ("workflow/definitions/apply", json!({ "document": { "name": "x", "nodes": {} }, "workspaceId": owner.id })),
        ("workflow/definitions", json!({ "document": { "name": "x", "nodes": {} }, "workspaceId": owner.id })),
        ("keys", json!({ "name": "k", "workspaceId": owner.id })),
    ] {
        assert_eq!(other.api.post(path, body).await.problem(403), "workspace_mismatch", "{path}");
    }
    let path = format!("workflow/definitions?workspaceId={}", owner.id);
    assert_eq!(other.api.get(&path).await.problem(403), "workspace_mismatch");
    let seen = other.api.get("workspaces").await.expect(200);
    assert_eq!(seen["items"].as_array().map(Vec::len), Some(1), "{seen}");
    assert_eq!(text(&seen["items"][0]["id"]), other.id);
    assert_eq!(other.api.get(&format!("workspaces?name={}", owner.name)).await.expect(200)["items"], json!([]));
    assert_eq!(other.api.get("workflow/definitions").await.expect(200)["items"], json!([]));
    assert_eq!(changed(&world, [&owner, &other]).await, before, "and nothing happened to them");
    assert_eq!(owner.status(&execution).await, "RUNNING");
}

#[tokio::test]
async fn what_needs_a_root_key_is_forbidden_to_a_workspaces_own() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let created = tenant.api.post("workspaces", json!({ "name": "more", "tier": "ENTERPRISE" })).await;
    assert_eq!(created.problem(403), "forbidden");
    let raised = tenant.api.patch(&format!("workspaces/{}", tenant.id), json!({ "tier": "ENTERPRISE" })).await;
    assert_eq!(raised.problem(403), "forbidden");
    let root = world.server.api();
    for (path, body) in [
        ("workflow/executions/start", json!({ "workflowDefinitionId": NOBODY })),
        ("workflow/definitions/apply", json!({ "document": { "name": "x", "nodes": {} } })),
        ("keys", json!({ "name": "k" })),
    ] {
        assert_eq!(root.post(path, body).await.problem(422), "validation_failed", "{path}: which workspace?");
    }
    let nowhere = json!({ "name": "k", "workspaceId": NOBODY });
    assert_eq!(root.post("keys", nowhere).await.problem(404), "not_found");
}

#[tokio::test]
async fn an_unknown_address_and_an_unsupported_method_have_different_errors() {
    let world = Shared::new().await;
    let root = world.server.api();
    for path in [
        "/",
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v2/workspaces",
        "nothing",
        "workspaces/",
        "/api/v1//workspaces",
        "/api/v1/Workspaces",
        "/api/v1/workspaces;x",
        "/api/v1/%2e%2e/healthz",
        "workspaces/not-an-id",
        "workspaces/%00",
        "workspaces/019a0000-0000-7000-8000-00000000000",
        &format!("workspaces/{}", "a".repeat(5_000)),
        &format!("workspaces/{NOBODY}"),
        &format!("workflow/definitions/{NOBODY}"),
        &format!("workflow/executions/{NOBODY}"),
        &format!("workflow/executions/{NOBODY}/nodes"),
        &format!("workflow/executions/{NOBODY}/summary"),
        &format!("workflow/executions/{NOBODY}/logs"),
        &format!("workflow/queue/{NOBODY}"),
    ] {
        assert_eq!(root.get(path).await.problem(404), "not_found", "{path}");
    }
    let start = json!({ "workflowDefinitionId": NOBODY, "workspaceId": NOBODY });
    assert_eq!(root.post("workflow/executions/start", start).await.problem(404), "not_found");
    for (method, path) in [
        (Method::DELETE, "workspaces"),
        (Method::PUT, "workflow/definitions"),
        (Method::GET, "workflow/executions/start"),
        (Method::POST, "/healthz"),
        (Method::DELETE, "/metrics"),
    ] {
        let reply = send(root.request(method.clone(), path)).await;
        assert_eq!(reply.problem(405), "method_not_allowed", "{method} {path}");
        assert!(!reply.header("allow").is_empty(), "{method} {path} says what is allowed: {:?}", reply.headers);
    }
}
