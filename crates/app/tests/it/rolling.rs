//! Processes shut down one after the other, under load: other processes continue their work immediately.
//!
//! Not here: processes that are killed (`durability`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Engine, Server, Tenant, World, until};

/// Leases and a poll that are longer than anything here takes, so that what waits for one of them is found. Whoever
/// stops has time for its calls in flight.
const USUAL: [&str; 6] = [
    "process.heartbeat_ms=1000",
    "process.shard_lease_ms=100000",
    "process.claim_lease_ms=200000",
    "process.run_lease_ms=300000",
    "process.drain_timeout_ms=30000",
    "dispatch.poll_interval_ms=100000",
];
/// Whatever takes longer has waited for a lease or a poll; the rest is the machine's.
const DELAY: Duration = Duration::from_secs(50);
/// How many starts come before a process is asked to shut down.
const BETWEEN: usize = 8;

/// Where starts may be sent.
type Bases = Arc<Mutex<Vec<String>>>;
/// The executions that were accepted.
type Accepted = Arc<Mutex<Vec<String>>>;

/// Starts executions at an even pace, wherever a server takes them, until `stop` is cancelled.
async fn load(tenant: Tenant, definition: String, bases: Bases, accepted: Accepted, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let key = store::new_id().to_string();
        let id = until("somebody takes the start", async || {
            let base = {
                let mut bases = bases.lock();
                bases.rotate_left(1);
                bases[0].clone()
            };
            let body = json!({ "workflowDefinitionId": definition });
            let request = tenant.at(&base).api.request(Method::POST, "workflow/executions/start");
            let reply = request.header("Idempotency-Key", &key).json(&body).send().await.ok()?;
            let answer: Value = reply.error_for_status().ok()?.json().await.ok()?;
            answer["executionId"].as_str().map(str::to_owned)
        })
        .await;
        accepted.lock().push(id);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

/// Stops and replaces each of three servers in turn while starts keep coming; answers what was accepted.
async fn roll(world: World, settings: &[&str], tenant: &Tenant, definition: &str) -> (World, Vec<Server>, Vec<String>) {
    let (mut world, mut others) = (world, Vec::new());
    for _ in 0..2 {
        others.push(world.another(settings).await);
    }
    let listed = |world: &World, others: &[Server]| -> Vec<String> {
        others.iter().map(|server| server.base.clone()).chain([world.server.base.clone()]).collect()
    };
    let bases = Arc::new(Mutex::new(listed(&world, &others)));
    let (stop, accepted) = (CancellationToken::new(), Accepted::default());
    let some_more = async || {
        let before = accepted.lock().len();
        until("starts come", async || (accepted.lock().len() >= before + BETWEEN).then_some(())).await;
    };
    let restarts = async {
        for place in 0..3 {
            some_more().await;
            let old = if place == 0 { &mut world.server } else { &mut others[place - 1] };
            old.process.signal(Signal::SIGTERM);
            assert!(old.process.ended().await.success());
            let next = world.another(settings).await;
            if place == 0 {
                world.server = next;
            } else {
                others[place - 1] = next;
            }
            *bases.lock() = listed(&world, &others);
        }
        some_more().await;
        stop.cancel();
    };
    let starts = load(tenant.clone(), definition.to_owned(), Arc::clone(&bases), Arc::clone(&accepted), stop.clone());
    tokio::join!(starts, restarts);
    let accepted = accepted.lock().clone();
    (world, others, accepted)
}

/// How long the slowest took from its start to its end.
async fn slowest(world: &World) -> Duration {
    let sql = "SELECT extract(epoch FROM max(completed_at - created_at))::float8 FROM workflow_execution";
    let seconds: f64 = world.database.client().await.query_one(sql, &[]).await.expect("a time").get(0);
    Duration::from_secs_f64(seconds)
}

#[tokio::test]
async fn a_rolling_restart_of_three_processes_loses_nothing_doubles_nothing_and_delays_nothing() {
    let world = World::with(&USUAL).await;
    let tenant = world.tenant("ENTERPRISE").await;
    let nodes = json!({
        "a": world.receiver.node("/slow/a"),
        "b": world.receiver.after("a", "/slow/b"),
    });
    let definition = tenant.apply("calls", nodes).await;
    let (world, _others, accepted) = roll(world, &USUAL, &tenant, &definition).await;
    let tenant = tenant.at(&world.server.base);
    for id in &accepted {
        tenant.completed(id).await;
    }
    assert_eq!(world.count("workflow_execution").await, i64::try_from(accepted.len()).expect("a count"));
    for path in ["/slow/a", "/slow/b"] {
        assert_eq!(world.receiver.calls(path).len(), accepted.len(), "{path} was called once by each");
    }
    let slowest = slowest(&world).await;
    assert!(slowest < DELAY, "the slowest took {slowest:?}");
    assert_eq!((world.count("execution_queue").await, tenant.running().await), (0, 0));
}

#[tokio::test]
async fn a_rolling_restart_over_a_remote_engine_gives_back_what_was_never_sent() {
    let engine = Engine::new();
    let setting = engine.setting();
    let settings = [&USUAL[..], &[setting.as_str(), "dispatch.parallel_starts=1"]].concat();
    let world = World::with(&settings).await;
    let tenant = world.tenant("ENTERPRISE").await;
    let definition = tenant.light().await;
    let (world, _others, accepted) = roll(world, &settings, &tenant, &definition).await;
    let tenant = tenant.at(&world.server.base);
    for id in &accepted {
        tenant.completed(id).await;
        engine.ran_once(id).await;
    }
    let slowest = slowest(&world).await;
    assert!(slowest < DELAY, "the slowest took {slowest:?}");
    assert_eq!(world.count("execution_queue").await, 0);
}

#[tokio::test]
async fn at_shutdown_it_requeues_what_was_never_sent_and_leaves_claimed_what_was() {
    let engine = Engine::new();
    engine.mode("unavailable");
    let setting = engine.setting();
    let settings = [&USUAL[..], &[setting.as_str(), "dispatch.parallel_starts=1"]].concat();
    let mut world = World::with(&settings).await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.light().await;
    let (root, path) = (world.server.api(), format!("workspaces/{}", tenant.id));
    root.post(&format!("{path}/pause"), Value::Null).await.expect(200);
    let all = tenant.start_many(&definition, 5).await;
    root.post(&format!("{path}/resume"), Value::Null).await.expect(200);
    until("all are claimed at once", async || {
        (world.count("execution_queue WHERE status = 'CLAIMED'").await == 5).then_some(())
    })
    .await;
    until("one was sent", async || (!engine.log().is_empty()).then_some(())).await;
    world.server.process.signal(Signal::SIGTERM);
    assert!(world.server.process.ended().await.success());
    assert_eq!(world.count("execution_queue WHERE status = 'CLAIMED'").await, 1, "the one that was sent");
    assert_eq!(world.count("execution_queue WHERE status = 'PENDING' AND stage = 0 AND attempt_count = 0").await, 4);
    engine.mode("available");
    let next = world.another(&settings).await;
    let tenant = tenant.at(&next.base);
    for id in &all {
        tenant.completed(id).await;
        engine.ran_once(id).await;
    }
}
