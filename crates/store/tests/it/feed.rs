//! The change log: which changes are written to it, and how it is pruned. Readers miss no change and see none twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kernel::change::cursor::{Cursor, Position};
use kernel::change::{Change, Op, Topic};
use kernel::execution;
use kernel::ids::WorkspaceId;
use kernel::job::table::{COLUMNS, TABLE};
use serde_json::json;
use store::feed::MissedQuery;
use store::{Store, new_id};
use uuid::Uuid;

use crate::support::{World, eventually};

const INSERT: &str = "INSERT INTO workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type)
    VALUES ($1, 'a.b', '{}', gen_random_uuid(), 's')";

async fn all(store: &Store) -> Vec<Change> {
    store.drain_log(0, &[], 100_000).await.expect("a drain").changes
}

#[tokio::test]
async fn the_published_columns_are_the_tables() {
    let world = World::new().await;
    let sql = "SELECT a.attname::text, t.typname::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    let rows = world.client.query(sql, &[&TABLE]).await.expect("a catalogue");
    let stored: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let ours: Vec<(String, String)> =
        COLUMNS.iter().map(|column| (column.name.to_owned(), column.of.name().to_owned())).collect();
    assert_eq!(stored, ours);
}

#[tokio::test]
async fn each_change_of_a_projection_row_is_logged_with_its_new_image() {
    let world = World::new().await;
    let workspace = world.workspace("FREE").await;
    let (event, stranger) = (new_id(), new_id());
    let append =
        "INSERT INTO domain_events (id, workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
        VALUES ($1, $2, gen_random_uuid(), 's', 1, 'a.b', '{}')";
    world.run_sql(append, &[&event, &workspace.0]).await;
    world.run_sql(INSERT, &[&event]).await;
    world.run_sql(INSERT, &[&stranger]).await;
    // Claimed in the same transaction as another change: each entry has its own row image.
    world.client.batch_execute("BEGIN").await.expect("a transaction");
    let claim = "UPDATE workflow_queue_projection SET status = 'processing', worker_id = 'w', claimed_at = now() WHERE event_id = $1";
    world.run_sql(claim, &[&event]).await;
    world.run_sql("UPDATE workflow_queue_projection SET workflow_id = 'mine' WHERE event_id = $1", &[&event]).await;
    world
        .client
        .batch_execute("COMMIT; BEGIN; UPDATE workflow_queue_projection SET updated_at = now(); ROLLBACK")
        .await
        .expect("a commit");
    let retire = format!(
        "BEGIN; SET LOCAL forebay.projection = 'retention';
        DELETE FROM workflow_queue_projection WHERE event_id = '{event}'; COMMIT"
    );
    world.client.batch_execute(&retire).await.expect("a deletion");
    let outcome: Vec<String> = all(&world.store)
        .await
        .iter()
        .map(|change| {
            let of = |row: &Option<serde_json::Value>| {
                row.as_ref().map(|row| format!("{} {}", row["status"], row["workflow_id"]).replace('"', ""))
            };
            let whose = if change.workspace == Some(workspace) { "ours" } else { "nobody's" };
            format!("{} {whose} {:?} {:?}", change.op.name(), of(&change.old), of(&change.record))
        })
        .collect();
    assert_eq!(
        outcome,
        [
            r#"INSERT ours None Some("pending null")"#,
            r#"INSERT nobody's None Some("pending null")"#,
            r#"UPDATE ours Some("pending null") Some("processing null")"#,
            r#"UPDATE ours Some("processing null") Some("processing mine")"#,
            r#"DELETE ours Some("processing mine") None"#,
        ]
    );
    let created = all(&world.store).await[0].record.as_ref().expect("an image")["created_at"].to_string();
    assert!(created.ends_with("+00:00\""), "{created}");
}

#[tokio::test]
async fn each_step_of_an_execution_is_logged_once() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let ids = world.accept_many(workspace, definition, 2).await;
    world.run(workspace, 2).await;
    world.finish(ids[0], execution::Status::Completed).await;
    // Repeated, and late: it has already ended.
    world.finish(ids[0], execution::Status::Failed).await;
    world.finish(ids[1], execution::Status::Canceled).await;
    for (id, end) in [(ids[0], "COMPLETED"), (ids[1], "CANCELED")] {
        let outcome: Vec<(Op, String)> = all(&world.store)
            .await
            .into_iter()
            .filter(|change| {
                change.id == id.0 && change.topic == Topic::Execution && change.workspace == Some(workspace)
            })
            .map(|change| (change.op, change.status.unwrap_or_default()))
            .collect();
        let step = |op, status: &str| (op, status.to_owned());
        assert_eq!(outcome, [step(Op::Insert, "PENDING"), step(Op::Update, "RUNNING"), step(Op::Update, end)]);
    }
}

