//! One table tests every route with every kind of key, and whether the key may use the route.
//!
//! The routes come from the OpenAPI document that the service serves. A route without a row fails the test.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use store::access::key::Secret;

use crate::secrets::KEY;
use crate::support::http::{Api, Reply, begin, send};
use crate::support::tenant::text;
use crate::support::{Tenant, World, until};

/// The response to a key of another workspace that has every scope.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stranger {
    /// The thing does not exist.
    NotFound,
    /// The same; and to our own key that only a root key may.
    Unseen,
    /// A list, and nothing of ours in it.
    Nothing,
    /// Naming our workspace is refused.
    Mismatch,
    /// The same response, for each item.
    Each,
    /// Only a root key may: so is our own key.
    Root,
    /// It concerns nobody's things.
    Fine,
}
use Stranger::{Each, Fine, Mismatch, NotFound, Nothing, Root, Unseen};

/// Method, path below `/api/v1`, the scope it needs, the response to a stranger, the status for the right key.
const TABLE: &[(&str, &str, &str, Stranger, u16)] = &[
    ("POST", "/workspaces", "manage", Root, 201),
    ("GET", "/workspaces", "read", Nothing, 200),
    ("GET", "/workspaces/{id}", "read", NotFound, 200),
    ("PATCH", "/workspaces/{id}", "manage", Unseen, 200),
    ("GET", "/workspaces/{id}/capacity", "read", NotFound, 200),
    ("POST", "/workspaces/{id}/pause", "manage", Unseen, 200),
    ("POST", "/workspaces/{id}/resume", "manage", Unseen, 200),
    ("GET", "/workspaces/{id}/outbound", "read", NotFound, 200),
    ("PUT", "/workspaces/{id}/outbound", "manage", Unseen, 200),
    ("GET", "/workspaces/{id}/secrets", "read", NotFound, 200),
    ("PUT", "/workspaces/{id}/secrets/{name}", "manage", NotFound, 200),
    ("DELETE", "/workspaces/{id}/secrets/{name}", "manage", NotFound, 204),
    ("POST", "/keys", "manage", Mismatch, 201),
    ("GET", "/keys", "read", Nothing, 200),
    ("POST", "/keys/{id}/revoke", "manage", NotFound, 204),
    ("GET", "/activity", "read", Nothing, 200),
    ("POST", "/workflow/definitions", "manage", Mismatch, 201),
    ("GET", "/workflow/definitions", "read", Nothing, 200),
    ("POST", "/workflow/definitions/validate", "read", Fine, 200),
    ("POST", "/workflow/definitions/apply", "manage", Mismatch, 200),
    ("GET", "/workflow/definitions/{id}", "read", NotFound, 200),
    ("GET", "/workflow/definitions/{id}/versions", "read", NotFound, 200),
    ("POST", "/workflow/definitions/{id}/versions", "manage", NotFound, 201),
    ("POST", "/workflow/definitions/{id}/publish", "manage", NotFound, 200),
    ("GET", "/workflow/definitions/{id}/graph", "read", NotFound, 200),
    ("GET", "/workflow/definitions/{id}/versions/{number}", "read", NotFound, 200),
    ("GET", "/workflow/definitions/{id}/versions/{number}/diff", "read", NotFound, 200),
    ("POST", "/workflow/definitions/{id}/pause", "manage", NotFound, 200),
    ("POST", "/workflow/definitions/{id}/resume", "manage", NotFound, 200),
    ("GET", "/workflow/nodes", "read", Fine, 200),
    ("GET", "/workflow/schema", "read", Fine, 200),
    ("GET", "/workflow/executions", "read", Nothing, 200),
    ("GET", "/workflow/executions/workflow/{definitionId}", "read", NotFound, 200),
    ("GET", "/workflow/executions/workspace/{workspaceId}", "read", NotFound, 200),
    ("POST", "/workflow/executions/start", "run", Mismatch, 202),
    ("POST", "/workflow/executions/bulk", "run", Each, 200),
    ("GET", "/workflow/executions/{id}", "read", NotFound, 200),
    ("GET", "/workflow/executions/{id}/nodes", "read", NotFound, 200),
    ("GET", "/workflow/executions/{id}/children", "read", NotFound, 200),
    ("GET", "/workflow/executions/{id}/summary", "read", NotFound, 200),
    ("GET", "/workflow/executions/{id}/logs", "read", NotFound, 200),
    ("GET", "/workflow/executions/{id}/tree", "read", NotFound, 200),
    ("POST", "/workflow/expressions/evaluate", "read", NotFound, 200),
    ("GET", "/workflow/executions/{id}/graph", "read", NotFound, 200),
    ("POST", "/workflow/executions/{id}/cancel", "run", NotFound, 200),
    ("POST", "/workflow/executions/{id}/terminate", "run", NotFound, 200),
    ("POST", "/workflow/executions/{id}/rerun", "run", NotFound, 202),
    ("GET", "/workflow/queue", "read", Nothing, 200),
    ("GET", "/workflow/queue/{id}", "read", NotFound, 200),
    ("POST", "/workflow/queue/{id}/dismiss", "run", NotFound, 204),
    ("POST", "/events", "run", Mismatch, 200),
    ("GET", "/events", "read", Nothing, 200),
    ("GET", "/events/{id}", "read", NotFound, 200),
    ("POST", "/events/{id}/retry", "run", NotFound, 200),
    ("POST", "/events/{id}/dismiss", "run", NotFound, 409),
    ("POST", "/bindings", "manage", Mismatch, 201),
    ("GET", "/bindings", "read", Nothing, 200),
    ("GET", "/bindings/{id}", "read", NotFound, 200),
    ("PATCH", "/bindings/{id}", "manage", NotFound, 200),
    ("GET", "/jobs", "read", Nothing, 200),
    ("GET", "/jobs/{id}", "read", NotFound, 200),
    ("POST", "/jobs/{id}/heartbeat", "run", NotFound, 200),
    ("POST", "/jobs/{id}/fail", "run", NotFound, 200),
    ("POST", "/jobs/{id}/retry", "run", NotFound, 200),
    ("POST", "/jobs/claim", "run", Mismatch, 200),
    ("POST", "/jobs/{id}/complete", "run", NotFound, 409),
    ("DELETE", "/bindings/{id}", "manage", NotFound, 204),
    ("POST", "/webhooks", "manage", Mismatch, 201),
    ("GET", "/webhooks", "read", Nothing, 200),
    ("GET", "/webhooks/{id}", "read", NotFound, 200),
    ("PATCH", "/webhooks/{id}", "manage", NotFound, 200),
    ("POST", "/webhooks/{id}/rotate", "manage", NotFound, 200),
    ("GET", "/webhooks/{id}/deliveries", "read", NotFound, 200),
    ("POST", "/webhooks/{id}/deliveries/{deliveryId}/retry", "manage", NotFound, 202),
    ("DELETE", "/webhooks/{id}", "manage", NotFound, 204),
    ("POST", "/triggers", "manage", NotFound, 201),
    ("GET", "/triggers", "read", Nothing, 200),
    ("GET", "/triggers/{id}", "read", NotFound, 200),
    ("POST", "/triggers/{id}/rotate", "manage", NotFound, 200),
    ("POST", "/triggers/{id}/revoke", "manage", NotFound, 204),
    ("GET", "/workflow/executions/{id}/events", "read", NotFound, 200),
    ("GET", "/workflow/executions/events", "read", Nothing, 200),
    ("GET", "/workflow/queue/events", "read", Nothing, 200),
    ("GET", "/jobs/events", "read", Nothing, 200),
    ("POST", "/schedules", "manage", Mismatch, 201),
    ("GET", "/schedules", "read", Nothing, 200),
    ("GET", "/schedules/next", "read", Fine, 200),
    ("GET", "/schedules/{id}", "read", NotFound, 200),
    ("PATCH", "/schedules/{id}", "manage", NotFound, 200),
    ("POST", "/schedules/{id}/pause", "manage", NotFound, 200),
    ("POST", "/schedules/{id}/resume", "manage", NotFound, 200),
    ("POST", "/schedules/{id}/run", "run", NotFound, 202),
    ("GET", "/schedules/{id}/ticks", "read", NotFound, 200),
    ("DELETE", "/schedules/{id}", "manage", NotFound, 204),
    ("GET", "/workflow/executions/{id}/waits", "read", NotFound, 200),
    ("POST", "/workflow/executions/{id}/waits/{node}/token", "run", NotFound, 201),
    ("POST", "/workflow/executions/{id}/waits/{node}/answer", "run", NotFound, 200),
    ("GET", "/tasks", "read", Nothing, 200),
    ("POST", "/tasks/claim", "run", Mismatch, 200),
    ("GET", "/tasks/{id}", "read", NotFound, 200),
    ("POST", "/tasks/{id}/heartbeat", "run", NotFound, 200),
    ("POST", "/tasks/{id}/complete", "run", NotFound, 200),
    ("POST", "/tasks/{id}/fail", "run", NotFound, 409),
    // Nothing is left to ask for behind these.
    ("DELETE", "/workflow/definitions/{id}", "manage", NotFound, 204),
    ("DELETE", "/workspaces/{id}", "manage", Unseen, 204),
];

