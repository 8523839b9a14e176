//! Processes without room for more runs still serve their shards. They resume the runs of dead processes before they
//! start new ones.

use serde_json::json;

use crate::support::server::MORTAL;
use crate::support::tenant::text;
use crate::support::{Tenant, World, until};

/// Room for nine new runs; one place is kept for runs that hold a slot already.
const FULL_AT_NINE: [&str; 2] = ["engine.max_runs=10", "metrics.sample_interval_ms=100"];

/// Enough executions of calls that nobody answers to fill two processes, and more that wait.
async fn flood(world: &World) -> (Vec<Tenant>, Vec<(Tenant, String)>) {
    let mut tenants = Vec::new();
    let mut all = Vec::new();
    for _ in 0..2 {
        let tenant = world.tenant("ENTERPRISE").await;
        let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
        for id in tenant.start_many(&held, 30).await {
            all.push((tenant.clone(), id));
        }
        tenants.push(tenant);
    }
    (tenants, all)
}

/// How many runs each living or dead process owns, the most first.
async fn owned(world: &World) -> Vec<i64> {
    let sql = "SELECT count(*) FROM workflow_execution WHERE status = 'RUNNING' GROUP BY owner ORDER BY 1 DESC";
    world.database.client().await.query(sql, &[]).await.expect("counts").iter().map(|row| row.get(0)).collect()
}

async fn cancel(tenant: &Tenant, id: &str) {
    tenant.api.post(&format!("workflow/executions/{id}/cancel"), json!({})).await.expect(202);
    assert_eq!(text(&tenant.ended(id).await["status"]), "CANCELED");
}

/// Enqueues an execution without a notification to any process.
async fn enqueue_in_sql(world: &World, tenant: &Tenant, definition: &str) -> String {
    let sql = "SELECT forebay.enqueue($1::text::uuid, $2::text::uuid)::text";
    let client = world.database.client().await;
    client.query_one(sql, &[&tenant.id, &definition]).await.expect("accepted").get(0)
}

#[tokio::test]
async fn a_full_process_takes_over_the_runs_of_a_dead_one_before_it_starts_anything_new() {
    let settings = [FULL_AT_NINE, MORTAL].concat();
    let world = World::with(&settings).await;
    let mut other = world.another(&settings).await;
    let (_tenants, all) = flood(&world).await;
    until("both are full", async || (owned(&world).await == [9, 9]).then_some(())).await;
    let started = world.count("workflow_execution WHERE started_at IS NOT NULL").await;
    until("every shard has an owner and every slot is reported", async || {
        let owners = world.count("shard_owner WHERE until > now()").await;
        let slots =
            world.server.metric("forebay_queue_slots_in_use").await + other.metric("forebay_queue_slots_in_use").await;
        (owners == 64 && slots.to_bits() == 18f64.to_bits()).then_some(())
    })
    .await;
    other.process.sigkill();
    until("the reserve is used", async || (owned(&world).await == [10, 8]).then_some(())).await;
    // Each run that ends makes room for one of the dead's, never for a new one.
    for left in (0..8).rev() {
        let (tenant, id) = mine(&world, &all).await;
        cancel(&tenant, &id).await;
        let expected = if left == 0 { vec![10] } else { vec![10, left] };
        until("another is taken over", async || (owned(&world).await == expected).then_some(())).await;
    }
    assert_eq!(world.count("workflow_execution WHERE started_at IS NOT NULL").await, started, "nothing new began");
    for _ in 0..2 {
        let (tenant, id) = mine(&world, &all).await;
        cancel(&tenant, &id).await;
    }
    until("then new ones start", async || (owned(&world).await == [9]).then_some(())).await;
    until("then new ones start", async || {
        (world.count("workflow_execution WHERE started_at IS NOT NULL").await > started).then_some(())
    })
    .await;
}

/// A run of the process that lives.
async fn mine(world: &World, all: &[(Tenant, String)]) -> (Tenant, String) {
    let sql = "SELECT e.id::text FROM workflow_execution e JOIN process p ON p.id = e.owner \
               WHERE e.status = 'RUNNING' AND p.ended_at IS NULL ORDER BY e.id LIMIT 1";
    let id: String = world.database.client().await.query_one(sql, &[]).await.expect("a run").get(0);
    all.iter().find(|(_, of)| *of == id).expect("one of ours").clone()
}

#[tokio::test]
async fn a_full_process_finds_what_was_enqueued_in_sql_and_starts_it_in_its_turn() {
    let world = World::with(&FULL_AT_NINE).await;
    let (_tenants, all) = flood(&world).await;
    until("it is full", async || (owned(&world).await == [9]).then_some(())).await;
    until("it knows that it is", async || {
        (world.count("process WHERE ended_at IS NULL AND dispatching AND NOT has_room").await == 1).then_some(())
    })
    .await;
    let quiet = world.tenant("PRO").await;
    let id = enqueue_in_sql(&world, &quiet, &quiet.light().await).await;
    let mut canceled = 0;
    until("it starts", async || {
        // Every place that frees would go to the flood, if nobody looked for the quiet one.
        let (tenant, run) = mine(&world, &all).await;
        cancel(&tenant, &run).await;
        canceled += 1;
        until("a run takes its place", async || (owned(&world).await == [9]).then_some(())).await;
        (quiet.status(&id).await != "PENDING" || canceled == 30).then_some(())
    })
    .await;
    quiet.completed(&id).await;
}

#[tokio::test]
async fn without_hints_a_process_with_room_claims_for_one_that_is_full() {
    let full = ["engine.max_runs=2", "dispatch.notifications=false"];
    let world = World::with(&full).await;
    let tenant = world.tenant("PRO").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    tenant.start_many(&held, 2).await;
    until("it is full", async || (owned(&world).await == [2]).then_some(())).await;
    let _with_room = world.another(&["dispatch.notifications=false"]).await;
    until("both look after a half", async || {
        let by_two = "(SELECT owner FROM shard_owner WHERE until > now() GROUP BY owner HAVING count(*) = 32) o";
        (world.count(by_two).await == 2).then_some(())
    })
    .await;
    for _ in 0..6 {
        let quiet = world.tenant("PRO").await;
        let id = enqueue_in_sql(&world, &quiet, &quiet.light().await).await;
        quiet.completed(&id).await;
    }
    assert_eq!(world.receiver.calls("/hold/a").len(), 2, "the full one holds what it held");
}
