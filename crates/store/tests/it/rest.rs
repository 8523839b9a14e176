//! The table as clients of PostgREST ask and change it: every column in every place that the dialect has for it.

use kernel::realtime::column::{COLUMNS, Type};
use kernel::rest::decode::pairs;
use kernel::rest::header::Wanted;
use kernel::rest::query::Query;
use serde_json::{Value, json};
use store::Error;
use store::rest::Change;
use store::testing::Database;

fn query(text: &str) -> Query {
    Query::read(&pairs(text).expect("pairs")).expect("a query")
}

/// A value of each type, as a row of ours has none.
fn sample(of: Type) -> &'static str {
    match of {
        Type::Uuid => "6000db13-ef63-4a50-af33-ff8dba5ce0e0",
        Type::Text => "a b",
        Type::Jsonb => "{\"a\":1}",
        Type::Timestamptz => "now",
        Type::Int4 => "7",
    }
}

#[tokio::test]
async fn every_column_can_be_told_compared_and_ordered() {
    let database = Database::new().await;
    let ask = async |text: &str| database.store.ask_rows(&query(text), Wanted::default(), None).await;
    for column in COLUMNS {
        let (name, value) = (column.name, sample(column.of).replace(' ', "+").replace('"', "%22"));
        let ordered: &[&str] = if column.of.is_ordered() { &["lt", "lte", "gt", "gte"] } else { &[] };
        for operator in ["eq", "neq", "not.eq"].iter().chain(ordered) {
            let text = format!("select={name}&{name}={operator}.{value}&order={name}.desc.nullslast,id.nullsfirst");
            assert_eq!(ask(&text).await.expect(&text).body, "[]", "{text}");
        }
        for test in ["is.null", "not.is.null", "in.()", "not.in.()"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("in.(\"{}\")", sample(column.of).replace('"', "\\\""))])
        {
            let text = format!("{name}={}&order={name}", test.replace(' ', "+").replace('"', "%22"));
            assert_eq!(ask(&text).await.expect(&text).count, 0, "{text}");
        }
    }
}

#[tokio::test]
async fn a_change_sets_what_it_names_and_the_guard_refuses_the_rest() {
    let database = Database::new().await;
    let client = database.client().await;
    let row = "INSERT INTO workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type)
        VALUES (gen_random_uuid(), 'x', '{}', gen_random_uuid(), 's') RETURNING id::text";
    let id: String = client.query_one(row, &[]).await.expect("a row").get(0);
    let change = async |body: Value, text: &str| {
        let (query, set) = (query(text), kernel::rest::change::columns(&body).expect("columns"));
        let asked = Change { query: &query, set: &set, body: &body, wanted: Wanted::default() };
        database.store.change_rows(&asked, None).await.map(|rows| rows.expect("rows"))
    };
    let by_id = format!("id=eq.{id}&select=status,worker_id,workflow_id,result,retry_count");
    let claim = json!({ "status": "processing", "worker_id": "w", "claimed_at": "now", "updated_at": "now" });
    let claimed = change(claim.clone(), &format!("{by_id}&status=eq.pending")).await.expect("a claim");
    let told: Value = serde_json::from_str(&claimed.body).expect("JSON");
    let first =
        json!({ "status": "processing", "worker_id": "w", "workflow_id": null, "result": null, "retry_count": 0 });
    assert_eq!((claimed.count, told), (1, json!([first])));
    assert_eq!(change(claim.clone(), &format!("{by_id}&status=eq.pending")).await.expect("none").count, 0);
    let noted = change(json!({ "workflow_id": "wf", "workflow_run_id": "run" }), &by_id).await.expect("a note");
    assert!(noted.body.contains("\"workflow_id\":\"wf\""), "{}", noted.body);
    let other = change(json!({ "worker_id": "v" }), &by_id).await.expect_err("another holds it");
    assert!(matches!(&other, Error::Refused { code, .. } if code == "23514"), "{other}");
    assert_eq!(other.told().as_deref(), Some("a processing job cannot be claimed: w holds it"));
    let done = json!({ "status": "completed", "completed_at": "now", "result": "a text", "updated_at": "now" });
    let ended = change(done.clone(), &by_id).await.expect("an end");
    assert!(ended.body.contains("\"result\":\"a text\""), "{}", ended.body);
    assert!(change(claim, &by_id).await.is_err(), "what is completed stays so");
    let scoped = Change { query: &query(&by_id), set: &[], body: &done, wanted: Wanted::default() };
    let nobody = Some(kernel::ids::WorkspaceId(store::new_id()));
    let set = kernel::rest::change::columns(&done).expect("columns");
    let seen = database.store.change_rows(&Change { set: &set, ..scoped }, nobody).await.expect("an answer");
    assert_eq!(seen.expect("rows").count, 0, "a row of no workspace is no workspace's");
}
