//! Responses are limited in bytes. Larger lists and logs come in several pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Shared, Tenant};

/// Follows cursors to the end; every page is small enough, and there is more than one.
async fn every(tenant: &Tenant, path: &str) -> Vec<Value> {
    let (mut items, mut query, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = tenant.api.get(&format!("{path}{query}")).await.expect(200);
        assert!(page.to_string().len() < 6 * 1024 * 1024, "a page of {} bytes", page.to_string().len());
        items.extend(page["items"].as_array().expect("items").iter().cloned());
        pages += 1;
        match page["nextCursor"].as_str() {
            Some(cursor) => query = format!("?cursor={cursor}"),
            None => break,
        }
    }
    assert!(pages > 1, "{path} came in one page");
    items
}

#[tokio::test]
async fn large_nodes_and_what_they_said_come_in_pages_with_every_node_once() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let names: BTreeSet<String> = (0..20).map(|n| format!("n{n}")).collect();
    let node = |n: usize| {
        let needs: Vec<String> = n.checked_sub(1).iter().map(|before| format!("n{before}")).collect();
        (format!("n{n}"), json!({ "kind": "LOG", "with": { "message": "hello" }, "needs": needs }))
    };
    let nodes: serde_json::Map<String, Value> = (0..20).map(node).collect();
    let id = tenant.start(&tenant.apply("talks", Value::Object(nodes)).await).await;
    tenant.completed(&id).await;
    let large = "jsonb_build_object('level', 'info', 'message', repeat('x', 1000000))";
    world.run_sql(&format!("UPDATE workflow_execution_node SET output = {large} WHERE execution_id = '{id}'")).await;
    for (path, most) in [("nodes", 20), ("logs", 20)] {
        let items = every(&tenant, &format!("workflow/executions/{id}/{path}")).await;
        let seen: BTreeSet<String> =
            items.iter().map(|item| item["node"].as_str().expect("a node").to_owned()).collect();
        assert_eq!((items.len(), &seen), (most, &names), "{path}");
    }
    let one = tenant.api.get(&format!("workflow/executions/{id}/nodes?node=n7")).await.expect(200);
    assert_eq!(one["items"].as_array().map(Vec::len), Some(1));
}
