//! Lists over HTTP: the pages together are the whole list, filters apply to every page, and a cursor is valid only for
//! the list that returned it.

use serde_json::{Value, json};

use crate::support::http::Api;
use crate::support::tenant::text;
use crate::support::{Shared, World};

/// The ids of a list, page by page.
async fn ids(api: &Api, path: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    let join = if path.contains('?') { '&' } else { '?' };
    loop {
        let page = api.get(&format!("{path}{join}limit={limit}{cursor}")).await.expect(200);
        let items = page["items"].as_array().expect("a list");
        assert!(items.len() <= limit);
        found.extend(items.iter().map(|item| item["id"].to_string().trim_matches('"').to_owned()));
        match page.get("nextCursor") {
            Some(next) => cursor = format!("&cursor={}", text(next)),
            None => return found,
        }
    }
}

#[tokio::test]
async fn executions_are_listed_by_status_definition_time_and_text() {
    let world = World::new().await;
    let (tenant, other) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let (light, theirs) = (tenant.light().await, other.light().await);
    let broken = tenant.apply("broken", json!({ "no": { "kind": "FAIL", "with": { "message": "no" } } })).await;
    let mut started = tenant.start_many(&light, 5).await;
    let failed = tenant.start(&broken).await;
    let later = json!({ "workflowDefinitionId": light, "runAt": "2098-01-01T00:00:00Z" });
    let request =
        tenant.api.request(reqwest::Method::POST, "workflow/executions/start").header("idempotency-key", "order-7");
    let pending = text(&crate::support::http::send(request.json(&later)).await.expect(202)["executionId"]);
    let stranger = other.start(&theirs).await;
    for id in &started {
        tenant.completed(id).await;
    }
    tenant.ended(&failed).await;
    other.completed(&stranger).await;
    started.extend([failed.clone(), pending.clone()]);
    started.reverse();
    let list = "workflow/executions";
    assert_eq!(ids(&tenant.api, list, 2).await, started, "newest first, in pages of two");
    let root = world.server.api();
    assert_eq!(ids(&root, list, 3).await.len(), 8, "root sees all");
    assert_eq!(ids(&root, &format!("{list}?workspaceId={}", other.id), 3).await, std::slice::from_ref(&stranger));
    let time = text(&tenant.execution(&started[3]).await["createdAt"]);
    let (of_light, done): (Vec<_>, Vec<_>) =
        (started[..1].iter().chain(&started[2..]).cloned().collect(), started[2..].to_vec());
    for (query, expected) in [
        ("status=FAILED".to_owned(), vec![failed.clone()]),
        ("status=FAILED,PENDING".to_owned(), vec![pending.clone(), failed.clone()]),
        ("status=COMPLETED".to_owned(), done.clone()),
        ("status=TIMED_OUT".to_owned(), vec![]),
        (format!("definition={broken}"), vec![failed.clone()]),
        ("definition=broken".to_owned(), vec![failed.clone()]),
        (format!("definition={theirs}"), vec![]),
        (format!("createdAfter={time}"), started[..4].to_vec()),
        (format!("createdBefore={time}"), started[4..].to_vec()),
        (format!("createdAfter={time}&createdBefore={time}"), vec![]),
        (format!("text={pending}"), vec![pending.clone()]),
        (format!("text={stranger}"), vec![]),
        ("text=order-7".to_owned(), vec![pending.clone()]),
        ("text=bro".to_owned(), vec![failed.clone()]),
        ("text=ligh".to_owned(), of_light.clone()),
        ("text=ligh&status=PENDING".to_owned(), vec![pending.clone()]),
        ("text=ligh&definition=broken".to_owned(), vec![]),
        ("text=%25".to_owned(), vec![]),
    ] {
        assert_eq!(ids(&tenant.api, &format!("{list}?{query}"), 2).await, expected, "{query}");
    }
    assert_eq!(ids(&tenant.api, &format!("{list}/workflow/{light}?status=COMPLETED"), 2).await, done);
    assert_eq!(ids(&tenant.api, &format!("{list}/workspace/{}", tenant.id), 3).await, started);
    for path in [format!("{list}/workflow/{theirs}"), format!("{list}/workspace/{}", other.id)] {
        assert_eq!(tenant.api.get(&path).await.problem(404), "not_found", "{path}");
    }
    for query in ["text=x", "definition=light"] {
        assert_eq!(root.get(&format!("{list}?{query}")).await.problem(422), "validation_failed", "whose? {query}");
    }
    assert_eq!(ids(&root, &format!("{list}?definition={light}"), 3).await, of_light);
}

