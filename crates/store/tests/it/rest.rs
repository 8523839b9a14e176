//! PostgREST clients query and change the table: every column is tested in every position that the dialect allows.

use kernel::job::query::Query;
use kernel::job::table::{COLUMNS, ColumnType};
use serde_json::{Value, json};
use store::Error;
use store::job::table::{RowChange, Rows};
use store::testing::Database;
use supabase::rest::RestError;
use supabase::rest::decode::read_pairs;
use supabase::rest::header::Preferences;
use supabase::rest::query::ParsedQuery;

fn query(text: &str) -> Query {
    ParsedQuery::read(&read_pairs(text).expect("pairs")).expect("a query").query
}

/// The changed rows are requested.
fn rows_wanted() -> Preferences {
    Preferences::read(None, ["return=representation"].into_iter()).expect("headers")
}

/// Pending rows of no workspace, with this many bytes each.
async fn pending(database: &Database, rows: i32, bytes: i32) {
    let insert = "INSERT INTO workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type)
        SELECT gen_random_uuid(), 'x', to_jsonb(repeat('x', $2::int)), gen_random_uuid(), 's' FROM generate_series(1, $1::int)";
    database.client().await.execute(insert, &[&rows, &bytes]).await.expect("rows");
}

async fn touch(database: &Database, text: &str, wanted: Preferences) -> Result<Rows, RestError> {
    let (query, body) = (query(text), json!({ "updated_at": "now" }));
    let set = supabase::rest::change::read_columns(&body).expect("columns");
    let asked = RowChange { query: &query, set: &set, body: &body, returning: wanted.rows };
    database.store.update_rows(&asked, None, |rows| wanted.decide(rows)).await.expect("an answer")
}

/// A value of each type that no row of ours has.
fn sample(of: ColumnType) -> &'static str {
    match of {
        ColumnType::Uuid => "6000db13-ef63-4a50-af33-ff8dba5ce0e0",
        ColumnType::Text => "a b",
        ColumnType::Jsonb => "{\"a\":1}",
        ColumnType::Timestamptz => "now",
        ColumnType::Int4 => "7",
    }
}

#[tokio::test]
async fn every_column_can_be_selected_compared_and_ordered() {
    let database = Database::new().await;
    let ask = async |text: &str| database.store.select_rows(&query(text), false, None).await;
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
        let (query, set) = (query(text), supabase::rest::change::read_columns(&body).expect("columns"));
        let asked = RowChange { query: &query, set: &set, body: &body, returning: true };
        database
            .store
            .update_rows(&asked, None, |rows| rows_wanted().decide(rows))
            .await
            .map(|rows| rows.expect("rows"))
    };
    let by_id = format!("id=eq.{id}&select=status,worker_id,workflow_id,result,retry_count");
    let claim = json!({ "status": "processing", "worker_id": "w", "claimed_at": "now", "updated_at": "now" });
    let claimed = change(claim.clone(), &format!("{by_id}&status=eq.pending")).await.expect("a claim");
    let outcome: Value = serde_json::from_str(&claimed.body).expect("JSON");
    let first =
        json!({ "status": "processing", "worker_id": "w", "workflow_id": null, "result": null, "retry_count": 0 });
    assert_eq!((claimed.count, outcome), (1, json!([first])));
    assert_eq!(change(claim.clone(), &format!("{by_id}&status=eq.pending")).await.expect("none").count, 0);
    let noted = change(json!({ "workflow_id": "wf", "workflow_run_id": "run" }), &by_id).await.expect("a note");
    assert!(noted.body.contains("\"workflow_id\":\"wf\""), "{}", noted.body);
    let other = change(json!({ "worker_id": "v" }), &by_id).await.expect_err("another worker holds it");
    assert!(matches!(&other, Error::Refused { code, .. } if code == "23514"), "{other}");
    assert_eq!(other.database_message().as_deref(), Some("a processing job cannot be claimed: w holds it"));
    let done = json!({ "status": "completed", "completed_at": "now", "result": "a text", "updated_at": "now" });
    let ended = change(done.clone(), &by_id).await.expect("an end");
    assert!(ended.body.contains("\"result\":\"a text\""), "{}", ended.body);
    assert!(change(claim, &by_id).await.is_err(), "a completed job stays completed");
    let scoped = RowChange { query: &query(&by_id), set: &[], body: &done, returning: false };
    let nobody = Some(kernel::ids::WorkspaceId(store::new_id()));
    let set = supabase::rest::change::read_columns(&done).expect("columns");
    let seen = database
        .store
        .update_rows(&RowChange { set: &set, ..scoped }, nobody, |rows| Preferences::default().decide(rows))
        .await
        .expect("an answer");
    assert_eq!(seen.expect("rows").count, 0, "no workspace sees a row of no workspace");
}

#[tokio::test]
async fn a_change_of_too_many_rows_reads_one_too_many_and_writes_nothing() {
    let database = Database::new().await;
    pending(&database, 1_500, 10).await;
    let refused = touch(&database, "status=eq.pending", Preferences::default()).await.expect_err("too many");
    assert_eq!(refused, RestError::TooMany { rows: 1_001, most: 1_000 });
    // Sequences do not roll back: a drawn number shows that a row was written and rolled back.
    let drawn = "SELECT last_value, (SELECT max(sequence) FROM domain_events) FROM domain_events_sequence_seq";
    let row = database.client().await.query_one(drawn, &[]).await.expect("a sequence");
    assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1), "no fact was written");
    let few = "status=eq.pending&event_type=eq.x&id=lt.80000000-0000-0000-0000-000000000000";
    let touched = touch(&database, few, Preferences::default()).await.expect("few enough");
    assert!((600..=900).contains(&touched.count), "{}", touched.count);
    assert_eq!(touched.body, "[]", "the rows were not requested");
}

#[tokio::test]
async fn changed_rows_are_returned_up_to_the_bound_of_a_read() {
    let database = Database::new().await;
    pending(&database, 20, 1 << 20).await;
    let outcome = touch(&database, "status=eq.pending", rows_wanted()).await.expect("a change");
    let listed: Vec<Value> = serde_json::from_str(&outcome.body).expect("JSON");
    assert_eq!((outcome.count, listed.len()), (16, 16), "none begins after 16 MiB");
    let changed = "SELECT count(*) FROM domain_events WHERE event_type = 'workflow.queue.touched'";
    let changed: i64 = database.client().await.query_one(changed, &[]).await.expect("a count").get(0);
    assert_eq!(changed, 20);
}

#[tokio::test]
async fn of_many_concurrent_claims_each_row_has_one() {
    let database = Database::new().await;
    pending(&database, 20, 10).await;
    let claims = (0..8).map(|racer| {
        let store = database.store.clone();
        tokio::spawn(async move {
            let body = json!({ "status": "processing", "worker_id": format!("w{racer}") });
            let set = supabase::rest::change::read_columns(&body).expect("columns");
            let query = query("status=eq.pending");
            let asked = RowChange { query: &query, set: &set, body: &body, returning: false };
            store.update_rows(&asked, None, |rows| Preferences::default().decide(rows)).await
        })
    });
    let mut claimed = 0;
    for claim in claims.collect::<Vec<_>>() {
        // Two that lock each other's rows in turn may deadlock, and one has to retry; the guard refuses neither.
        match claim.await.expect("it ends") {
            Ok(rows) => claimed += rows.expect("rows").count,
            Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error:?}"),
        }
    }
    assert_eq!(claimed, 20);
}
