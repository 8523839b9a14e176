//! The plain SQL that other programs may rely on: the view of the queue, and starting executions in their own
//! transaction.

use kernel::ids::ExecutionId;
use uuid::Uuid;

use crate::support::{Limits, World, new_version};

/// The source document's query, verbatim.
const CLAIM_BATCH: &str = "SELECT * FROM workflow_execution_queue
WHERE status = 'PENDING'
ORDER BY created_at ASC
LIMIT 10
FOR UPDATE SKIP LOCKED";

#[tokio::test]
async fn the_source_documents_query_reads_the_view_and_skips_what_another_holds() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 15).await;
    let (mut one, mut other) = (world.database.client().await, world.database.client().await);
    let (one, other) = (one.transaction().await.expect("begin"), other.transaction().await.expect("begin"));
    let mut seen = Vec::new();
    for (transaction, expected) in [(&one, 10), (&other, 5)] {
        let rows = transaction.query(CLAIM_BATCH, &[]).await.expect("the query works");
        assert_eq!(rows.len(), expected);
        seen.extend(rows.iter().map(|row| ExecutionId(row.get("execution_id"))));
    }
    seen.sort();
    assert_eq!(seen, accepted);
}

#[tokio::test]
async fn an_sql_integer_beyond_64_bits_keeps_its_digits() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let input = r#"'{"id": 123456789012345678901, "max": 18446744073709551615, "double": 1e20}'"#;
    let id: Uuid = world.get(&format!("SELECT forebay.enqueue($1, $2, {input})"), &[&workspace.0, &definition.0]).await;
    let execution = world.store.execution(ExecutionId(id), Some(workspace)).await.expect("the execution");
    let kept = serde_json::json!({ "id": "123456789012345678901", "max": u64::MAX, "double": 1e20 });
    assert_eq!(execution.input, Some(kept));
}

#[tokio::test]
async fn a_start_inside_another_programs_transaction_is_there_when_it_commits_and_not_before() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let mut client = world.database.client().await;
    for commit in [false, true] {
        let transaction = client.transaction().await.expect("begin");
        let row = transaction
            .query_one("SELECT forebay.enqueue($1, $2, '{\"order\": 7}')", &[&workspace.0, &definition.0])
            .await
            .expect("an accepted start");
        let id: Uuid = row.get(0);
        assert_eq!(world.count("workflow_execution").await, 0, "nobody sees it before its commit");
        if !commit {
            transaction.rollback().await.expect("rollback");
            assert_eq!(world.count("workflow_execution").await + world.count("execution_queue").await, 0);
            continue;
        }
        transaction.commit().await.expect("commit");
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
        let execution = world.store.execution(ExecutionId(id), Some(workspace)).await.expect("the execution");
        assert_eq!(execution.input, Some(serde_json::json!({ "order": 7 })));
        assert_eq!(world.state(ExecutionId(id)).await, "PENDING, PENDING");
        assert_eq!(world.count("workflow_execution").await, 1);
        assert_eq!(world.count("audit WHERE action = 'execution.start' AND actor = 'sql:forebay'").await, 1);
    }
    assert_eq!(world.run(workspace, 1).await.len(), 1, "and it is claimed like any other");
}

#[tokio::test]
async fn its_ids_carry_the_databases_time_and_no_two_are_alike() {
    let world = World::new().await;
    let rows = world.client.query("SELECT forebay.new_id() FROM generate_series(1, 1000)", &[]).await.expect("ids");
    let now: i64 = world.get("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[]).await;
    let mut ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    for id in &ids {
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122), "{id}");
        let (seconds, nanos) = id.get_timestamp().expect("a time").to_unix();
        let ms = i64::try_from(seconds * 1_000 + u64::from(nanos) / 1_000_000).expect("a time of today");
        assert!((now - 60_000..=now + 1).contains(&ms), "{id} is of {ms}, now is {now}");
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1_000);
}

#[tokio::test]
async fn what_cannot_be_started_is_refused_with_a_reason() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (stranger, _) = world.tenant("PRO").await;
    let draft = new_version(Limits::default());
    let (draft, _) = world.store.create_definition(workspace, "draft", &draft, "test").await.expect("a draft");
    let table = [
        (stranger, definition, 3, "P0002", "no definition"),
        (workspace, draft, 3, "P0002", "is not published"),
        (workspace, definition, 0, "23514", "priority 0 is outside 1 to 5"),
        (workspace, definition, 6, "23514", "priority 6 is outside 1 to 5"),
    ];
    for (workspace, definition, priority, code, words) in table {
        let error = world
            .client
            .query_one("SELECT forebay.enqueue($1, $2, NULL, $3)", &[&workspace.0, &definition.0, &priority])
            .await
            .expect_err(words);
        let error = error.as_db_error().expect("the database's own error");
        assert_eq!(error.code().code(), code, "{words}");
        assert!(error.message().contains(words), "{}", error.message());
    }
    assert_eq!(world.count("workflow_execution").await, 0);
}

#[tokio::test]
async fn its_idempotency_key_makes_one_start_of_many_calls() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let call = "SELECT forebay.enqueue($1, $2, $3::text::jsonb, idempotency_key => 'order-7')";
    let first: Uuid = world.get(call, &[&workspace.0, &definition.0, &"{\"a\": 1}"]).await;
    let again: Uuid = world.get(call, &[&workspace.0, &definition.0, &"{ \"a\":1 }"]).await;
    assert_eq!(first, again, "the same content, however it is spaced");
    let error =
        world.client.query_one(call, &[&workspace.0, &definition.0, &"{\"a\": 2}"]).await.expect_err("conflict");
    assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::UNIQUE_VIOLATION));
    assert_eq!(world.stages(workspace).await, "ready 1");
}

#[tokio::test]
async fn every_way_to_start_stores_the_same_rules_rank_and_deadline() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let by_sql: Uuid = world.get("SELECT forebay.enqueue($1, $2, NULL, 1)", &[&workspace.0, &definition.0]).await;
    let by_us = world.accept(&[crate::support::start(workspace, definition)]).await[0];
    let semantics: Vec<i32> =
        world.get("SELECT array_agg(semantics ORDER BY created_at) FROM workflow_execution", &[]).await;
    assert_eq!(semantics, [kernel::SEMANTICS; 2]);
    let earlier: i64 = world
        .get(
            "SELECT ((extract(epoch FROM created_at) * 1000)::bigint - rank) / 2 FROM execution_queue WHERE id = $1",
            &[&by_sql],
        )
        .await;
    assert_eq!(earlier, kernel::queue::PRIORITY_STEP_MS, "two steps before the usual priority");
    for id in [by_sql, by_us.0] {
        let days: f64 = world
            .get(
                "SELECT extract(epoch FROM deadline_at - created_at)::float8 / 86400 FROM workflow_execution WHERE id = $1",
                &[&id],
            )
            .await;
        assert!((days - 30.0).abs() < 1e-6, "{days}");
    }
}
