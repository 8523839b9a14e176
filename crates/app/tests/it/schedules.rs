//! Schedules with real processes: each tick fires on time and once, whichever process is killed. Ticks are caught up,
//! buffered, fired by hand and listed.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::http::send;
use crate::support::server::MORTAL;
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World, until};

async fn create(tenant: &Tenant, definition: &str, more: Value) -> String {
    let mut body = json!({ "workflowDefinitionId": definition });
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    text(&tenant.api.post("schedules", body).await.expect(201)["id"])
}

async fn ticks(tenant: &Tenant, id: &str) -> Vec<Value> {
    let page = tenant.api.get(&format!("schedules/{id}/ticks")).await.expect(200);
    page["items"].as_array().expect("a list").clone()
}

/// Ticks of a schedule, once there are so many.
async fn come(tenant: &Tenant, id: &str, count: usize) -> Vec<Value> {
    until(&format!("{count} ticks"), async || Some(ticks(tenant, id).await).filter(|ticks| ticks.len() >= count)).await
}

/// Lets ticks of the last hours be due.
fn back(hours: i32) -> String {
    format!("UPDATE schedule SET next_at = date_trunc('hour', now()) - interval '{hours} hours'")
}

#[tokio::test]
async fn a_tick_comes_by_the_clock_and_its_execution_knows_it() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.light().await;
    let id = create(&tenant, &definition, json!({ "cron": "*/10 * * * * *", "priority": 2 })).await;
    let first = come(&tenant, &id, 1).await.remove(0);
    let (at, decided): (jiff::Timestamp, jiff::Timestamp) =
        (text(&first["at"]).parse().expect("a time"), text(&first["decidedAt"]).parse().expect("a time"));
    assert_eq!((at.as_second() % 10, at.subsec_nanosecond()), (0, 0));
    assert!(decided.duration_since(at).as_secs_f64() < 5.0, "{first}");
    let execution = tenant.completed(&text(&first["executionId"])).await;
    assert_eq!(execution["trigger"], json!({ "type": "schedule", "schedule": id, "tick": first["at"] }));
    assert_eq!(execution["priority"], 2);
    let scraped = world.server.anonymous().get("/metrics").await.text;
    assert!(scraped.contains("forebay_schedule_ticks_total{outcome=\"started\"} "), "counted");
    assert!(scraped.contains("forebay_schedule_tick_lateness_seconds"), "timed");
}

#[tokio::test]
async fn two_processes_and_a_kill_between_them_start_every_tick_once() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("ENTERPRISE").await;
    let definition = tenant.light().await;
    for n in 0..30 {
        create(&tenant, &definition, json!({ "cron": format!("0 * * * {}", if n % 2 == 0 { "*" } else { "0-6" }), "overlap": "allow", "catchUp": "all" })).await;
    }
    let other = world.another(&MORTAL).await;
    let tenant = tenant.at(&other.base);
    world.run_sql(&back(9)).await;
    until("some ticks are taken", async || (world.count("schedule_tick").await > 0).then_some(())).await;
    world.server.process.sigkill();
    until("every tick is taken", async || (world.count("schedule_tick").await >= 300).then_some(())).await;
    assert_eq!(world.count("schedule_tick WHERE status <> 'STARTED'").await, 0);
    assert_eq!(world.count("schedule_tick").await, 300);
    assert_eq!(world.count("workflow_execution").await, 300, "one each");
    assert_eq!(world.count("schedule_tick t JOIN workflow_execution e ON e.id = t.execution_id AND (e.trigger->>'tick')::timestamptz = t.tick_at AND (e.trigger->>'schedule')::uuid = t.schedule_id").await, 300);
    until("all have ended", async || {
        (world.count("workflow_execution WHERE status = 'COMPLETED'").await == 300).then_some(())
    })
    .await;
    assert_eq!(world.count("schedule WHERE next_at <= now()").await, 0);
    drop((tenant, other));
}

#[tokio::test]
async fn a_buffered_tick_starts_when_the_one_before_it_has_ended() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let slow = tenant.apply("slow", json!({ "wait": { "kind": "DELAY", "with": { "for": "2s" } } })).await;
    let id = create(&tenant, &slow, json!({ "cron": "0 * * * *", "overlap": "buffer_one", "catchUp": "all" })).await;
    world.run_sql(&format!("{} WHERE id = '{id}'", back(2))).await;
    let all = until("the buffered one has started", async || {
        let all = ticks(&tenant, &id).await;
        (all.iter().filter(|tick| tick["status"] == "STARTED").count() == 2).then_some(all)
    })
    .await;
    let statuses: Vec<&Value> = all.iter().map(|tick| &tick["status"]).collect();
    assert_eq!(statuses, ["SKIPPED", "STARTED", "STARTED"], "{all:?}");
    let (second, first) =
        (tenant.completed(&text(&all[1]["executionId"])).await, tenant.execution(&text(&all[2]["executionId"])).await);
    assert_eq!(first["status"], "COMPLETED");
    let time = |value: &Value| text(value).parse::<jiff::Timestamp>().expect("a time");
    assert!(time(&second["createdAt"]) >= time(&first["completedAt"]), "one after the other");
}

