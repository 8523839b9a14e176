//! Hostile requests to the table's address: each is either refused or does exactly what it states, and nothing breaks.

use reqwest::Method;
use serde_json::{Value, json};

use super::{TABLE, job};
use crate::support::World;
use crate::support::http::{Reply, send};

async fn ask(world: &World, method: Method, rest: &str, body: Option<Vec<u8>>) -> Reply {
    let request = world.server.api().request(method, &format!("/rest/v1/{rest}"));
    send(match body {
        Some(body) => request.header("content-type", "application/json").body(body),
        None => request,
    })
    .await
}

/// An answer that is no success is an object of PostgREST's four fields and never our fault.
#[track_caller]
fn refused(reply: &Reply, what: &str) {
    assert!((400..500).contains(&reply.status), "{what}: {} {}", reply.status, reply.text);
    for field in ["code", "message", "details", "hint"] {
        assert!(reply.body.get(field).is_some(), "{what}: {}", reply.text);
    }
    assert!(!reply.text.contains("Failing row"), "{what}: {}", reply.text);
}

const INJECTIONS: [&str; 12] = [
    "id\"; DROP TABLE workflow_queue_projection; --",
    "id; DELETE FROM workflow_queue_projection",
    "id) OR (1=1",
    "pg_sleep(10)",
    "(SELECT secret_hash FROM api_key LIMIT 1)",
    "id/*end*/",
    "/*where*/true",
    "p.id",
    "$1",
    "id::text::regclass",
    "\u{0}",
    "ctid",
];

#[tokio::test]
async fn nothing_in_a_request_becomes_a_part_of_a_statement() {
    let world = World::new().await;
    let id = job(&world.database, None, "pending").await;
    let before = world.everything().await;
    let table = |query: &str| format!("{TABLE}?{query}");
    for text in INJECTIONS {
        let text = &percent(text);
        for query in [
            format!("select={text}"),
            format!("select=id,{text}"),
            format!("order={text}"),
            format!("order=id.{text}"),
            format!("{text}=eq.1"),
            format!("status={text}.pending"),
            format!("id=eq.{text}"),
            format!("id=in.({text})"),
            format!("retry_count=gt.{text}"),
            format!("created_at=lt.{text}"),
            format!("limit={text}"),
            format!("offset={text}"),
        ] {
            refused(&ask(&world, Method::GET, &table(&query), None).await, &query);
            let set = json!({ "status": "processing", "worker_id": "w" }).to_string().into_bytes();
            refused(&ask(&world, Method::PATCH, &table(&query), Some(set)).await, &query);
        }
        // As a value of a text it is a text.
        if text != "%00" {
            for query in [format!("worker_id=eq.{text}"), format!("status=in.(%22{text}%22)")] {
                let reply = ask(&world, Method::GET, &table(&query), None).await;
                assert!([200, 400].contains(&reply.status), "{query}: {}", reply.text);
                assert!(reply.status == 400 || reply.body == json!([]), "{query}: {}", reply.text);
            }
        }
        refused(&ask(&world, Method::GET, text, None).await, text);
    }
    for key in INJECTIONS.into_iter().chain(["id", "event_data", "created_at", "xmin"]) {
        let body = json!({ key: "x", "status": "processing" }).to_string().into_bytes();
        refused(&ask(&world, Method::PATCH, &table(&format!("id=eq.{id}")), Some(body)).await, key);
    }
    assert_eq!(world.everything().await, before, "nothing was changed");
}

