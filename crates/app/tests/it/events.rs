//! Tests events and the jobs they create, with real processes. Plain SQL, the API and workflows append the events. Our
//! worker, clients of the API and plain SQL claim the jobs side by side.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::server::MORTAL;
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World, until};

const BOOTSTRAP: &str = include_str!("../../../../examples/bootstrap.yaml");

/// The workspace of the platform, with the example in it.
async fn platform(world: &World) -> Tenant {
    let root = world.server.api();
    let made = root.post("workspaces", json!({ "name": "platform", "tier": "ENTERPRISE" })).await.expect(201);
    let cli = Cli::of(&world.server.base, world.server.root_key().expose());
    cli.file("bootstrap.yaml", BOOTSTRAP);
    cli.ok(&["apply", "bootstrap.yaml", "--workspace", "platform"]).await;
    Tenant { id: text(&made["id"]), name: "platform".to_owned(), api: root }
}

async fn job(api: &crate::support::http::Api, event: &str, status: &str) -> Value {
    until(&format!("the job of {event} is {status}"), async || {
        let jobs = api.get("jobs").await.expect(200);
        let found = jobs["items"].as_array().expect("a list").iter().find(|job| job["eventId"] == event);
        found.filter(|job| job["status"] == status).cloned()
    })
    .await
}

/// Runs statements with `psql`, as anybody would; answers what it printed, or what it complained of.
fn psql(world: &World, sql: &str) -> Result<String, String> {
    let done = Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &world.database.url, "-c", sql])
        .output()
        .expect("psql runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

const INSERT: &str = "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
    VALUES (gen_random_uuid(), 'organization', 1, 'organization.bootstrap.initiated', '{\"subdomain\": \"acme\"}') RETURNING id";

#[tokio::test]
async fn an_event_by_plain_sql_runs_its_workflow_and_the_job_holds_what_came_out() {
    // No poll comes in time: the bell wakes our worker.
    let world = World::with(&["dispatch.poll_interval_ms=60000"]).await;
    let platform = platform(&world).await;
    let event = psql(&world, INSERT).expect("an event");
    let job = job(&platform.api, &event, "completed").await;
    assert_eq!(job["workflowId"], "org-bootstrap-acme");
    let org = text(&job["streamId"]);
    assert_eq!(job["result"], json!({ "orgId": org, "domain": "acme.example.com" }));
    let worker = text(&job["workerId"]);
    assert_eq!(worker.rsplit('-').next(), Some(world.server.process.pid().to_string().as_str()), "{worker}");
    let execution = platform.completed(&text(&job["workflowRunId"])).await;
    assert_eq!(execution["trigger"]["event"]["id"], json!(event));

    // And the workflow said so, once, as the next of the organization's own events.
    let said = platform.api.get(&format!("events?streamId={org}")).await.expect(200);
    let types: Vec<&Value> = said["items"].as_array().expect("a list").iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["organization.bootstrap.completed", "organization.bootstrap.initiated"]);
    assert_eq!(said["items"][0]["metadata"]["causation_id"], json!(event));
    let steps =
        platform.api.get(&format!("events?streamId={}&streamType=workflow_queue", text(&job["id"]))).await.expect(200);
    let steps: Vec<&Value> = steps["items"].as_array().expect("a list").iter().map(|event| &event["type"]).collect();
    assert_eq!(steps, ["workflow.queue.completed", "workflow.queue.claimed", "workflow.queue.pending"]);
    let check = Cli::new().ok(&["job", "check", "--database-url", &world.database.url]).await;
    assert_eq!(check, "1 jobs agree with the recorded events\n");
}

