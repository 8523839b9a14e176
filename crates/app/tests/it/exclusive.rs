//! One dispatcher at a time, through the table that other programs share.
//!
//! Not here: the lease itself (`store`'s tests).

use nix::sys::signal::Signal;

use crate::support::{Server, World, until};

const EXCLUSIVE: &str = "dispatch.exclusive=true";

fn holds(server: &Server, lease: &str) -> bool {
    let lines = server.process.stderr.all();
    lines.iter().any(|line| line.contains("This process holds the lease") && line.contains(lease))
}

#[tokio::test]
async fn while_another_program_holds_the_lease_nothing_is_dispatched_and_it_is_told() {
    let world = World::with(&[EXCLUSIVE, "workflow.engine.enabled=false"]).await;
    let theirs = "INSERT INTO shedlock VALUES ('processExecutionQueue', timezone('utc', now()) + interval '1 hour', \
                  timezone('utc', now()), 'java')";
    world.run_sql(theirs).await;
    let server = world.another(&[EXCLUSIVE]).await;
    let tenant = world.tenant("PRO").await;
    let id = tenant.start(&tenant.light().await).await;
    until("it is told", async || {
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
