//! In exclusive mode, one dispatcher works at a time. It holds a lease in a table that other programs use too.
//!
//! Not here: the lease itself (the tests of `store`).

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::server::MORTAL;
use crate::support::{Server, World, until};

const EXCLUSIVE: &str = "dispatch.exclusive=true";

fn holds(server: &Server, lease: &str) -> bool {
    let lines = server.process.stderr.all();
    lines.iter().any(|line| line.contains("Lease acquired by this process") && line.contains(lease))
}

/// Waits until every live process has sent a heartbeat this many seconds from now.
async fn heartbeats(world: &World, seconds: i64) {
    let client = world.database.client().await;
    let from: String = client.query_one("SELECT clock_timestamp()::text", &[]).await.expect("a time").get(0);
    let silent =
        format!("process WHERE ended_at IS NULL AND heartbeat_at < '{from}'::timestamptz + interval '{seconds} s'");
    until("every process has sent a heartbeat", async || (world.count(&silent).await == 0).then_some(())).await;
}

#[tokio::test]
async fn while_another_program_holds_the_lease_nothing_is_dispatched_and_it_is_reported() {
    let world = World::with(&[EXCLUSIVE, "workflow.engine.enabled=false"]).await;
    let theirs = "INSERT INTO shedlock VALUES ('processExecutionQueue', timezone('utc', now()) + interval '1 hour', \
                  timezone('utc', now()), 'java')";
    world.run_sql(theirs).await;
    let server = world.another(&[EXCLUSIVE]).await;
    let tenant = world.tenant("PRO").await;
    let id = tenant.start(&tenant.light().await).await;
    until("the failure is reported", async || {
        let metrics = server.anonymous().get("/metrics").await.text;
        let failures = metrics.lines().find_map(|line| line.strip_prefix("shedlock_acquisition_failures "));
        failures.filter(|count| *count != "0").map(drop)
    })
    .await;
    until("recovery is another lease", async || holds(&server, "recoverStaleQueueItems").then_some(())).await;
    assert_eq!(tenant.queue(&id).await["status"], "PENDING");
    assert!(!holds(&server, "processExecutionQueue"));
    // As the library unlocks.
    world.run_sql("UPDATE shedlock SET lock_until = timezone('utc', now()) WHERE name = 'processExecutionQueue'").await;
    tenant.completed(&id).await;
    assert!(holds(&server, "processExecutionQueue"));
}

#[tokio::test]
async fn one_of_two_dispatches_for_both_and_the_other_goes_on_when_it_stops() {
    let mut world = World::with(&[EXCLUSIVE]).await;
    until("the first holds it", async || holds(&world.server, "processExecutionQueue").then_some(())).await;
    let other = world.another(&[EXCLUSIVE]).await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.light().await;
    let mut all = tenant.start_many(&definition, 5).await;
    all.extend(tenant.at(&other.base).start_many(&definition, 5).await);
    for id in &all {
        tenant.completed(id).await;
    }
    assert!(!holds(&other, "processExecutionQueue"), "it is taken, so the other skips");
    world.server.process.signal(Signal::SIGTERM);
    assert!(world.server.process.ended().await.success());
    let tenant = tenant.at(&other.base);
    let id = tenant.start(&definition).await;
    // It stays taken for the least time, however soon it was given back.
    tenant.completed(&id).await;
    assert!(holds(&other, "processExecutionQueue"));
}

#[tokio::test]
async fn the_standby_takes_over_from_a_dispatcher_that_was_killed_and_says_so_meanwhile() {
    let mut world = World::with(&[EXCLUSIVE, MORTAL[0], MORTAL[1]]).await;
    until("the first holds it", async || holds(&world.server, "processExecutionQueue").then_some(())).await;
    // The standby calls a process dead after three seconds, the one that is asked after one.
    let patient = ["process.claim_lease_ms=3000", "process.run_lease_ms=4000"];
    let other = world.another(&[EXCLUSIVE, patient[0], patient[1]]).await;
    let settings = world.receiver.allowed(&[EXCLUSIVE, MORTAL[0], MORTAL[1]]);
    let mut asked = Server::spawn_as("api", &world.database.url, world.server.root_key(), &settings);
    asked.ready().await;
    let tenant = world.tenant("PRO").await.at(&asked.base);
    let definition = tenant.light().await;
    let check = async || asked.anonymous().get("/readyz").await.body["checks"]["dispatch"].clone();
    until("somebody dispatches", async || (check().await == json!("ok")).then_some(())).await;
    world.server.process.sigkill();
    let id = tenant.start(&definition).await;
    let (mut observed, mut reason) = (json!(null), json!(null));
    until("the standby takes over", async || {
        let (now, item) = (check().await, tenant.queue(&id).await);
        if now != json!("ok") {
            observed = now;
        }
        if item["waiting"]["reason"] == json!("no_dispatcher") {
            reason = item["waiting"]["message"].clone();
        }
        holds(&other, "processExecutionQueue").then_some(())
    })
    .await;
    tenant.completed(&id).await;
    for observed in [observed, reason] {
        assert!(observed.as_str().unwrap_or_default().contains("and died"), "{observed}");
    }
    until("somebody dispatches again", async || (check().await == json!("ok")).then_some(())).await;
}

#[tokio::test]
async fn an_idle_pair_counts_its_passes_so_that_a_standby_is_no_alarm() {
    let world = World::with(&[EXCLUSIVE]).await;
    until("the first holds it", async || holds(&world.server, "processExecutionQueue").then_some(())).await;
    let other = world.another(&[EXCLUSIVE]).await;
    let metric = async |server: &Server, name: &str| {
        let text = server.anonymous().get("/metrics").await.text;
        let line = text.lines().find(|line| line.starts_with(name) && !line.contains('{')).map(str::to_owned);
        assert!(!text.contains(&format!("{name}{{")), "it has no labels: {text}");
        line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    until("the standby reports that the lease is taken", async || {
        (metric(&other, "shedlock_acquisition_failures").await > 0).then_some(())
    })
    .await;
    let before = metric(&world.server, "forebay_queue_processing_passes_total").await;
    until("the holder goes on looking", async || {
        (metric(&world.server, "forebay_queue_processing_passes_total").await > before + 10).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_end_of_another_process_is_no_failure_of_a_standby_to_get_the_lease() {
    let slow = [EXCLUSIVE, "dispatch.poll_interval_ms=600000"];
    let world = World::with(&slow).await;
    until("the first holds it", async || holds(&world.server, "processExecutionQueue").then_some(())).await;
    let standby = world.another(&slow).await;
    let mut third = world.another(&slow).await;
    let failures = async || {
        let text = standby.anonymous().get("/metrics").await.text;
        let count =
            text.lines().find_map(|line| line.strip_prefix("shedlock_acquisition_failures ")?.parse::<u64>().ok());
        count.unwrap_or(0)
    };
    until("it asked for a lease", async || (failures().await > 0).then_some(())).await;
    heartbeats(&world, 1).await;
    let before = failures().await;
    third.process.signal(Signal::SIGTERM);
    assert!(third.process.ended().await.success());
    // Many heartbeats, at each of which it knows that a process ended.
    heartbeats(&world, 3).await;
    let more = failures().await - before;
    assert!(more < 5, "{more} more failures");
}