#[tokio::test]
async fn a_transient_error_is_answered_503_and_one_that_was_stored_is_handled_again() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    tenant.api.post("bindings", json!({ "eventType": "order.*" })).await.expect(201);
    let id = store::new_id();
    let event = json!({ "id": id, "type": "order.placed", "streamId": store::new_id(), "streamType": "order" });
    let append = async || tenant.api.post("events", json!({ "events": [event.clone()] })).await;
    let mut client = world.database.client().await;
    let lock = client.transaction().await.expect("a transaction");
    lock.batch_execute("LOCK TABLE workflow_queue_job IN SHARE MODE").await.expect("a lock");
    let refused = append().await;
    assert_eq!((refused.problem(503), refused.header("retry-after")), ("unavailable", "2"));
    lock.rollback().await.expect("released");
    assert_eq!(append().await.expect(200)["events"][0]["repeated"], false, "nothing of the first is there");
    job(&tenant.api, &id.to_string(), "pending").await;

    // As an older version left one: stored, unhandled, and nobody's.
    let old = store::new_id();
    let leave = format!(
        "INSERT INTO domain_events (id, workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
         VALUES ('{old}', '{0}', gen_random_uuid(), 'other', 1, 'other.placed', '{{}}');
         UPDATE domain_events SET processing_error = '55P03: canceling statement due to lock timeout', processing_failed_at = now()
          WHERE id = '{old}'",
        tenant.id
    );
    tenant.api.post("bindings", json!({ "eventType": "other.*" })).await.expect(201);
    client.batch_execute("BEGIN; ALTER TABLE domain_events DISABLE TRIGGER forebay_fold").await.expect("as before");
    client.batch_execute(&leave).await.expect("an event");
    client.batch_execute("ALTER TABLE domain_events ENABLE TRIGGER forebay_fold; COMMIT").await.expect("as now");
    job(&tenant.api, &old.to_string(), "pending").await;
    let failed = tenant.api.get("events?failed=true").await.expect(200);
    assert_eq!(failed["items"], json!([]));
}

#[tokio::test]
async fn a_failing_workflow_is_tried_three_times_and_its_stack_tells_the_chain() {
    let world = World::with(&["job.retry_after_ms=1"]).await;
    let tenant = world.tenant("PRO").await;
    let body = json!({ "document": {
        "name": "broken", "on": { "event": { "type": "order.*", "filter": "trigger.event.data.total > 10" } },
        "nodes": { "stop": { "kind": "FAIL", "with": { "message": "no stock" } } } } });
    tenant.api.post("workflow/definitions/apply", body).await.expect(200);
    let event = |total: i32| json!({ "type": "order.placed", "streamId": store::new_id(), "streamType": "order", "data": { "total": total } });
    let appended = tenant.api.post("events", json!({ "events": [event(20), event(5)] })).await.expect(200);
    let (large, small) = (text(&appended["events"][0]["id"]), text(&appended["events"][1]["id"]));
    assert_eq!(job(&tenant.api, &small, "completed").await["result"], json!({ "skipped": true }));
    let dead = until("three failures", async || {
        let job = job(&tenant.api, &large, "failed").await;
        (job["retryCount"] == 3).then_some(job)
    })
    .await;
    assert_eq!(dead["errorMessage"], "no stock");
    assert!(text(&dead["errorStack"]).contains("node stop, attempt 1: CONTROL_FLOW_ERROR: no stock"), "{dead}");
    let tries = tenant.api.get("workflow/executions").await.expect(200);
    assert_eq!(tries["items"].as_array().map(Vec::len), Some(3), "one execution a try");
    let again = tenant.api.post(&format!("jobs/{}/retry", text(&dead["id"])), json!({})).await;
    assert_eq!(again.problem(409), "conflict");
}

#[tokio::test]
async fn an_events_input_is_judged_by_what_the_published_version_declares() {
    let world = World::with(&["job.retry_after_ms=1"]).await;
    let tenant = world.tenant("PRO").await;
    let apply = async |required: bool| {
        let document = json!({
            "name": "order", "on": { "event": { "type": "order.placed", "input": "${{ trigger.event.data }}" } },
            "inputs": { "total": { "type": "number", "required": required }, "currency": { "type": "string", "default": "EUR" } },
            "nodes": { "say": { "kind": "LOG", "with": { "message": "${{ inputs.currency }}" } } },
            "outputs": { "currency": "${{ nodes.say.output.message }}" } });
        tenant.api.post("workflow/definitions/apply", json!({ "document": document })).await.expect(200)
    };
    let append = async |data: Value| {
        let event = json!({ "type": "order.placed", "streamId": store::new_id(), "streamType": "order", "data": data });
        text(&tenant.api.post("events", json!({ "events": [event] })).await.expect(200)["events"][0]["id"])
    };
    apply(true).await;
    let good = append(json!({ "total": 20 })).await;
    assert_eq!(
        job(&tenant.api, &good, "completed").await["result"],
        json!({ "currency": "EUR" }),
        "defaults are there"
    );
    let table = [(json!({ "id": "A1" }), "/input: total is missing"), (json!({ "total": "many" }), "/input/total: ")];
    for (data, expected) in table {
        let bad = append(data).await;
        let dead = until("three failures", async || {
            let job = job(&tenant.api, &bad, "failed").await;
            (job["retryCount"] == 3).then_some(job)
        })
        .await;
        let why = text(&dead["errorMessage"]);
        assert!(why.starts_with(expected), "{why}");
    }
    let ran = tenant.api.get("workflow/executions").await.expect(200);
    assert_eq!(ran["items"].as_array().map(Vec::len), Some(1), "what does not fit starts nothing");
    apply(false).await;
    let lenient = append(json!({})).await;
    job(&tenant.api, &lenient, "completed").await;
}