#[tokio::test]
async fn what_is_too_much_or_not_text_is_refused() {
    let world = World::new().await;
    let id = job(&world.database, None, "pending").await;
    let before = world.everything().await;
    let many = vec![store::new_id().to_string(); 1001].join(",");
    for query in [
        "status=eq.%ff".to_owned(),
        "status=eq.%C3%28".to_owned(),
        "%80=eq.1".to_owned(),
        "status=eq.%".to_owned(),
        "status=eq.%u0041".to_owned(),
        "status=eq.%00".to_owned(),
        format!("id=in.({many})"),
        "a=b&".repeat(300),
        "limit=99999999999999999999".to_owned(),
        "offset=-1".to_owned(),
        "retry_count=eq.99999999999".to_owned(),
        "created_at=gt.99999999-01-01".to_owned(),
        "event_data=eq.{".to_owned(),
        "event_data=lt.1".to_owned(),
    ] {
        refused(&ask(&world, Method::GET, &format!("{TABLE}?{query}"), None).await, &query);
    }
    let most = vec![store::new_id().to_string(); 1000].join(",");
    let reply = ask(&world, Method::GET, &format!("{TABLE}?id=in.({most})"), None).await;
    assert_eq!((reply.status, &reply.body), (200, &json!([])), "a thousand are taken");
    let deep = format!("{{\"result\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let large = json!({ "status": "processing", "worker_id": "w", "error_stack": "x".repeat(2 << 20) }).to_string();
    for body in [
        "",
        "{",
        "null",
        "[]",
        "[{\"status\":\"processing\"}]",
        "\"status\"",
        "{\"status\":\"processing\",\"status\":\"completed\"}",
        "{\"worker_id\":\"\\u0000\"}",
        "{\"retry_count\":99999999999}",
        "{\"claimed_at\":\"yesterday evening\"}",
        "{\"claimed_at\":{\"a\":1}}",
        deep.as_str(),
        large.as_str(),
    ] {
        let short: String = body.chars().take(60).collect();
        refused(&ask(&world, Method::PATCH, &format!("{TABLE}?id=eq.{id}"), Some(body.into())).await, &short);
    }
    let bytes = b"{\"worker_id\":\"\xff\"}".to_vec();
    refused(&ask(&world, Method::PATCH, &format!("{TABLE}?id=eq.{id}"), Some(bytes)).await, "bytes");
    for path in ["%ff", "..%2f..", "rpc/claim", "workflow_queue_projection/x", "WORKFLOW_QUEUE_PROJECTION"] {
        refused(&ask(&world, Method::GET, path, None).await, path);
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let reply = ask(&world, method, TABLE, None).await;
        assert_eq!((reply.status, &reply.body["code"]), (405, &json!("PGRST117")), "{}", reply.text);
    }
    assert_eq!(world.everything().await, before, "nothing was changed");
}

#[tokio::test]
async fn an_answer_is_bounded_and_a_fault_of_ours_tells_nothing_of_its_cause() {
    let world = World::new().await;
    let rows = |count: i32, size: i32| {
        format!("INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type, error_stack)
            SELECT gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's', repeat('x', {size}) FROM generate_series(1, {count})")
    };
    world.run_sql(&rows(1005, 1)).await;
    let all = async |query: &str| ask(&world, Method::GET, &format!("{TABLE}?{query}"), None).await;
    let reply = all("select=id&limit=5000").await;
    assert_eq!(reply.body.as_array().map(Vec::len), Some(1000), "a thousand rows are the most");
    assert_eq!(reply.header("content-range"), "0-999/*");
    let rest = all("select=id&offset=1000").await;
    assert_eq!((rest.body.as_array().map(Vec::len), rest.header("content-range")), (Some(5), "1000-1004/*"));
    let set = json!({ "status": "processing", "worker_id": "w" });
    let reply = ask(&world, Method::PATCH, &format!("{TABLE}?status=eq.pending"), Some(set.to_string().into())).await;
    assert_eq!((reply.status, &reply.body["code"]), (400, &json!("PGRST124")), "{}", reply.text);
    assert_eq!(world.count(&format!("{TABLE} WHERE status = 'pending'")).await, 1005, "and nothing was changed");
    world.run_sql(&rows(30, 1 << 20)).await;
    let reply = all("select=error_stack&order=created_at.desc&limit=30").await;
    assert_eq!(reply.body.as_array().map(Vec::len), Some(16), "none begins after 16 MiB");
    world.run_sql(&format!("ALTER TABLE {TABLE} RENAME TO away")).await;
    let reply = all("select=id").await;
    assert_eq!((reply.status, &reply.body["code"]), (500, &json!("XX000")), "{}", reply.text);
    assert_eq!(reply.body["details"], Value::Null);
    assert!(!reply.text.contains(TABLE), "a 5xx tells nothing of its cause: {}", reply.text);
}

/// Every byte as an escape.
fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