/// What needs no key, on purpose. Whoever has the token of a trigger starts its workflow, whoever has one of a wait
/// answers it, and can do nothing else.
const OPEN: [&str; 7] = [
    "GET /answers/{token}",
    "GET /api/openapi.json",
    "GET /healthz",
    "GET /metrics",
    "GET /readyz",
    "POST /answers/{token}",
    "POST /triggers/{token}",
];

/// The things of one tenant that the routes are about.
struct Things {
    tenant: Tenant,
    definition: String,
    execution: String,
    /// An execution that failed.
    dead_letter: String,
    key: String,
    /// An event whose handling failed, a binding, and a job under a claim.
    event: String,
    binding: String,
    job: String,
    claim: String,
    /// A webhook, its deliveries, and a workflow that takes webhooks with its trigger.
    webhook: String,
    delivery: String,
    triggered: String,
    trigger: String,
    schedule: String,
    /// An execution that waits for an answer, and a task under a claim.
    asking: String,
    task: String,
    task_claim: String,
}

impl Things {
    async fn of(world: &World) -> Things {
        let tenant = world.tenant("PRO").await;
        let definition = tenant.light().await;
        let execution = tenant.start(&definition).await;
        tenant.completed(&execution).await;
        let broken = tenant.apply("broken", json!({ "stop": { "kind": "FAIL", "with": { "message": "no" } } })).await;
        let dead_letter = tenant.start(&broken).await;
        assert_eq!(tenant.ended(&dead_letter).await["status"], "FAILED");
        let key = text(&tenant.api.post("keys", json!({ "name": "spare" })).await.expect(201)["id"]);
        let [event, binding, job, claim] = events(world, &tenant).await;
        let times = json!({ "workflowDefinitionId": definition, "cron": "0 0 1 1 *" });
        let schedule = text(&tenant.api.post("schedules", times).await.expect(201)["id"]);
        let [webhook, delivery, triggered, trigger] = webhooks(world, &tenant, &execution).await;
        let [asking, task, task_claim] = asks(world, &tenant).await;
        Things {
            tenant,
            definition,
            execution,
            dead_letter,
            key,
            event,
            binding,
            job,
            claim,
            webhook,
            delivery,
            triggered,
            trigger,
            schedule,
            asking,
            task,
            task_claim,
        }
    }

