//! A migration while the service is in use waits for its locks, and no other statement waits for the migration.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use store::migrate::migrate;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::support::{World, eventually};

/// A session that reads one of our tables in a transaction, as `pg_dump` does.
async fn dump(world: &World) -> Client {
    let client = world.database.client().await;
    let open = "SET application_name = 'a dump'; BEGIN ISOLATION LEVEL REPEATABLE READ;
        SELECT count(*) FROM workflow_execution";
    client.batch_execute(open).await.expect("a snapshot");
    client
}

/// Upgrades to the synthetic next release (`tests/next`).
fn upgrade(world: &World) -> JoinHandle<Vec<String>> {
    store::release::play(2);
    let target = world.database.target.clone();
    tokio::spawn(async move { migrate(&target).await.expect("a migration").applied })
}

const COLUMN: &str = "pg_attribute WHERE attrelid = 'workflow_execution'::regclass AND attname = 'next_release'";
const INDEX: &str = "pg_index WHERE indexrelid = to_regclass('workflow_execution_next_release')";

const WAITS: &str =
    "pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
/// For how long further attempts are looked for: somebody who tried again and again would make three.
const LOOKED_FOR: Duration = Duration::from_millis(2_500);

/// Waits until the session that migrates was seen waiting for a lock, and no longer does.
async fn first_attempt(world: &World) {
    eventually("an attempt is made", async || world.count(WAITS).await > 0).await;
    eventually("it is given up", async || world.count(WAITS).await == 0).await;
}

/// When the attempts that are made meanwhile began.
async fn further_attempts(world: &World) -> BTreeSet<String> {
    let (began, mut seen) = (Instant::now(), BTreeSet::new());
    while began.elapsed() < LOOKED_FOR {
        let waits = format!("SELECT waitstart::text FROM {WAITS} AND waitstart IS NOT NULL");
        seen.extend(world.client.query(&waits, &[]).await.expect("locks").iter().map(|row| row.get::<_, String>(0)));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    seen
}

#[tokio::test]
async fn while_a_dump_is_open_a_migration_waits_and_nobody_waits_for_it() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let dump = dump(&world).await;
    let upgraded = upgrade(&world);
    first_attempt(&world).await;
    // One more only where the machine was too busy to see which transaction blocked the first.
    let further = further_attempts(&world).await;
    assert!(further.len() <= 1, "while the same transaction blocks it there is no second attempt: {further:?}");
    assert!(!upgraded.is_finished());
    assert_eq!(world.count(COLUMN).await, 0);
    dump.batch_execute("COMMIT").await.expect("the dump ends");
    assert_eq!(upgraded.await.expect("no panic"), ["V2__a_column", "V3__an_index"]);
    assert_eq!(world.count(COLUMN).await, 1);
    assert_eq!(world.count(&format!("{INDEX} AND indisvalid")).await, 1);
    world.accept_many(workspace, definition, 1).await;
}

#[tokio::test]
async fn an_index_build_does_not_start_while_an_old_snapshot_is_open() {
    let world = World::new().await;
    let other = world.database.client().await;
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM workspace").await.expect("one");
    let old = "pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL
        AND xact_start < clock_timestamp() - interval '1 second'";
    eventually("its snapshot is old", async || world.count(old).await > 0).await;
    let upgraded = upgrade(&world);
    eventually("the column is there", async || world.count(COLUMN).await == 1).await;
    // It asks whether one of those in its way is still open.
    let gives_way = "pg_stat_activity WHERE datname = current_database() AND query LIKE '%virtualxid = ANY%'
        AND pid <> pg_backend_pid()";
    eventually("it gives way", async || world.count(gives_way).await > 0).await;
    assert_eq!(world.count(INDEX).await, 0, "its build is not begun");
    other.batch_execute("COMMIT").await.expect("it ends");
    upgraded.await.expect("no panic");
    assert_eq!(world.count(&format!("{INDEX} AND indisvalid")).await, 1);
}

#[tokio::test]
async fn an_index_that_was_left_invalid_is_built_again() {
    let world = World::new().await;
    let dump = dump(&world).await;
    let cut = "SET lock_timeout = '50ms'";
    world.client.batch_execute(cut).await.expect("a setting");
    let build = "CREATE INDEX CONCURRENTLY workflow_execution_next_release ON workflow_execution (id)";
    world.client.batch_execute(build).await.expect_err("it waits for the snapshot");
    assert_eq!(world.count(&format!("{INDEX} AND NOT indisvalid")).await, 1);
    dump.batch_execute("COMMIT").await.expect("the dump ends");
    upgrade(&world).await.expect("no panic");
    assert_eq!(world.count(&format!("{INDEX} AND indisvalid AND indnatts = 2")).await, 1);
}
