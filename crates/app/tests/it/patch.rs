//! PATCH of bindings, schedules, webhooks and workspaces. An omitted field keeps its value, and null resets a field to
//! its default. A refused request changes nothing. Of two concurrent changes, neither is lost.

use serde_json::{Value, json};

use crate::secrets::KEY;
use crate::support::http::Api;
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World, until};

/// A field that a PATCH may name.
struct Field {
    name: &'static str,
    /// The field of the response that shows it.
    shown: &'static str,
    /// A value other than the stored one.
    other: Value,
    /// The value after null. None: the field has no default, so null is refused.
    default: Option<Value>,
}

fn field(name: &'static str, other: Value, default: Value) -> Field {
    Field { name, shown: name, other, default: Some(default) }
}

fn required(name: &'static str, other: Value) -> Field {
    Field { name, shown: name, other, default: None }
}

/// A stored resource, and the cases of its PATCH.
struct Resource {
    api: Api,
    path: String,
    table: &'static str,
    id: String,
    /// The test changes the fields one by one in this order, and then resets them in this order.
    fields: Vec<Field>,
    /// Bodies that are refused. Most also name a field with a good value.
    refused: Vec<Value>,
    /// Two changes of different fields, and the status of the later one if they are concurrent.
    concurrent: ([Value; 2], u16),
}

impl Resource {
    async fn created(api: &Api, path: &str, body: Value) -> String {
        let made = api.post(path, body).await.expect(201);
        text(made["id"].as_str().map_or(&made["webhook"]["id"], |_| &made["id"]))
    }

    async fn read(&self) -> Value {
        self.api.get(&self.path).await.expect(200)
    }

    /// The fields that a PATCH may name, read from a response.
    fn shown(&self, answer: &Value) -> Value {
        self.fields.iter().map(|field| (field.name.to_owned(), answer[field.shown].clone())).collect()
    }

    async fn check_change(&self, body: Value, expected: &Value) {
        let answer = self.api.patch(&self.path, body.clone()).await.expect(200);
        assert_eq!(&self.shown(&answer), expected, "the response of {} to {body}", self.path);
        assert_eq!(&self.shown(&self.read().await), expected, "{} as stored after {body}", self.path);
    }
}

const LATER: &str = "2040-01-01T00:00:00Z";

async fn binding(tenant: &Tenant) -> Resource {
    let stop = json!({ "stop": { "kind": "FAIL", "with": { "message": "no" } } });
    let (light, other) = (tenant.light().await, tenant.apply("other", stop).await);
    let body = json!({ "eventType": "order.*", "workflowDefinitionId": light,
        "filter": "trigger.event.data.total > 1", "input": { "a": 1 }, "workflowId": "a-{executionId}" });
    let id = Resource::created(&tenant.api, "bindings", body).await;
    Resource {
        api: tenant.api.clone(),
        path: format!("bindings/{id}"),
        table: "event_binding",
        id,
        fields: vec![
            field("filter", json!("trigger.event.data.total > 2"), Value::Null),
            field("input", json!({ "b": 2 }), Value::Null),
            field("workflowId", json!("b-{executionId}"), Value::Null),
            field("leaseSeconds", json!(60), json!(900)),
            // This one is last, because filter, input and workflowId need a workflow.
            field("workflowDefinitionId", json!(other), Value::Null),
        ],
        refused: vec![
            json!({ "leaseSeconds": 60, "surprise": 1 }),
            json!({ "leaseSeconds": 60, "eventType": "invoice.*" }),
            json!({ "leaseSeconds": 60, "filter": "nodes.say.output > 1" }),
            json!({ "filter": null, "leaseSeconds": 0 }),
            json!({ "filter": null, "workflowDefinitionId": null }),
        ],
        concurrent: ([json!({ "filter": "trigger.event.data.total > 3" }), json!({ "leaseSeconds": 30 })], 409),
    }
}

