//! Children and loops with real processes: a tree uses one slot, survives the kill of a process, and is shown by the
//! API and by the commands.

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::server::MORTAL;
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World, until};

/// A child that calls, and a parent that runs one for each of so many items, two at a time.
async fn fan_out(tenant: &Tenant, nodes: Value, items: usize) -> String {
    tenant.apply("one", nodes).await;
    let items: Vec<usize> = (0..items).collect();
    let each = json!({ "kind": "FOR_EACH", "with": {
        "items": items, "parallel": 2, "do": { "kind": "WORKFLOW", "with": { "workflow": "one", "input": { "n": "${{ item }}" } } },
    } });
    tenant.apply("fan-out", json!({ "each": each })).await
}

async fn children(tenant: &Tenant, id: &str) -> Vec<Value> {
    let page = tenant.api.get(&format!("workflow/executions/{id}/children?limit=200")).await.expect(200);
    page["items"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_free_workspace_runs_a_parent_with_ten_children_and_shows_all_of_them() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = fan_out(&tenant, json!({ "call": world.receiver.node("/count/child") }), 10).await;
    let id = tenant.start(&definition).await;
    tenant.completed(&id).await;
    assert_eq!(world.receiver.calls("/count/child").len(), 10);
    assert_eq!(tenant.running().await, 0);

    let mut all = children(&tenant, &id).await;
    // Items that begin together make their children in whatever order.
    all.sort_by_key(|child| child["iteration"].as_i64());
    assert_eq!(
        all.iter().map(|child| child["iteration"].as_i64()).collect::<Vec<_>>(),
        (1..=10).map(Some).collect::<Vec<_>>()
    );
    assert!(all.iter().all(|child| child["status"] == "COMPLETED" && child["workflowName"] == "one"), "{all:?}");
    let child = tenant.execution(&text(&all[3]["executionId"])).await;
    assert_eq!((&child["parentExecutionId"], &child["rootExecutionId"]), (&json!(id), &json!(id)));
    assert_eq!((&child["parentNode"], &child["parentIteration"]), (&json!("each"), &json!(4)));
    let listed = tenant.api.get("workflow/executions").await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "a list shows roots");

    // Pages of a loop, and of children; the graph's own nodes alone if nothing is said.
    let nodes = tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(1));
    let base = format!("workflow/executions/{id}/nodes?node=each&iterations=true&limit=4");
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = tenant.api.get(&format!("{base}{cursor}")).await.expect(200);
        seen.extend(page["items"].as_array().expect("a list").iter().map(|node| node["iteration"].as_i64()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (1..=10).map(Some).collect::<Vec<_>>());
    tenant.api.get(&format!("workflow/executions/{id}/nodes?iterations=true")).await.problem(422);

    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    assert_eq!(cli.json(&["tree", &id]).await["items"].as_array().map(Vec::len), Some(11));
    let shown = cli.ok(&["tree", &id]).await;
    let places: Vec<usize> = (1..=10).filter_map(|n| shown.find(&format!("each[{n}]:"))).collect();
    assert!(places.len() == 10 && places.is_sorted() && shown.lines().count() == 11, "by item: {shown}");
    let refused = cli.run(&["get", &text(&all[0]["executionId"]), "--items", "call"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("call is not a loop"), "{}", refused.stderr);
    let shown = cli.ok(&["get", &id, "--items", "each"]).await;
    assert!(shown.contains("each[7]") && shown.contains("WORKFLOW"), "{shown}");
    let shown = cli.ok(&["get", &text(&all[0]["executionId"])]).await;
    assert!(shown.contains("started by") && shown.contains("node each[1]"), "{shown}");
}

#[tokio::test]
async fn a_tree_whose_server_is_killed_goes_on_where_it_was() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("FREE").await;
    let receiver = &world.receiver;
    let nodes = json!({ "a": receiver.node("/count/a"), "b": receiver.after("a", "/hold/b"), "c": receiver.after("b", "/count/c") });
    let definition = fan_out(&tenant, nodes, 5).await;
    let id = tenant.start(&definition).await;
    receiver.until_called("/hold/b", 2).await;
    world.server.process.sigkill();
    let next = world.another(&MORTAL).await;
    let tenant = tenant.at(&next.base);
    world.receiver.until_called("/hold/b", 4).await;
    world.receiver.open();
    tenant.completed(&id).await;
    assert_eq!(children(&tenant, &id).await.len(), 5, "no child twice");
    assert_eq!(world.receiver.calls("/count/a").len(), 5, "a completed node never runs again");
    assert_eq!(world.receiver.calls("/count/c").len(), 5);
    let mut tokens = world.receiver.calls("/hold/b");
    assert_eq!(tokens.len(), 7, "two were interrupted");
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 5, "and made again with the same token");
    assert_eq!(tenant.running().await, 0);
}

