//! Two releases run side by side. The newer release waits for a dump and for the older release, and nothing is lost.
//!
//! Not here: an upgrade of a million executions under load (`./dev/chaos upgrade`).

use std::collections::BTreeSet;

use nix::sys::signal::Signal;
use store::access::key::Secret;
use store::testing::Database;

use crate::support::{Server, Tenant, until};

/// As a process of the synthetic next release (`store::release`).
fn next() -> [(&'static str, String); 1] {
    [("FOREBAY_TEST_RELEASE", "2".to_owned())]
}

/// The shards that a process of the next release looks after.
const NEWER_SHARDS: &str =
    "SELECT count(*) FROM shard_owner o JOIN process p ON p.id = o.owner AND p.release = 2 WHERE o.until > now()";

/// What a process says of its claims.
async fn claims(server: &Server) -> String {
    let ready = server.anonymous().get("/readyz").await;
    assert_eq!(ready.status, 200, "it answers: {:?}", ready.body);
    ready.body["checks"]["claims"].as_str().unwrap_or("ok").to_owned()
}

#[tokio::test]
async fn a_newer_release_waits_for_the_older_one_takes_over_and_refuses_it_from_then_on() {
    upgraded(&[]).await;
}

#[tokio::test]
async fn where_one_process_dispatches_a_newer_release_leaves_that_to_the_older_one_while_it_lives() {
    upgraded(&["dispatch.exclusive=true".to_owned()]).await;
}

/// Two processes of each release, a dump that is open when the newer ones start, and a start after each step.
async fn upgraded(settings: &[String]) {
    let database = Database::new().await;
    let key = Secret::generate().expect("randomness");
    let mut first = Server::start_with(&database.url, &key, settings).await;
    let mut second = Server::start_with(&database.url, &key, settings).await;
    let tenant = Tenant::new(second.api(), "PRO").await;
    let definition = tenant.light().await;
    let dump = database.client().await;
    let open = "SET application_name = 'a dump'; BEGIN ISOLATION LEVEL REPEATABLE READ;
        SELECT count(*) FROM workflow_execution";
    dump.batch_execute(open).await.expect("a snapshot");
    let mut new = Server::spawn_in(&database.url, &key, settings, &next());
    let observed = until("it says whom it waits for", async || {
        let says = ["Migration is waiting for other sessions", "V2__a_column", "a dump"];
        new.process.stderr.all().into_iter().find(|line| says.iter().all(|part| line.contains(part)))
    });
    observed.await;
    tenant.completed(&tenant.start(&definition).await).await;
    dump.batch_execute("COMMIT").await.expect("the dump ends");
    new.ready().await;
    let observed =
        until("it waits for the older ones", async || Some(claims(&new).await).filter(|observed| observed != "ok"))
            .await;
    assert!(observed.contains("uses claim protocol 2") && observed.contains("release 1"), "{observed}");
    if !settings.is_empty() {
        never_takes_the_lease(&database).await;
    }
    let at_new = tenant.at(&new.base);
    for old in [&mut first, &mut second] {
        // What the newer one accepts, an older one runs.
        at_new.completed(&at_new.start(&definition).await).await;
        let shards: i64 = dump.query_one(NEWER_SHARDS, &[]).await.expect("an answer").get(0);
        assert_eq!(shards, 0, "whoever looks after a shard must be able to claim");
        old.process.signal(Signal::SIGTERM);
        assert!(old.process.ended().await.success());
    }
    at_new.completed(&at_new.start(&definition).await).await;
    assert_eq!(claims(&new).await, "ok");
    let mut late = Server::spawn(&database.url, &key, settings);
    assert!(!late.process.ended().await.success());
    let observed = late.process.stderr.all().join("\n");
    assert!(observed.contains("the database uses claim protocol 2, set by a newer release"), "{observed}");
    at_new.completed(&at_new.start(&definition).await).await;
}

/// Ends the lease of whoever dispatches, twice. The other older process takes it, and then each of the two believes
/// that it holds it and asks no more: only the newer one could take it, and it does not.
async fn never_takes_the_lease(database: &Database) {
    let client = database.client().await;
    let end = "UPDATE shedlock SET lock_until = locked_at WHERE name = 'processExecutionQueue'";
    let held = "SELECT (SELECT release FROM process p WHERE l.locked_by LIKE '%/' || p.id) FROM shedlock l
        WHERE name = 'processExecutionQueue' AND lock_until > locked_at";
    let holder = async || {
        let row = client.query_opt(held, &[]).await.expect("an answer");
        row.map(|row| row.get::<_, Option<i32>>(0))
    };
    client.batch_execute(end).await.expect("a lease");
    assert_eq!(until("somebody dispatches", holder).await, Some(1), "who holds the lease must be able to claim");
    client.batch_execute(end).await.expect("a lease");
    // The newer process looks for the lease at each poll, and goes on to send heartbeats.
    let mut heartbeats = BTreeSet::new();
    until("ten heartbeats of the newer process", async || {
        let row = client.query_one("SELECT heartbeat_at::text FROM process WHERE release = 2", &[]).await;
        heartbeats.insert(row.expect("a heartbeat").get::<_, String>(0));
        (heartbeats.len() > 10).then_some(())
    })
    .await;
    assert_eq!(holder().await, None, "many polls of the newer process");
}
