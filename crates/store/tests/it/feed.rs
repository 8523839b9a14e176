//! The change log: what is written to it, that its readers miss nothing and see nothing twice, and pruning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kernel::change::cursor::{Cursor, Place};
use kernel::change::{Change, Op, Topic};
use kernel::execution;
use kernel::ids::WorkspaceId;
use kernel::job::table::{COLUMNS, TABLE};
use serde_json::json;
use store::feed::Missed;
use store::{Store, new_id};
use uuid::Uuid;

use crate::support::{World, eventually};

const INSERT: &str = "INSERT INTO workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type)
    VALUES ($1, 'a.b', '{}', gen_random_uuid(), 's')";

async fn all(store: &Store) -> Vec<Change> {
    store.drain(0, &[], 100_000).await.expect("a drain").changes
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
async fn a_row_of_the_projection_is_logged_as_each_change_left_it() {
    let world = World::new().await;
    let workspace = world.workspace("FREE").await;
    let (event, stranger) = (new_id(), new_id());
    let append =
        "INSERT INTO domain_events (id, workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
        VALUES ($1, $2, gen_random_uuid(), 's', 1, 'a.b', '{}')";
    world.run_sql(append, &[&event, &workspace.0]).await;
    world.run_sql(INSERT, &[&event]).await;
    world.run_sql(INSERT, &[&stranger]).await;
    // Claimed in the transaction of another change: each image is its own.
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
    let told: Vec<String> = all(&world.store)
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
        told,
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
    // Again, and late: it has ended.
    world.finish(ids[0], execution::Status::Failed).await;
    world.finish(ids[1], execution::Status::Canceled).await;
    for (id, end) in [(ids[0], "COMPLETED"), (ids[1], "CANCELED")] {
        let told: Vec<(Op, String)> = all(&world.store)
            .await
            .into_iter()
            .filter(|change| {
                change.id == id.0 && change.topic == Topic::Execution && change.workspace == Some(workspace)
            })
            .map(|change| (change.op, change.status.unwrap_or_default()))
            .collect();
        let step = |op, status: &str| (op, status.to_owned());
        assert_eq!(told, [step(Op::Insert, "PENDING"), step(Op::Update, "RUNNING"), step(Op::Update, end)]);
    }
}

/// A reader with a cursor in memory: what it was told at once, and what it was told in order.
async fn read(store: Store, over: Arc<AtomicBool>, from: u64) -> (Vec<Place>, Vec<Place>) {
    let (mut cursor, mut fresh, mut settled) = (Cursor::new(from), Vec::new(), Vec::new());
    loop {
        let last = over.load(Ordering::SeqCst);
        let found = store.drain(cursor.low(), &cursor.drained(), 50).await.expect("a drain");
        let places: Vec<(Place, Place)> = found.changes.iter().map(|change| (change.place, change.place)).collect();
        fresh.extend(places.iter().map(|(place, _)| *place));
        settled.extend(cursor.take(&places, found.extent.horizon, found.all));
        if last && found.all && cursor.drained().is_empty() {
            return (fresh, settled);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A reader that keeps nothing but its place, as one does who comes back each time on another process.
async fn come_back(store: Store, end: Arc<AtomicU64>, from: u64) -> Vec<Place> {
    let (mut after, mut told) = (Place::before(from), Vec::new());
    loop {
        let end = end.load(Ordering::SeqCst);
        let below = store.log_extent().await.expect("an extent").horizon;
        let missed = Missed { after, below, workspace: None, topics: &[Topic::Projection], id: None };
        let page = store.missed(&missed, 20).await.expect("a page");
        told.extend(page.changes.iter().map(|change| change.place));
        match page.next.or(page.changes.last().map(|change| change.place)) {
            Some(next) => after = next,
            None if below > end => return told,
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
    let stored: Vec<Place> = all(&world.store).await.iter().map(|change| change.place).collect();
    end.store(stored.last().expect("a change").xid, Ordering::SeqCst);
    let rows = usize::try_from(world.count("workflow_queue_projection").await).expect("a count");
    assert_eq!(stored.len(), rows, "what was rolled back is not there");
    let (fresh, settled) = live.await.expect("a reader");
    assert_eq!(fresh.iter().collect::<BTreeSet<_>>().len(), fresh.len(), "nothing twice");
    assert_eq!(BTreeSet::from_iter(fresh), BTreeSet::from_iter(stored.clone()));
    assert_eq!(settled, stored, "settled: all, once, in order");
    assert_eq!(back.await.expect("a reader"), stored, "the same for one that keeps its place alone");
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
    changes.sort_by_key(|change| change.place.seq);
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
    let place = all(&world.store).await[0].place;
    world.run_sql("UPDATE change_log SET at = at - interval '1 hour'", &[]).await;
    world.run_sql(INSERT, &[&new]).await;
    let kept = Duration::from_secs(15 * 60);
    // Nothing is forgotten while an older transaction is open anywhere in the cluster, in another test's database too.
    eventually("it is forgotten", async || world.store.prune_log(kept, 100).await.expect("a pruning") == 1).await;
    assert_eq!(world.store.prune_log(kept, 100).await.expect("a pruning"), 0, "twice finds less");
    let extent = world.store.log_extent().await.expect("an extent");
    let left = all(&world.store).await;
    assert_eq!((extent.gone, left.len()), (Some(place.xid), 1));
    assert!(!place.is_kept(place.xid, u64::MAX) && left[0].place.is_kept(place.xid, u64::MAX));
    // What a crash of the database does to unlogged tables.
    world.client.batch_execute("TRUNCATE change_log, change_log_kept").await.expect("empty tables");
    assert_eq!(world.store.log_extent().await.expect("an extent").gone, None);
    let extent = world.store.open_log().await.expect("a log");
    assert!(extent.gone.is_some_and(|gone| gone < extent.horizon), "{extent:?}");
}

#[tokio::test]
async fn who_comes_back_is_told_of_its_own_workspace_topic_and_row_alone() {
    let world = World::new().await;
    let (ours, definition) = world.tenant("PRO").await;
    let (theirs, other) = world.tenant("PRO").await;
    let ids = world.accept_many(ours, definition, 2).await;
    world.accept_many(theirs, other, 1).await;
    world.run_sql(INSERT, &[&new_id()]).await;
    let below = i64::MAX.unsigned_abs();
    let count = async |workspace: Option<WorkspaceId>, topic: Topic, id: Option<Uuid>| {
        let missed = Missed { after: Place::before(0), below, workspace, topics: &[topic], id };
        world.store.missed(&missed, 100).await.expect("a page").changes.len()
    };
    let found = BTreeMap::from([
        ("ours", count(Some(ours), Topic::Execution, None).await),
        ("one of ours", count(Some(ours), Topic::Execution, Some(ids[0].0)).await),
        ("one of ours, to them", count(Some(theirs), Topic::Execution, Some(ids[0].0)).await),
        ("nobody's, to us", count(Some(ours), Topic::Projection, None).await),
        ("nobody's, to a root key", count(None, Topic::Projection, None).await),
        ("all, to a root key", count(None, Topic::Execution, None).await),
    ]);
    assert_eq!(
        found,
        BTreeMap::from([
            ("ours", 2),
            ("one of ours", 1),
            ("one of ours, to them", 0),
            ("nobody's, to us", 0),
            ("nobody's, to a root key", 1),
            ("all, to a root key", 3),
        ])
    );
}

#[tokio::test]
async fn a_page_looks_at_so_many_entries_whosever_they_are() {
    let world = World::new().await;
    let (ours, definition) = world.tenant("PRO").await;
    let (theirs, other) = world.tenant("PRO").await;
    for _ in 0..7 {
        world.accept_many(theirs, other, 2).await;
    }
    let id = world.accept_many(ours, definition, 1).await[0];
    let (mut after, mut pages, mut told) = (Place::before(0), 0, Vec::new());
    loop {
        let missed = Missed {
            after,
            below: i64::MAX.unsigned_abs(),
            workspace: Some(ours),
            topics: &[Topic::Execution],
            id: None,
        };
        let page = world.store.missed(&missed, 3).await.expect("a page");
        told.extend(page.changes.iter().map(|change| change.id));
        pages += 1;
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!((told, pages > 2), (vec![id.0], true), "{pages} pages");
}

#[tokio::test]
async fn a_log_that_was_restored_from_another_cluster_is_begun_anew() {
    let world = World::new().await;
    world.run_sql(INSERT, &[&new_id()]).await;
    world
        .client
        .batch_execute("UPDATE change_log SET xid = '999999999999'; UPDATE change_log_kept SET gone = '999999999999'")
        .await
        .expect("a restore");
    let extent = world.store.open_log().await.expect("a log");
    assert!(extent.gone.is_some_and(|gone| gone < extent.horizon), "{extent:?}");
    assert_eq!(all(&world.store).await, []);
    world.run_sql(INSERT, &[&new_id()]).await;
    assert_eq!(all(&world.store).await.len(), 1);
    assert_eq!(world.store.open_log().await.expect("a log").gone, extent.gone, "and stays as it is then");
}

#[tokio::test]
async fn a_table_of_a_session_is_not_taken_for_the_log() {
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