#[tokio::test]
async fn a_child_is_canceled_alone_and_ended_by_force_only_with_its_root() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = fan_out(&tenant, json!({ "call": world.receiver.node("/hold/child") }), 1).await;
    let id = tenant.start(&definition).await;
    world.receiver.until_called("/hold/child", 1).await;
    let child = text(&children(&tenant, &id).await[0]["executionId"]);
    let path = |verb: &str| format!("workflow/executions/{child}/{verb}");
    assert_eq!(tenant.api.post(&path("terminate"), json!({})).await.problem(409), "conflict");
    assert_eq!(tenant.api.post(&path("cancel"), json!({})).await.expect(202)["status"], "RUNNING");
    let ended = tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("FAILED"), &json!("CONTROL_FLOW_ERROR")));
    assert_eq!(tenant.status(&child).await, "CANCELED");
    assert_eq!(tenant.api.post(&path("cancel"), json!({})).await.expect(200)["status"], "CANCELED", "repeatable");
}

#[tokio::test]
async fn a_detached_start_is_dispatched_at_once() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    tenant.apply("own", json!({ "call": world.receiver.node("/count/own") })).await;
    let start = json!({ "start": { "kind": "WORKFLOW", "with": { "workflow": "own", "detached": true } } });
    let id = tenant.start(&tenant.apply("starts", start).await).await;
    tenant.completed(&id).await;
    world.receiver.until_called("/count/own", 1).await;
    assert!(children(&tenant, &id).await.is_empty(), "it is nobody's child");
    until("both are listed", async || {
        let listed = tenant.api.get("workflow/executions?status=COMPLETED").await.expect(200);
        (listed["items"].as_array().map(Vec::len) == Some(2)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_parked_tree_is_woken_by_the_cancel_of_its_child() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = fan_out(&tenant, json!({ "wait": { "kind": "DELAY", "with": { "for": "1h" } } }), 1).await;
    let id = tenant.start(&definition).await;
    let parked = format!("workflow_execution WHERE id = '{id}' AND status = 'RUNNING' AND owner IS NULL");
    until("it is parked", async || (world.count(&tenant, &parked).await == 1).then_some(())).await;
    let child = text(&children(&tenant, &id).await[0]["executionId"]);
    tenant.api.post(&format!("workflow/executions/{child}/cancel"), json!({})).await.expect(202);
    assert_eq!(tenant.ended(&id).await["status"], "FAILED");
    assert_eq!(tenant.status(&child).await, "CANCELED");
}

#[tokio::test]
async fn what_the_items_of_a_loop_say_is_in_the_logs_and_a_failure_once() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let log = json!({ "kind": "LOG", "with": { "message": "this is ${{ item }}" } });
    let fail = json!({ "kind": "HTTP_REQUEST", "with": { "url": world.receiver.url("/echo/404") } });
    let each = |items: Value, does: Value| json!({ "kind": "FOR_EACH", "with": { "items": items, "do": does } });
    let mut failing = each(json!(["c"]), fail);
    failing["needs"] = json!("say");
    let definition = tenant.apply("logs", json!({ "say": each(json!(["a", "b"]), log), "fail": failing })).await;
    let id = tenant.start(&definition).await;
    assert_eq!(tenant.ended(&id).await["status"], "FAILED");
    let logs = tenant.api.get(&format!("workflow/executions/{id}/logs")).await.expect(200);
    let mut lines: Vec<(String, i64, String)> = logs["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| (text(&line["node"]), line["iteration"].as_i64().unwrap_or(0), text(&line["message"])))
        .collect();
    lines.sort();
    let line = |node: &str, iteration, message: &str| (node.to_owned(), iteration, message.to_owned());
    let failure = text(&tenant.execution(&id).await["error"]["message"]);
    let failure = failure.split_once(": ").expect("the item, and its failure").1;
    assert_eq!(lines, [line("fail", 1, failure), line("say", 1, "this is a"), line("say", 2, "this is b")]);
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let shown = cli.ok(&["logs", &id]).await;
    assert!(shown.contains("say[2]: this is b") && shown.contains("fail[1] attempt 1:"), "{shown}");
    let failed = cli.ok(&["logs", &id, "--failed"]).await;
    assert_eq!(failed.lines().count(), 1, "{failed}");
}