    fn path(&self, path: &str) -> String {
        let id = match path {
            _ if path.starts_with("/workspaces") => &self.tenant.id,
            _ if path.starts_with("/keys") => &self.key,
            _ if path.starts_with("/workflow/definitions") => &self.definition,
            _ if path.starts_with("/events") => &self.event,
            _ if path.starts_with("/bindings") => &self.binding,
            _ if path.starts_with("/jobs") => &self.job,
            _ if path.starts_with("/webhooks") => &self.webhook,
            _ if path.starts_with("/triggers") => &self.trigger,
            "/schedules/next" => return "/api/v1/schedules/next?cron=@daily".to_owned(),
            _ if path.starts_with("/schedules") => &self.schedule,
            _ if path.starts_with("/tasks") => &self.task,
            _ if path.contains("/waits") => &self.asking,
            _ if path.ends_with("/dismiss") => &self.dead_letter,
            "/workflow/queue" => return "/api/v1/workflow/queue?status=FAILED".to_owned(),
            _ => &self.execution,
        };
        let path = path
            .replace("{number}", "1")
            .replace("{node}", "approve")
            .replace("{deliveryId}", &self.delivery)
            .replace("{definitionId}", &self.definition)
            .replace("{workspaceId}", &self.tenant.id);
        format!("/api/v1{}", path.replace("{id}", id).replace("{name}", "SECRET"))
    }