#[tokio::test]
async fn schedules_in_trouble_keep_no_other_from_its_ticks() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.light().await;
    let fine = create(&tenant, &definition, json!({ "cron": "0 * * * *", "overlap": "allow" })).await;
    // More than one look has, all due before it, and none can have a tick.
    let troubled =
        "INSERT INTO schedule (id, workspace_id, workflow_definition_id, cron, timezone, overlap, catch_up, next_at)
        SELECT gen_random_uuid(), workspace_id, workflow_definition_id, cron, timezone, overlap, catch_up, next_at
          FROM schedule CROSS JOIN generate_series(1, 120)";
    world.run_sql(troubled).await;
    world.run_sql(&format!("ALTER TABLE schedule_tick ADD CONSTRAINT trouble CHECK (schedule_id = '{fine}')")).await;
    world.run_sql(&back(3)).await;
    world.run_sql(&format!("{} WHERE id = '{fine}'", back(0))).await;
    let first = come(&tenant, &fine, 1).await.remove(0);
    tenant.completed(&text(&first["executionId"])).await;
    until("all others are put off", async || {
        (world.count("schedule WHERE retry_at > now() + interval '5 minutes'").await == 120).then_some(())
    })
    .await;
    assert_eq!(world.count("schedule_tick").await, 1);
}

#[tokio::test]
async fn a_pause_a_manual_run_and_a_single_time_by_the_command_line() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    tenant.light().await;
    let cli = Cli::of(&world.server.base, world.server.root_key().expose());
    let name = tenant.name.as_str();
    let made = cli
        .ok(&[
            "schedule",
            "create",
            "light",
            "--cron",
            "0 6 * * MON-FRI",
            "--timezone",
            "Europe/Berlin",
            "--workspace",
            name,
        ])
        .await;
    let id = made.trim();
    assert_eq!(cli.ok(&["schedule", "pause", id]).await, format!("{id}: PAUSED\n"));
    let trigger = ["schedule", "run", id, "--idempotency-key", "once"];
    let (one, two) = (cli.ok(&trigger).await, cli.ok(&trigger).await);
    assert_eq!(one, two, "a trigger works while it is paused, once a key");
    tenant.completed(one.trim()).await;
    assert_eq!(cli.ok(&["schedule", "resume", id]).await, format!("{id}: ACTIVE\n"));
    let shown = cli.ok(&["schedule", "get", id]).await;
    for part in ["0 6 * * MON-FRI Europe/Berlin", "by hand", "STARTED", one.trim()] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let next = cli
        .ok(&[
            "schedule",
            "next",
            "30 2 * * *",
            "--timezone",
            "Europe/Berlin",
            "--after",
            "2026-03-28T12:00:00Z",
            "-n",
            "2",
        ])
        .await;
    assert_eq!(
        next,
        "2026-03-29T01:00:00Z  Sun 2026-03-29 03:00:00 +02:00\n2026-03-30T00:30:00Z  Mon 2026-03-30 02:30:00 +02:00\n"
    );
    let once = cli.ok(&["schedule", "create", "light", "--at", "5s", "--workspace", name]).await;
    until("it has come", async || cli.ok(&["schedule", "get", once.trim()]).await.contains("ENDED").then_some(()))
        .await;
    assert_eq!(ticks(&tenant, once.trim()).await.len(), 1);
    let listed = cli.ok(&["schedule", "ls", "--workspace", name, "--workflow", "light"]).await;
    assert!(listed.contains(id) && listed.contains(once.trim()), "{listed}");
    cli.ok(&["schedule", "delete", id, "--yes"]).await;
    assert_eq!(tenant.api.get(&format!("schedules/{id}")).await.problem(404), "not_found");
    let observed = tenant.api.get("activity").await.expect(200).to_string();
    for action in ["schedule.create", "schedule.pause", "schedule.resume", "schedule.run", "schedule.delete"] {
        assert!(observed.contains(action), "{action}: {observed}");
    }
}