/// A reader with a cursor in memory: what it got immediately, and what it got in order.
async fn read(store: Store, over: Arc<AtomicBool>, from: u64) -> (Vec<Position>, Vec<Position>) {
    let (mut cursor, mut fresh, mut settled) = (Cursor::new(from), Vec::new(), Vec::new());
    loop {
        let last = over.load(Ordering::SeqCst);
        let found = store.drain_log(cursor.low(), &cursor.drained(), 50).await.expect("a drain");
        let positions: Vec<(Position, Position)> =
            found.changes.iter().map(|change| (change.position, change.position)).collect();
        fresh.extend(positions.iter().map(|(position, _)| *position));
        settled.extend(cursor.advance(&positions, found.extent.horizon, found.all));
        if last && found.all && cursor.drained().is_empty() {
            return (fresh, settled);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A reader that keeps only its position, like one that reconnects to another process each time.
async fn come_back(store: Store, end: Arc<AtomicU64>, from: u64) -> Vec<Position> {
    let (mut after, mut outcome) = (Position::start_of(from), Vec::new());
    loop {
        let end = end.load(Ordering::SeqCst);
        let below = store.log_extent().await.expect("an extent").horizon;
        let missed = MissedQuery { after, below, workspace: None, topics: &[Topic::Job], id: None };
        let page = store.missed_changes(&missed, 20).await.expect("a page");
        outcome.extend(page.changes.iter().map(|change| change.position));
        match page.next.or(page.changes.last().map(|change| change.position)) {
            Some(next) => after = next,
            None if below > end => return outcome,
            None => tokio::time::sleep(Duration::from_millis(3)).await,
        }
    }
}

#[tokio::test]
async fn readers_beside_long_and_short_transactions_miss_nothing_and_see_nothing_twice() {
    let world = World::new().await;
    let from = world.store.open_log().await.expect("a log").horizon;
    let (over, end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
    let live = tokio::spawn(read(world.store.clone(), Arc::clone(&over), from));
    let back = tokio::spawn(come_back(world.store.clone(), Arc::clone(&end), from));
    let mut writers = Vec::new();
    for writer in 0..8_u64 {
        let client = world.database.client().await;
        writers.push(tokio::spawn(async move {
            for round in 0..40_u64 {
                client.batch_execute("BEGIN").await.expect("a transaction");
                for _ in 0..=(writer + round) % 4 {
                    client.execute(INSERT, &[&new_id()]).await.expect("a row");
                    // Half of them stay open across the others' commits.
                    tokio::time::sleep(Duration::from_millis(if writer % 2 == 0 { 0 } else { 3 })).await;
                }
                let end = if round % 7 == 3 { "ROLLBACK" } else { "COMMIT" };
                client.batch_execute(end).await.expect("an end");
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    over.store(true, Ordering::SeqCst);
    let stored: Vec<Position> = all(&world.store).await.iter().map(|change| change.position).collect();
    end.store(stored.last().expect("a change").xid, Ordering::SeqCst);
    let rows = usize::try_from(world.count("workflow_queue_projection").await).expect("a count");
    assert_eq!(stored.len(), rows, "what was rolled back is not there");
    let (fresh, settled) = live.await.expect("a reader");
    assert_eq!(fresh.iter().collect::<BTreeSet<_>>().len(), fresh.len(), "nothing twice");
    assert_eq!(BTreeSet::from_iter(fresh), BTreeSet::from_iter(stored.clone()));
    assert_eq!(settled, stored, "settled: all, once, in order");
    assert_eq!(back.await.expect("a reader"), stored, "the same for a reader that keeps only its position");
}

#[tokio::test]
async fn the_order_of_one_row_is_the_order_of_its_changes() {
    let world = World::new().await;
    let event = new_id();
    world.run_sql(INSERT, &[&event]).await;
    let claim = "UPDATE workflow_queue_projection SET status = 'processing', worker_id = 'w', claimed_at = now(), workflow_id = '0'
        WHERE event_id = $1";
    world.run_sql(claim, &[&event]).await;
    let mut writers = Vec::new();
    for _ in 0..4 {
        let client = world.database.client().await;
        let add = "UPDATE workflow_queue_projection SET workflow_id = (workflow_id::int + 1)::text WHERE event_id = $1";
        writers.push(tokio::spawn(async move {
            for _ in 0..25 {
                client.execute(add, &[&event]).await.expect("a change");
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    let mut changes = all(&world.store).await;
    changes.sort_by_key(|change| change.position.seq);
    let counts: Vec<serde_json::Value> =
        changes.into_iter().skip(1).map(|change| change.record.expect("an image")["workflow_id"].clone()).collect();
    assert_eq!(counts, (0..=100).map(|count| json!(count.to_string())).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_pruned_is_noted_and_what_is_emptied_is_noticed() {
    let world = World::new().await;
    let (old, new) = (new_id(), new_id());
    world.store.open_log().await.expect("a log");
    world.run_sql(INSERT, &[&old]).await;
    let position = all(&world.store).await[0].position;
    world.run_sql("UPDATE change_log SET at = at - interval '1 hour'", &[]).await;
    world.run_sql(INSERT, &[&new]).await;
    let kept = Duration::from_secs(15 * 60);
    // Nothing is pruned while an older transaction is open anywhere in the cluster, also in another test's database.
    eventually("the entry is pruned", async || world.store.prune_log(kept, 100).await.expect("a pruning") == 1).await;
    assert_eq!(world.store.prune_log(kept, 100).await.expect("a pruning"), 0, "a second pruning finds less");
    let extent = world.store.log_extent().await.expect("an extent");
    let left = all(&world.store).await;
    assert_eq!((extent.pruned, left.len()), (Some(position.xid), 1));
    assert!(!position.is_retained(position.xid, u64::MAX) && left[0].position.is_retained(position.xid, u64::MAX));
    // What a crash of the database does to unlogged tables.
    world.client.batch_execute("TRUNCATE change_log, change_log_pruned").await.expect("empty tables");
    assert_eq!(world.store.log_extent().await.expect("an extent").pruned, None);
    let extent = world.store.open_log().await.expect("a log");
    assert!(extent.pruned.is_some_and(|gone| gone < extent.horizon), "{extent:?}");
}

#[tokio::test]
async fn a_reconnecting_reader_gets_only_its_own_workspace_topic_and_row() {
    let world = World::new().await;
    let (ours, definition) = world.tenant("PRO").await;
    let (theirs, other) = world.tenant("PRO").await;
    let ids = world.accept_many(ours, definition, 2).await;
    world.accept_many(theirs, other, 1).await;
    world.run_sql(INSERT, &[&new_id()]).await;
    let below = i64::MAX.unsigned_abs();
    let count = async |workspace: Option<WorkspaceId>, topic: Topic, id: Option<Uuid>| {
        let missed = MissedQuery { after: Position::start_of(0), below, workspace, topics: &[topic], id };
        world.store.missed_changes(&missed, 100).await.expect("a page").changes.len()
    };
    let found = BTreeMap::from([
        ("ours", count(Some(ours), Topic::Execution, None).await),
        ("one of ours", count(Some(ours), Topic::Execution, Some(ids[0].0)).await),
        ("one of ours, for them", count(Some(theirs), Topic::Execution, Some(ids[0].0)).await),
        ("of no workspace, for us", count(Some(ours), Topic::Job, None).await),
        ("of no workspace, for a root key", count(None, Topic::Job, None).await),
        ("all, for a root key", count(None, Topic::Execution, None).await),
    ]);
    assert_eq!(
        found,
        BTreeMap::from([
            ("ours", 2),
            ("one of ours", 1),
            ("one of ours, for them", 0),
            ("of no workspace, for us", 0),
            ("of no workspace, for a root key", 1),
            ("all, for a root key", 3),
        ])
    );
}

#[tokio::test]
async fn a_page_reads_a_bounded_number_of_entries_of_any_workspace() {
    let world = World::new().await;
    let (ours, definition) = world.tenant("PRO").await;
    let (theirs, other) = world.tenant("PRO").await;
    for _ in 0..7 {
        world.accept_many(theirs, other, 2).await;
    }
    let id = world.accept_many(ours, definition, 1).await[0];
    let (mut after, mut pages, mut outcome) = (Position::start_of(0), 0, Vec::new());
    loop {
        let missed = MissedQuery {
            after,
            below: i64::MAX.unsigned_abs(),
            workspace: Some(ours),
            topics: &[Topic::Execution],
            id: None,
        };
        let page = world.store.missed_changes(&missed, 3).await.expect("a page");
        outcome.extend(page.changes.iter().map(|change| change.id));
        pages += 1;
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!((outcome, pages > 2), (vec![id.0], true), "{pages} pages");
}

#[tokio::test]
async fn a_change_log_restored_from_another_cluster_starts_again() {
    let world = World::new().await;
    world.run_sql(INSERT, &[&new_id()]).await;
    world
        .client
        .batch_execute(
            "UPDATE change_log SET xid = '999999999999'; UPDATE change_log_pruned SET pruned_xid = '999999999999'",
        )
        .await
        .expect("a restore");
    let extent = world.store.open_log().await.expect("a log");
    assert!(extent.pruned.is_some_and(|gone| gone < extent.horizon), "{extent:?}");
    assert_eq!(all(&world.store).await, []);
    world.run_sql(INSERT, &[&new_id()]).await;
    assert_eq!(all(&world.store).await.len(), 1);
    assert_eq!(world.store.open_log().await.expect("a log").pruned, extent.pruned, "and is unchanged after that");
}

#[tokio::test]
async fn a_temporary_table_is_not_mistaken_for_the_change_log() {
    let world = World::new().await;
    world
        .client
        .batch_execute("CREATE TEMP TABLE change_log (LIKE forebay.change_log INCLUDING DEFAULTS)")
        .await
        .expect("a table");
    world.run_sql(INSERT, &[&new_id()]).await;
    let count = async |table: &str| -> i64 {
        world.client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.expect("a count").get(0)
    };
    assert_eq!((count("pg_temp.change_log").await, count("forebay.change_log").await), (0, 1));
}