#[tokio::test]
async fn a_rule_that_looks_where_nothing_is_is_refused_wherever_it_is_given() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.light().await;
    for (filter, expected) in [
        ("secrets.KEY == 'x'", "use trigger.event"),
        ("nodes.a.output.x == 1", "use trigger.event"),
        ("inputs.total > 1", "use trigger.event"),
        ("trigger.event.streamId == 'x'", "did you mean stream_id?"),
    ] {
        let body = json!({ "eventType": "order.*", "workflowDefinitionId": definition, "filter": filter });
        let refused = tenant.api.post("bindings", body).await.expect(422);
        assert!(text(&refused["detail"]).contains(expected), "{refused}");
        let document = json!({ "name": "x", "on": { "event": { "type": "order.*", "filter": filter } },
            "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } });
        for path in ["validate", "apply"] {
            let body = json!({ "document": document });
            let refused = tenant.api.post(&format!("workflow/definitions/{path}"), body).await.expect(422);
            assert_eq!(refused["problems"][0]["pointer"], "/on/event/filter", "{refused}");
            assert!(text(&refused["problems"][0]["message"]).contains(expected), "{refused}");
        }
    }
}

#[tokio::test]
async fn a_worker_of_the_api_holds_a_job_by_its_claim_and_loses_it_with_its_lease() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    tenant.api.post("bindings", json!({ "eventType": "invoice.due" })).await.expect(201);
    let event =
        json!({ "type": "invoice.due", "streamId": store::new_id(), "streamType": "invoice", "expectedVersion": 0 });
    let appended = tenant.api.post("events", json!({ "events": [event] })).await.expect(200);
    let claim = async |lease: i32| {
        let body = json!({ "workerId": "w-1", "leaseSeconds": lease, "limit": 10, "eventTypes": ["invoice.*"] });
        tenant.api.post("jobs/claim", body).await.expect(200)["items"].clone()
    };
    let odd = json!({ "workerId": "w-1", "eventTypes": ["invoice*"] });
    let odd = tenant.api.post("jobs/claim", odd).await.expect(422);
    assert!(text(&odd["detail"]).contains("order.*"), "{odd}");
    let first = claim(1).await;
    assert_eq!(
        (first[0]["job"]["status"].as_str(), first[0]["job"]["workerId"].as_str()),
        (Some("processing"), Some("w-1"))
    );
    assert_eq!(claim(1).await, json!([]), "a second finds nothing");
    let id = text(&first[0]["job"]["id"]);
    let at = |what: &str| format!("jobs/{id}/{what}");
    let second = until("its lease is over and it is claimed again", async || {
        Some(claim(60).await).filter(|found| found != &json!([]))
    })
    .await;
    for what in ["heartbeat", "complete", "fail"] {
        let mut late = json!({ "claimId": first[0]["claimId"] });
        if what == "fail" {
            late["errorMessage"] = json!("late");
        }
        assert_eq!(tenant.api.post(&at(what), late).await.problem(409), "conflict", "{what}");
    }
    let refused = psql(&world, &format!("UPDATE workflow_queue_projection SET status = 'completed' WHERE id = '{id}'"));
    assert!(refused.as_ref().is_err_and(|observed| observed.contains("is claimed by w-1")), "{refused:?}");
    let mine = json!({ "claimId": second[0]["claimId"], "workflowId": "wf-1" });
    tenant.api.post(&at("heartbeat"), mine).await.expect(200);
    for _ in 0..2 {
        let done = tenant
            .api
            .post(&at("complete"), json!({ "claimId": second[0]["claimId"], "result": { "n": 1 } }))
            .await
            .expect(200);
        assert_eq!(
            (&done["status"], &done["result"], &done["workflowId"]),
            (&json!("completed"), &json!({ "n": 1 }), &json!("wf-1"))
        );
    }
    assert_eq!(job(&tenant.api, &text(&appended["events"][0]["id"]), "completed").await["retryCount"], 0);
}