async fn schedule(tenant: &Tenant) -> Resource {
    let body = json!({ "workflowDefinitionId": tenant.light().await, "cron": "0 6 1 1 *", "timezone": "Europe/Berlin",
        "input": { "a": 1 }, "priority": 2, "concurrencyKey": "a", "overlap": "allow", "catchUp": "all" });
    let id = Resource::created(&tenant.api, "schedules", body).await;
    Resource {
        api: tenant.api.clone(),
        path: format!("schedules/{id}"),
        table: "schedule",
        id,
        fields: vec![
            required("cron", json!("0 7 1 1 *")),
            field("timezone", json!("America/New_York"), json!("UTC")),
            field("input", json!({ "b": 2 }), Value::Null),
            field("priority", json!(1), json!(3)),
            field("concurrencyKey", json!("b"), Value::Null),
            field("overlap", json!("buffer_one"), json!("skip")),
            field("catchUp", json!("skip"), json!("last")),
        ],
        refused: vec![
            json!({ "priority": 5, "surprise": 1 }),
            json!({ "priority": 5, "cron": "never" }),
            json!({ "priority": 5, "timezone": "Nowhere/Else" }),
            json!({ "input": null, "priority": 9 }),
            json!({ "input": null, "concurrencyKey": "" }),
            json!({ "runAt": "2001-01-01T00:00:00Z" }),
            json!({ "runAt": LATER, "cron": "0 7 1 1 *" }),
            json!({ "runAt": LATER, "overlap": "skip" }),
        ],
        concurrent: ([json!({ "priority": 4 }), json!({ "concurrencyKey": "c" })], 409),
    }
}

async fn webhook(world: &World, tenant: &Tenant) -> Resource {
    let url = |path: &str| json!(world.receiver.url(path));
    let body = json!({ "url": url("/echo/a"), "events": ["FAILED"], "description": "first" });
    let id = Resource::created(&tenant.api, "webhooks", body).await;
    Resource {
        api: tenant.api.clone(),
        path: format!("webhooks/{id}"),
        table: "webhook",
        id,
        fields: vec![
            required("url", url("/echo/b")),
            field("events", json!(["CANCELED"]), json!(["COMPLETED", "FAILED", "CANCELED", "TIMED_OUT"])),
            field("description", json!("second"), Value::Null),
            field("enabled", json!(false), json!(true)),
        ],
        refused: vec![
            json!({ "description": "third", "surprise": 1 }),
            json!({ "description": "third", "workflowDefinitionId": tenant.light().await }),
            json!({ "description": "third", "url": "ftp://example.com" }),
            json!({ "description": null, "url": "http://127.0.0.1:1/" }),
            json!({ "description": null, "events": [] }),
            json!({ "description": null, "events": ["RUNNING"] }),
            json!({ "enabled": false, "description": "x".repeat(501) }),
        ],
        concurrent: ([json!({ "description": "third" }), json!({ "events": ["TIMED_OUT"] })], 200),
    }
}

fn workspace(world: &World, tenant: &Tenant) -> Resource {
    Resource {
        api: world.server.api(),
        path: format!("workspaces/{}", tenant.id),
        table: "workspace",
        id: tenant.id.clone(),
        fields: vec![
            field("tier", json!("ENTERPRISE"), json!("FREE")),
            Field { shown: "limitOverride", ..field("limit", json!(7), Value::Null) },
            field("weight", json!(9), json!(1)),
            field("maxBacklog", json!(50), Value::Null),
        ],
        refused: vec![
            json!({ "weight": 2, "surprise": 1 }),
            json!({ "weight": 2, "name": "other" }),
            json!({ "weight": 2, "tier": "GOLD" }),
            json!({ "weight": 2, "limit": -1 }),
            json!({ "tier": null, "weight": 0 }),
            json!({ "tier": null, "maxBacklog": -1 }),
        ],
        concurrent: ([json!({ "weight": 3 }), json!({ "limit": 5 })], 200),
    }
}

async fn resources(world: &World) -> [Resource; 4] {
    let tenant = world.tenant("PRO").await;
    [binding(&tenant).await, schedule(&tenant).await, webhook(world, &tenant).await, workspace(world, &tenant)]
}