    /// A body that the route takes; one that may name a workspace names ours.
    fn body(&self, method: &str, path: &str) -> Option<Value> {
        let graph =
            |name: &str| json!({ "name": name, "nodes": { "say": { "kind": "LOG", "with": { "message": "new" } } } });
        let ours = &self.tenant.id;
        let body = match (method, path) {
            ("POST", "/workspaces") => json!({ "name": format!("made-{ours}") }),
            ("PUT", "/workspaces/{id}/outbound") => json!({ "deny": ["tracker.example"] }),
            ("PUT", "/workspaces/{id}/secrets/{name}") => json!({ "value": "hunter2" }),
            ("POST", "/webhooks") => json!({ "url": "https://x.example", "workspaceId": ours }),
            ("PATCH", "/webhooks/{id}") => json!({ "description": "changed" }),
            ("POST", "/triggers") => json!({ "workflowDefinitionId": self.triggered }),
            ("PATCH", "/workspaces/{id}") => json!({ "weight": 2 }),
            ("POST", "/keys") => json!({ "name": "made", "workspaceId": ours }),
            ("POST", "/workflow/definitions") => json!({ "document": graph("made"), "workspaceId": ours }),
            ("POST", "/workflow/definitions/apply") => json!({ "document": graph("applied"), "workspaceId": ours }),
            ("POST", "/workflow/definitions/validate" | "/workflow/definitions/{id}/versions") => {
                json!({ "document": graph("light") })
            }
            ("POST", "/workflow/executions/start") => {
                json!({ "workflowDefinitionId": self.definition, "workspaceId": ours })
            }
            ("POST", "/workflow/expressions/evaluate") => {
                json!({ "expression": "inputs.a", "executionId": self.execution })
            }
            ("POST", "/workflow/executions/bulk") => {
                json!({ "items": [{ "workflowDefinitionId": self.definition, "workspaceId": ours }] })
            }
            ("POST", "/events") => json!({ "workspaceId": ours, "events": [made_event("made")] }),
            ("POST", "/bindings") => json!({ "workspaceId": ours, "eventType": "made" }),
            ("PATCH", "/bindings/{id}") => json!({ "leaseSeconds": 60 }),
            ("POST", "/schedules") => {
                json!({ "workspaceId": ours, "workflowDefinitionId": self.definition, "cron": "0 0 2 1 *" })
            }
            ("PATCH", "/schedules/{id}") => json!({ "cron": "0 0 3 1 *" }),
            ("POST", "/jobs/claim") => json!({ "workspaceId": ours, "workerId": "w-2" }),
            ("POST", "/jobs/{id}/fail") => json!({ "claimId": self.claim, "errorMessage": "no" }),
            ("POST", "/jobs/{id}/heartbeat" | "/jobs/{id}/complete") => json!({ "claimId": self.claim }),
            ("POST", "/tasks/claim") => json!({ "workspaceId": ours, "queues": ["mail"], "workerId": "w-2" }),
            ("POST", "/tasks/{id}/fail") => json!({ "claimId": self.task_claim, "message": "no" }),
            ("POST", "/tasks/{id}/heartbeat" | "/tasks/{id}/complete") => json!({ "claimId": self.task_claim }),
            ("POST", _) => json!({}),
            _ => return None,
        };
        Some(body)
    }