#[tokio::test]
async fn a_start_that_fails_is_recorded_on_its_tick_and_an_invalid_schedule_is_refused() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let document = |required: bool| {
        json!({ "document": { "name": "strict", "inputs": { "region": { "type": "string", "required": required } },
                "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } } })
    };
    let applied = tenant.api.post("workflow/definitions/apply", document(false)).await.expect(200);
    let definition = text(&applied["definition"]["id"]);
    let id = create(&tenant, &definition, json!({ "cron": "0 * * * *" })).await;
    tenant.api.post("workflow/definitions/apply", document(true)).await.expect(200);
    world.run_sql(&format!("{} WHERE id = '{id}'", back(0))).await;
    let tick = come(&tenant, &id, 1).await.remove(0);
    assert_eq!((&tick["status"], &tick["reason"]), (&json!("FAILED"), &json!("/input: region is missing")));
    assert_eq!(tenant.api.post(&format!("schedules/{id}/run"), json!({})).await.problem(422), "validation_failed");

    let body = |more: Value| {
        let mut body = json!({ "workflowDefinitionId": definition, "input": { "region": "eu" } });
        more.as_object().expect("fields").iter().for_each(|(name, value)| body[name] = value.clone());
        body
    };
    for bad in [
        json!({}),
        json!({ "cron": "* * * * * *" }),
        json!({ "cron": "0 0 31 2 *" }),
        json!({ "cron": "" }),
        json!({ "cron": "x".repeat(10_000) }),
        json!({ "cron": "0 0 * * *", "timezone": "Mars/Olympus" }),
        json!({ "cron": "0 0 * * *", "runAt": "2099-01-01T00:00:00Z" }),
        json!({ "runAt": "2001-01-01T00:00:00Z" }),
        json!({ "runAt": "2099-01-01T00:00:00Z", "overlap": "skip" }),
        json!({ "cron": "0 0 * * *", "concurrencyKey": "" }),
        json!({ "cron": "0 0 * * *", "overlap": "never" }),
        json!({ "cron": "0 0 * * *", "input": {} }),
        json!({ "cron": "0 0 * * *", "input": { "region": "\u{0}" } }),
        json!({ "runAt": "0000-01-01T00:00:00Z" }),
        json!({ "runAt": "292000000-01-01T00:00:00Z" }),
        json!({ "runAt": "9999-06-01T00:00:00Z" }),
    ] {
        assert_eq!(tenant.api.post("schedules", body(bad.clone())).await.problem(422), "validation_failed", "{bad}");
    }
    let elsewhere = world.tenant("PRO").await.light().await;
    let foreign = json!({ "workflowDefinitionId": elsewhere, "cron": "0 0 * * *" });
    assert_eq!(tenant.api.post("schedules", foreign).await.problem(404), "not_found");
    for bad in ["cron=* * * * * *", "cron=0 0 * * *&count=1000", "cron=0 0 * * *&timezone=x"] {
        let path = format!("schedules/next?{}", bad.replace(' ', "%20"));
        assert_eq!(tenant.api.get(&path).await.problem(422), "validation_failed", "{bad}");
    }
    assert_eq!(tenant.api.get("schedules/next?timezone=UTC").await.problem(400), "validation_failed", "no cron");
}

#[tokio::test]
async fn a_document_has_schedules_of_its_own_that_are_replaced_with_it() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let apply = async |schedules: Value| {
        let document = json!({ "name": "nightly", "on": { "schedule": schedules },
                               "nodes": { "say": { "kind": "LOG", "with": { "message": "Tick ${{ trigger.tick }}" } } } });
        let applied = tenant.api.post("workflow/definitions/apply", json!({ "document": document })).await.expect(200);
        text(&applied["definition"]["id"])
    };
    let list = async || tenant.api.get("schedules").await.expect(200)["items"].clone();
    let definition =
        apply(json!([{ "cron": "0 3 * * *", "timezone": "America/New_York" }, { "cron": "0 4 * * *" }])).await;
    let first = list().await;
    assert_eq!((first.as_array().map(Vec::len), &first[0]["byDefinition"]), (Some(2), &json!(true)));
    let own = format!("schedules/{}", text(&first[0]["id"]));
    assert_eq!(tenant.api.delete(&own).await.problem(409), "conflict");
    assert_eq!(
        send(tenant.api.request(Method::PATCH, &own).json(&json!({ "cron": "0 5 * * *" }))).await.problem(409),
        "conflict"
    );
    tenant.api.post(&format!("{own}/pause"), json!({})).await.expect(200);
    let started = tenant.api.post(&format!("{own}/run"), json!({})).await.expect(202);
    tenant.completed(&text(&started["executionId"])).await;
    apply(json!([{ "cron": "0 3 * * *", "timezone": "America/New_York", "overlap": "allow" }])).await;
    let second = list().await;
    assert_eq!(second.as_array().map(Vec::len), Some(1));
    let kept = ["id", "status", "overlap"].map(|name| second[0][name].clone());
    assert_eq!(kept, [first[0]["id"].clone(), json!("PAUSED"), json!("allow")]);
    tenant.api.delete(&format!("workflow/definitions/{definition}")).await.expect(204);
    let over = tenant.api.get(&own).await.expect(200);
    assert_eq!((&over["status"], &over["reason"]), (&json!("ENDED"), &json!("the definition was deleted")));
    assert_eq!(tenant.api.post(&format!("{own}/resume"), json!({})).await.problem(409), "conflict");
}
