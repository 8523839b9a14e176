//! A migration beside a service in use: it waits for a lock, and nobody waits for it.

use std::time::{Duration, Instant};

use store::migrate::migrate;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::support::{World, eventually};

/// A session that reads a table of ours in a transaction, as `pg_dump` does.
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

/// Waits until the session that migrates was seen waiting for a lock, and no longer does.
async fn first_attempt(world: &World) {
    let waits =
        "pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("an attempt is made", async || world.count(waits).await > 0).await;
    let began = Instant::now();
    eventually("it is given up", async || world.count(waits).await == 0).await;
    assert!(began.elapsed() < Duration::from_millis(500), "whoever came after it waited {:?}", began.elapsed());
}

#[tokio::test]
async fn while_a_dump_is_open_a_migration_waits_and_nobody_waits_for_it() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let dump = dump(&world).await;
    let upgraded = upgrade(&world);
    first_attempt(&world).await;
    let began = Instant::now();
    let mut slow = 0;
    while began.elapsed() < Duration::from_millis(1_500) {
        let sent = Instant::now();
        world.client.query_one("SELECT count(*) FROM workflow_execution", &[]).await.expect("an answer");
        slow += u32::from(sent.elapsed() > Duration::from_millis(90));
    }
    assert_eq!(slow, 0, "while the same transaction is in the way there is no second attempt");
    assert!(!upgraded.is_finished());
    assert_eq!(world.count(COLUMN).await, 0);
    dump.batch_execute("COMMIT").await.expect("the dump ends");
    assert_eq!(upgraded.await.expect("no panic"), ["V2__a_column", "V3__an_index"]);
    assert_eq!(world.count(COLUMN).await, 1);
    assert_eq!(world.count(&format!("{INDEX} AND indisvalid")).await, 1);
    world.accept_many(workspace, definition, 1).await;
}

#[tokio::test]
async fn an_index_is_not_built_in_vain_while_an_old_snapshot_is_open() {
    let world = World::new().await;
    let other = world.database.client().await;
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM workspace").await.expect("one");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let upgraded = upgrade(&world);
    eventually("the column is there", async || world.count(COLUMN).await == 1).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
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
