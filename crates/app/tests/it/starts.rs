//! Starts of many clients at once share commits, and each client notices nothing of the others.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::{Reply, send};
use crate::support::tenant::text;
use crate::support::{Tenant, World, until};

async fn start(tenant: &Tenant, key: Option<&str>, body: &Value) -> Reply {
    let mut request = tenant.api.request(Method::POST, "workflow/executions/start");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(request.json(body)).await
}

#[tokio::test]
async fn starts_that_arrive_together_share_commits_and_keep_their_own_results_and_actors() {
    let world = World::new().await;
    let (one, other) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let (good, theirs) = (one.light().await, other.light().await);
    let say = json!({ "kind": "LOG", "with": { "message": "x" } });
    let draft = json!({ "document": { "name": "draft", "nodes": { "say": say } } });
    let draft = text(&one.api.post("workflow/definitions", draft).await.expect(201)["definition"]["id"]);
    let unknown = store::new_id().to_string();
    let requests = (0..120).map(|n| {
        let (tenant, definition, status, code) = match n % 8 {
            0..=2 => (&one, &good, 202, ""),
            3 => (&other, &theirs, 202, ""),
            4 => (&one, &unknown, 404, "not_found"),
            5 => (&other, &theirs, 422, "validation_failed"),
            _ => (&one, &draft, 409, "definition_not_published"),
        };
        async move {
            let mut body = json!({ "workflowDefinitionId": definition, "input": { "n": n } });
            if status == 422 {
                // Only the database refuses it, and with it all that is stored by the same statement.
                body["runAt"] = json!("-009000-01-01T00:00:00Z");
            }
            let reply = start(tenant, None, &body).await;
            assert_eq!((reply.status, reply.body["code"].as_str().unwrap_or_default()), (status, code), "{n}");
            (tenant, n, reply.body["executionId"].as_str().map(str::to_owned))
        }
    });
    for (tenant, n, id) in join_all(requests).await {
        let Some(id) = id else { continue };
        assert_eq!(tenant.completed(&id).await["input"], json!({ "n": n }), "each has its own input");
        let activity = tenant.api.get(&format!("activity?subject={id}")).await.expect(200);
        let actor = tenant.execution(&id).await["trigger"]["actor"].clone();
        let items = activity["items"].as_array().expect("a list");
        let by = items.iter().find(|item| item["action"] == "execution.start").map(|item| item["actor"].clone());
        assert_eq!(by, Some(actor), "{activity}");
    }
    let metric = async |part: &str| world.server.metric(&format!("forebay_queue_starts_per_commit_{part}")).await;
    let (gathers, starts) = (metric("count").await, metric("sum").await);
    assert!(starts == 120.0 && gathers < starts, "{gathers} commits for {starts} starts");
}

#[tokio::test]
async fn a_start_whose_key_another_transaction_uses_delays_no_other() {
    let world = World::new().await;
    let (one, other) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let (mine, theirs) = (one.light().await, other.light().await);
    let client = world.database.client().await;
    let sql = format!("BEGIN; SELECT forebay.enqueue('{}', '{mine}', idempotency_key => 'taken')", one.id);
    client.batch_execute(&sql).await.expect("an open transaction with the key");
    let locked = async {
        let reply = start(&one, Some("taken"), &json!({ "workflowDefinitionId": mine })).await;
        assert_eq!(reply.problem(409), "conflict", "its key is in use");
        Instant::now()
    };
    let others = async {
        // Until the locked start gives up, others that would share its commit come all the time.
        let (mut last, mut slowest) = (Instant::now(), Duration::ZERO);
        let bodies = [&theirs, &mine].map(|definition| json!({ "workflowDefinitionId": definition }));
        for n in 0..20 {
            let sent = Instant::now();
            let key = format!("free-{n}");
            let both = [&other, &one].into_iter().zip(&bodies).map(|(tenant, body)| start(tenant, Some(&key), body));
            for reply in join_all(both).await {
                reply.expect(202);
            }
            (last, slowest) = (Instant::now(), slowest.max(sent.elapsed()));
        }
        (last, slowest)
    };
    let (gave_up, (last, slowest)) = tokio::join!(locked, others);
    assert!(last < gave_up || slowest < Duration::from_secs(1), "another start took {slowest:?}");
    client.batch_execute("ROLLBACK").await.expect("the key is free");
    let late = start(&one, Some("taken"), &json!({ "workflowDefinitionId": mine })).await.expect(202);
    assert_eq!(late.get("repeated"), None, "nothing was stored before");
}

#[tokio::test]
async fn starts_in_flight_are_answered_when_the_process_stops() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let body = json!({ "workflowDefinitionId": tenant.light().await });
    let client = world.database.client().await;
    // Each start waits for this lock until it is free.
    client.batch_execute("BEGIN; LOCK TABLE workflow_execution IN EXCLUSIVE MODE").await.expect("a lock");
    let waiting = join_all((0..5).map(|_| start(&tenant, None, &body)));
    let stopped = async {
        until("the starts wait", async || {
            (world
                .count("pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%Accepts start requests%'")
                .await
                > 0)
            .then_some(())
        })
        .await;
        world.server.process.signal(Signal::SIGTERM);
        client.batch_execute("COMMIT").await.expect("free");
    };
    let (replies, ()) = tokio::join!(waiting, stopped);
    // On a slow machine the lock may have been held for too long: then a start is refused.
    let accepted = replies.iter().filter(|reply| reply.status == 202).count();
    assert!(replies.iter().all(|reply| [202, 503].contains(&reply.status)), "{replies:?}");
    assert_eq!(world.count("workflow_execution").await, i64::try_from(accepted).expect("a count"));
}