#[tokio::test]
async fn a_cursor_belongs_to_its_list_and_shows_nobody_elses() {
    let world = World::new().await;
    let (tenant, other) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let definition = tenant.light().await;
    for n in 0..3 {
        let id =
            tenant.apply(&format!("more-{n}"), json!({ "say": { "kind": "LOG", "with": { "message": "x" } } })).await;
        tenant.api.post("keys", json!({ "name": "k" })).await.expect(201);
        tenant.completed(&tenant.start(&id).await).await;
    }
    let changed =
        json!({ "document": { "name": "light", "nodes": { "say": { "kind": "LOG", "with": { "message": "2" } } } } });
    tenant.api.post("workflow/definitions/apply", changed).await.expect(200);
    let root = world.server.api();
    let versions = format!("workflow/definitions/{definition}/versions");
    let lists = ["workflow/executions", "workflow/definitions", "keys", "activity", &versions, "workspaces"];
    let mut cursors = Vec::new();
    for path in lists {
        let api = if path == "workspaces" { &root } else { &tenant.api };
        let page = api.get(&format!("{path}?limit=1")).await.expect(200);
        cursors.push(text(&page["nextCursor"]));
        assert!(ids(api, path, 1).await.len() >= 2, "{path}");
    }
    for (path, own) in lists.iter().zip(&cursors) {
        for cursor in cursors.iter().filter(|cursor| *cursor != own) {
            assert_eq!(root.get(&format!("{path}?cursor={cursor}")).await.problem(422), "validation_failed", "{path}");
        }
        if !path.contains(&definition) && *path != "workspaces" {
            let theirs = other.api.get(&format!("{path}?cursor={own}")).await.expect(200);
            assert!(!theirs.to_string().contains(&tenant.id), "{path}: {theirs}");
        }
    }
    let versions = tenant.api.get(&versions).await.expect(200);
    let shown: Vec<_> = versions["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| (&item["version"], &item["published"]))
        .collect();
    assert_eq!(shown, [(&json!(2), &json!(true)), (&json!(1), &json!(false))]);
    assert_eq!(ids(&root, "workflow/definitions", 2).await.len(), 4, "root sees all");
}

#[tokio::test]
async fn capacity_says_what_is_free_and_what_waits_for_what() {
    let world = Shared::new().await;
    let (tenant, other) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let path = format!("workspaces/{}/capacity", tenant.id);
    let none = json!({ "count": 0, "more": false });
    let at_rest = tenant.api.get(&path).await.expect(200);
    assert_eq!((&at_rest["limit"], &at_rest["free"], &at_rest["running"]), (&json!(1), &json!(1), &none));
    assert!(at_rest.get("oldestWaitingSeconds").is_none());
    tenant.start_many(&held, 3).await;
    let delayed = json!({ "workflowDefinitionId": held, "runAt": "2098-01-01T00:00:00Z" });
    tenant.api.post("workflow/executions/start", delayed).await.expect(202);
    for _ in 0..2 {
        let keyed = json!({ "workflowDefinitionId": held, "concurrencyKey": "k" });
        tenant.api.post("workflow/executions/start", keyed).await.expect(202);
    }
    world.receiver.until_called("/hold/a", 1).await;
    let now: Value = tenant.api.get(&path).await.expect(200);
    let one = json!({ "count": 1, "more": false });
    assert_eq!((&now["running"], &now["free"], &now["failed"]), (&one, &json!(0), &none), "{now}");
    let waiting = json!({ "ready": { "count": 3, "more": false }, "delayed": one, "key": one, "definition": none });
    assert_eq!(now["waiting"], waiting, "one of the key's is let through, the other waits for it");
    assert!(now["oldestWaitingSeconds"].as_f64().is_some_and(|age| (0.0..60.0).contains(&age)), "{now}");
    assert_eq!(other.api.get(&path).await.problem(404), "not_found");
}

#[tokio::test]
async fn the_audit_log_tells_who_did_what_and_only_of_ones_own() {
    let world = Shared::new().await;
    let (tenant, other) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let definition = tenant.light().await;
    let execution = tenant.start(&definition).await;
    tenant.completed(&execution).await;
    let log = tenant.api.get("activity").await.expect(200);
    let actions: Vec<String> =
        log["items"].as_array().expect("a list").iter().map(|item| text(&item["action"])).collect();
    for action in ["execution.start", "definition.publish", "definition.create", "key.create", "workspace.create"] {
        assert!(actions.iter().any(|done| done == action), "{action}: {actions:?}");
    }
    let start = tenant.api.get(&format!("activity?subject={execution}")).await.expect(200);
    let actor = text(&start["items"].as_array().and_then(|items| items.last()).expect("an entry")["actor"]);
    assert!(actor.starts_with("key:"), "{actor}");
    let by = tenant.api.get(&format!("activity?actor={actor}")).await.expect(200);
    assert!(
        by["items"].as_array().is_some_and(|items| items.len() >= 3 && items.iter().all(|item| item["actor"] == actor))
    );
    let at = text(&start["items"][0]["at"]);
    let before = tenant.api.get(&format!("activity?before={at}&subject={execution}&after={at}")).await.expect(200);
    assert_eq!(before["items"], json!([]));
    let theirs = other.api.get(&format!("activity?subject={execution}")).await.expect(200);
    assert_eq!(theirs["items"], json!([]));
    assert_eq!(other.api.get(&format!("activity?workspaceId={}", tenant.id)).await.problem(403), "workspace_mismatch");
    let all = world.server.api().get(&format!("activity?subject={execution}")).await.expect(200);
    assert_eq!(all["items"], tenant.api.get(&format!("activity?subject={execution}")).await.expect(200)["items"]);
}