#[tokio::test]
async fn an_omitted_field_keeps_its_value_and_null_resets_it() {
    let world = World::with(&[KEY]).await;
    for resource in resources(&world).await {
        let mut expected = resource.shown(&resource.read().await);
        for Field { name, other, .. } in &resource.fields {
            assert_ne!(&expected[*name], other, "{}: the new {name} differs", resource.path);
            expected[*name] = other.clone();
            resource.check_change(json!({ *name: other }), &expected).await;
        }
        resource.check_change(json!({}), &expected).await;
        for Field { name, default, .. } in &resource.fields {
            let Some(default) = default else { continue };
            assert_ne!(&expected[*name], default, "{}: the default of {name} differs", resource.path);
            expected[*name] = default.clone();
            resource.check_change(json!({ *name: null }), &expected).await;
        }
    }
}

#[tokio::test]
async fn a_refused_change_changes_nothing() {
    let world = World::with(&[KEY]).await;
    for resource in resources(&world).await {
        let (before, audited) = (resource.read().await, world.count("activity").await);
        let nulls =
            resource.fields.iter().filter(|field| field.default.is_none()).map(|field| json!({ field.name: null }));
        for body in resource.refused.iter().cloned().chain(nulls) {
            let refused = resource.api.patch(&resource.path, body.clone()).await;
            assert_eq!(refused.problem(422), "validation_failed", "{}: {body}", resource.path);
            assert_eq!(resource.read().await, before, "{}: {body}", resource.path);
        }
        assert_eq!(world.count("activity").await, audited, "{}: nothing is recorded", resource.path);
    }
}

#[tokio::test]
async fn of_two_concurrent_changes_neither_is_lost() {
    let world = World::with(&[KEY]).await;
    for resource in resources(&world).await {
        let (path, ([one, two], later)) = (&resource.path, &resource.concurrent);
        // The lock holds both requests back after they have read the row, and before they write it.
        let holder = world.database.client().await;
        let lock = format!("BEGIN; SELECT FROM {} WHERE id = '{}' FOR UPDATE", resource.table, resource.id);
        holder.batch_execute(&lock).await.expect("a lock");
        let waits = format!(
            "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
               AND query LIKE '%UPDATE forebay.{}%'",
            resource.table
        );
        let release = async {
            until("both wait to write", async || (world.count(&waits).await == 2).then_some(())).await;
            holder.batch_execute("COMMIT").await.expect("the end of the lock");
        };
        let patch = |body: &Value| resource.api.patch(path, body.clone());
        let (first_reply, second_reply, ()) = tokio::join!(patch(one), patch(two), release);
        let mut statuses = [first_reply.status, second_reply.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, *later], "{path}: {} {}", first_reply.text, second_reply.text);
        for (body, reply) in [(one, &first_reply), (two, &second_reply)] {
            if reply.status == 409 {
                assert_eq!(reply.problem(409), "conflict", "{path}");
                resource.api.patch(path, body.clone()).await.expect(200);
            }
        }
        let shown = resource.shown(&resource.read().await);
        for (name, value) in [one, two].into_iter().flat_map(|body| body.as_object().expect("fields")) {
            assert_eq!(&shown[name], value, "{path}: the change of {name} was accepted");
        }
    }
}

#[tokio::test]
async fn a_schedule_that_changes_to_one_time_and_back_keeps_what_both_kinds_have() {
    let world = Shared::new().await;
    let resource = schedule(&world.tenant("PRO").await).await;
    let patch = async |body: Value| {
        let answer = resource.api.patch(&resource.path, body).await.expect(200);
        ["cron", "timezone", "overlap", "runAt", "priority", "catchUp"].map(|name| answer[name].clone())
    };
    let once = patch(json!({ "runAt": LATER })).await;
    assert_eq!(json!(once), json!([null, null, "allow", LATER, 2, "all"]));
    let repeated = patch(json!({ "cron": "0 6 1 1 *" })).await;
    assert_eq!(json!(repeated), json!(["0 6 1 1 *", "UTC", "skip", null, 2, "all"]));
}