    async fn ask(&self, api: &Api, method: &str, path: &str) -> Reply {
        let request = api.request(Method::from_bytes(method.as_bytes()).expect("a method"), &self.path(path));
        if path.ends_with("/events") && path != "/events" {
            return begin(request).await;
        }
        send(match self.body(method, path) {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    /// One of our keys, with these scopes.
    async fn key(&self, scopes: &[&str]) -> Api {
        let made = self.tenant.api.post("keys", json!({ "name": "k", "scopes": scopes })).await.expect(201);
        self.tenant.api.with_key(&text(&made["key"]))
    }

    /// Keys that no longer work: one revoked, one expired.
    async fn ended(&self, world: &World) -> [(&'static str, Api); 2] {
        let mut ended = Vec::new();
        for revoked in [true, false] {
            let made = self.tenant.api.post("keys", json!({ "name": "ended" })).await.expect(201);
            let (api, id) = (self.tenant.api.with_key(&text(&made["key"])), text(&made["id"]));
            api.get("workspaces").await.expect(200);
            match revoked {
                true => drop(self.tenant.api.post(&format!("keys/{id}/revoke"), Value::Null).await.expect(204)),
                false => world.run_sql(&format!("UPDATE api_key SET expires_at = now() WHERE id = '{id}'")).await,
            }
            until("it is refused", async || (api.get("workspaces").await.status == 401).then_some(())).await;
            ended.push(api);
        }
        let [revoked, expired] = ended.try_into().ok().expect("two keys");
        [("revoked", revoked), ("expired", expired)]
    }
}

fn made_event(kind: &str) -> Value {
    json!({ "type": kind, "streamId": store::new_id(), "streamType": "order" })
}

/// An event whose handling failed, the binding it has, and a job of another one with its claim.
async fn events(world: &World, tenant: &Tenant) -> [String; 4] {
    let binding = tenant.api.post("bindings", json!({ "eventType": "access.*" })).await.expect(201);
    tenant.api.post("events", json!({ "events": [made_event("access.good")] })).await.expect(200);
    let claimed = tenant.api.post("jobs/claim", json!({ "workerId": "w-1" })).await.expect(200);
    world.run_sql("ALTER TABLE workflow_queue_projection ADD CONSTRAINT bad CHECK (event_type <> 'access.bad')").await;
    let event = tenant.api.post("events", json!({ "events": [made_event("access.bad")] })).await.expect(200);
    world.run_sql("ALTER TABLE workflow_queue_projection DROP CONSTRAINT bad").await;
    let item = &claimed["items"][0];
    [&event["events"][0]["id"], &binding["id"], &item["job"]["id"], &item["claimId"]].map(text)
}

/// A webhook with a delivery, and a workflow that takes webhooks with its trigger.
async fn webhooks(world: &World, tenant: &Tenant, execution: &str) -> [String; 4] {
    let made = tenant.api.post("webhooks", json!({ "url": world.receiver.url("/call/webhook") })).await.expect(201);
    let (webhook, delivery) = (text(&made["webhook"]["id"]), store::new_id().to_string());
    world
        .run_sql(&format!(
            "INSERT INTO webhook_delivery (id, webhook_id, workspace_id, execution_id, event, status, ended_at)
             VALUES ('{delivery}', '{webhook}', '{}', '{execution}', 'COMPLETED', 'DELIVERED', now())",
            tenant.id
        ))
        .await;
    let document = json!({
        "name": "triggered", "on": { "http": {} }, "nodes": { "say": { "kind": "LOG", "with": { "message": "x" } } },
    });
    let applied = tenant.api.post("workflow/definitions/apply", json!({ "document": document })).await.expect(200);
    let triggers = tenant.api.get("triggers").await.expect(200);
    [webhook, delivery, text(&applied["definition"]["id"]), text(&triggers["items"][0]["id"])]
}

/// An execution that waits for an answer, and a task of it with its claim.
async fn asks(world: &World, tenant: &Tenant) -> [String; 3] {
    let definition = tenant.apply("asking", json!({ "approve": { "kind": "WAIT_FOR_EVENT" } })).await;
    tenant.api.post(&format!("workflow/definitions/{definition}/pause"), json!({})).await.expect(200);
    let (asking, task, claim) = (tenant.start(&definition).await, store::new_id(), store::new_id());
    world
        .run_sql(&format!(
            "INSERT INTO workflow_execution_wait (execution_id, node, id, workspace_id, holder, kind, attempt, status, queue, lease_s,
                 opened_at, claim_id, worker, claim_lease_s, lease_until)
             VALUES ('{asking}', 'work', '{task}', '{}', '{asking}', 'TASK', 1, 'CLAIMED', 'mail', 60, now(), '{claim}', 'w-1', 3600,
                 now() + interval '1 hour')",
            tenant.id
        ))
        .await;
    [asking, task.to_string(), claim.to_string()]
}

#[tokio::test]
async fn every_route_has_its_row() {
    let world = World::with(&[KEY]).await;
    let document = world.server.anonymous().get("/api/openapi.json").await.expect(200);
    let (mut routes, mut open) = (BTreeSet::new(), BTreeSet::new());
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let methods = operations.as_object().expect("operations").keys();
        match path.strip_prefix("/api/v1") {
            Some(path) => routes.extend(methods.map(|method| format!("{} {path}", method.to_uppercase()))),
            None => open.extend(methods.map(|method| format!("{} {path}", method.to_uppercase()))),
        }
    }
    assert_eq!(open.iter().map(String::as_str).collect::<Vec<_>>(), OPEN, "what needs no key is a short list");
    let rows: BTreeSet<String> = TABLE.iter().map(|(method, path, ..)| format!("{method} {path}")).collect();
    let missing: Vec<_> = routes.difference(&rows).collect();
    assert!(missing.is_empty(), "say in TABLE who may use {missing:?}");
    let stale: Vec<_> = rows.difference(&routes).collect();
    assert!(stale.is_empty(), "there is no route any more for {stale:?}");
}

#[tokio::test]
async fn no_key_a_bad_key_and_an_ended_key_open_nothing() {
    let world = World::with(&[KEY, "auth.max_failures_per_address=100000"]).await;
    let ours = Things::of(&world).await;
    let stranger = Secret::generate().expect("randomness");
    let mut keys = vec![
        ("none", world.server.anonymous()),
        ("malformed", ours.tenant.api.with_key("nonsense")),
        ("nobody's", ours.tenant.api.with_key(stranger.expose())),
    ];
    keys.extend(ours.ended(&world).await);
    let before = world.everything().await;
    for (what, api) in &keys {
        for (method, path, ..) in TABLE {
            let reply = ours.ask(api, method, path).await;
            assert_eq!(reply.problem(401), "unauthenticated", "{what}: {method} {path}");
        }
    }
    assert_eq!(world.everything().await, before, "nothing was changed");
}

#[tokio::test]
async fn a_key_without_the_scope_is_forbidden_and_one_with_nothing_else_suffices() {
    let world = World::with(&[KEY]).await;
    let ours = Things::of(&world).await;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for scope in ["read", "run", "manage"] {
        let others: Vec<&str> = ["read", "run", "manage"].into_iter().filter(|other| *other != scope).collect();
        with.push((scope, ours.key(&[scope]).await));
        without.push((scope, ours.key(&others).await));
    }
    let of =
        |keys: &[(&str, Api)], scope: &str| keys.iter().find(|(known, _)| *known == scope).expect("a scope").1.clone();
    let before = world.everything().await;
    for (method, path, scope, ..) in TABLE {
        let reply = ours.ask(&of(&without, scope), method, path).await;
        assert_eq!(reply.problem(403), "forbidden", "{method} {path} without {scope}");
    }
    assert_eq!(world.everything().await, before, "nothing was changed");
    for (method, path, scope, stranger, status) in TABLE {
        let needs_root = matches!(stranger, Root | Unseen);
        let (own, root) = (of(&with, scope), world.server.api());
        if needs_root {
            let reply = ours.ask(&own, method, path).await;
            assert_eq!(reply.problem(403), "forbidden", "{method} {path}: a workspace's key");
        }
        let reply = ours.ask(if needs_root { &root } else { &own }, method, path).await;
        assert_eq!(reply.status, *status, "{method} {path}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_key_of_another_workspace_finds_nothing() {
    let world = World::with(&[KEY]).await;
    let ours = Things::of(&world).await;
    let other = world.tenant("PRO").await;
    let before = world.everything().await;
    for (method, path, _, stranger, _) in TABLE {
        let reply = ours.ask(&other.api, method, path).await;
        let what = format!("{method} {path}: {}", reply.text);
        match stranger {
            NotFound | Unseen => assert_eq!(reply.problem(404), "not_found", "{what}"),
            Mismatch => assert_eq!(reply.problem(403), "workspace_mismatch", "{what}"),
            Each => {
                assert_eq!(reply.status, 200, "{what}");
                assert_eq!(reply.body["items"][0]["problem"]["code"], "workspace_mismatch", "{what}");
            }
            Root => assert_eq!(reply.problem(403), "forbidden", "{what}"),
            Fine => assert_eq!(reply.status, 200, "{what}"),
            Nothing => {
                assert_eq!(reply.status, 200, "{what}");
                for id in [
                    &ours.tenant.id,
                    &ours.definition,
                    &ours.execution,
                    &ours.dead_letter,
                    &ours.key,
                    &ours.event,
                    &ours.job,
                    &ours.webhook,
                    &ours.trigger,
                    &ours.schedule,
                    &ours.task,
                ] {
                    assert!(!reply.text.contains(id.as_str()), "{what}");
                }
            }
        }
    }
    assert_eq!(world.everything().await, before, "nothing was changed");
}