#[tokio::test]
async fn events_are_appended_once_and_in_their_versions() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let stream = store::new_id();
    let event = |id: Option<uuid::Uuid>, version: i32| json!({ "id": id, "type": "a.b", "streamId": stream, "streamType": "s", "expectedVersion": version });
    let id = Some(store::new_id());
    let first = tenant.api.post("events", json!({ "events": [event(id, 0)] })).await.expect(200);
    let again = tenant.api.post("events", json!({ "events": [event(id, 0)] })).await.expect(200);
    assert_eq!((&first["events"][0]["repeated"], &again["events"][0]["repeated"]), (&json!(false), &json!(true)));
    assert_eq!(again["events"][0]["sequence"], first["events"][0]["sequence"]);
    assert_eq!(tenant.api.post("events", json!({ "events": [event(None, 0)] })).await.problem(409), "conflict");
    let keyed = async |version: i32| {
        let request = tenant.api.request(reqwest::Method::POST, "events").header("Idempotency-Key", "k");
        crate::support::http::send(request.json(&json!({ "events": [event(None, version)] }))).await
    };
    let (one, two) = (keyed(1).await.expect(200), keyed(1).await.expect(200));
    assert_eq!(one["events"][0]["id"], two["events"][0]["id"]);
    for bad in [
        json!({ "events": [] }),
        json!({ "events": [{ "type": "", "streamId": stream, "streamType": "s" }] }),
        json!({ "events": [{ "type": "x", "streamId": stream, "streamType": "workflow_queue" }] }),
        json!({ "events": [{ "type": "x", "streamId": stream, "streamType": "s", "expectedVersion": -1 }] }),
    ] {
        assert_eq!(tenant.api.post("events", bad.clone()).await.problem(422), "validation_failed", "{bad}");
    }
    assert_eq!(world.count(&tenant, "domain_events").await, 2);
}

#[tokio::test]
async fn jobs_of_a_killed_process_end_once() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("PRO").await;
    let body = json!({ "document": { "name": "slow", "on": { "event": { "type": "order.placed" } },
        "nodes": { "wait": { "kind": "DELAY", "with": { "for": "2s" } } } } });
    tenant.api.post("workflow/definitions/apply", body).await.expect(200);
    let events: Vec<Value> =
        (0..5).map(|_| json!({ "type": "order.placed", "streamId": store::new_id(), "streamType": "order" })).collect();
    tenant.api.post("events", json!({ "events": events })).await.expect(200);
    until("all are taken", async || {
        (world.count("workflow_queue_projection WHERE status = 'processing'").await == 5).then_some(())
    })
    .await;
    world.server.process.sigkill();
    let other = world.another(&MORTAL).await;
    until("all are done", async || {
        (world.count("workflow_queue_projection WHERE status = 'completed'").await == 5).then_some(())
    })
    .await;
    assert_eq!(world.count("workflow_execution").await, 5, "no try was counted, and none made twice");
    assert_eq!(world.count("workflow_queue_projection WHERE retry_count > 0").await, 0);
    drop(other);
}

#[tokio::test]
async fn a_process_that_dies_while_it_brings_jobs_back_does_not_keep_them_waiting_for_long() {
    let settings = ["job.retry_after_ms=1", MORTAL[0], MORTAL[1]];
    let mut world = World::with(&settings).await;
    world.server.api().post("bindings", json!({ "eventType": "organization.*" })).await.expect(201);
    let event = psql(&world, INSERT).expect("an event");
    // Its pass stops in the middle, and it dies with the lease in its hand.
    let client = world.database.client().await;
    client.batch_execute("BEGIN; LOCK TABLE workflow_queue_projection IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    let waits = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%retry_jobs%'";
    until("a pass that waits", async || (world.count(waits).await > 0).then_some(())).await;
    world.server.process.sigkill();
    client.batch_execute("COMMIT").await.expect("the end of the lock");
    let fail = "UPDATE workflow_queue_projection SET status = 'processing', worker_id = 'w-1';
                UPDATE workflow_queue_projection SET status = 'failed', error_message = 'no'";
    psql(&world, fail).expect("a failure");
    let next = world.another(&settings).await;
    job(&next.api(), &event, "pending").await;
}
