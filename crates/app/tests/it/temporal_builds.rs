//! One build begins a run, and a worker of an incompatible build receives it. The problem is reported everywhere, and
//! the build that began the run finishes it.
//!
//! Not here: histories of earlier builds (the tests of `temporal` replay them), workers that lack a key
//! (`temporal_lost`).

use std::sync::Arc;
use std::time::Duration;

use ::temporal::testing::{Mutant, mutate};
use ::temporal::{PayloadKeys, TemporalSettings, Tls, Worker, WorkerSetup};
use engine::liveness::Liveness;
use engine::nodes::call::CallResources;
use engine::outbound::{self, Outbound};
use engine::vault::Vault;
use serde_json::json;

use crate::support::cli::Cli;
use crate::support::temporal::{Cluster, until_check};
use crate::support::tenant::text;
use crate::support::until;

/// A worker of a build that begins nodes in another order, as a part of this process.
async fn worker_of_another_build(cluster: &Cluster) -> Worker {
    mutate(Mutant::Backwards);
    let settings = TemporalSettings {
        address: cluster.setting("engine.temporal.address").to_owned(),
        namespace: "default".to_owned(),
        task_queue: cluster.queue().to_owned(),
        api_key: None,
        tls: Tls::default(),
        keys: PayloadKeys::default(),
        local_below: Duration::ZERO,
        max_calls: 10,
        max_generations: 32,
        heartbeat: Duration::from_secs(1),
        drain: Duration::from_secs(1),
    };
    let allow = vec![cluster.setting("outbound.allow").parse().expect("an address")];
    let outbound = Outbound::new(outbound::OutboundSettings { allow, ..Default::default() }).expect("a guard");
    let liveness = Arc::new(Liveness::new(Duration::from_secs(3600)));
    let store = cluster.database.store.clone();
    let vault = Vault::new(store.clone(), engine::vault::OuterKeys::default());
    let resources = CallResources { store, outbound, vault, liveness };
    let setup = WorkerSetup { resources, on_run_exit: Arc::new(|_, _| {}), on_ready: Arc::new(|_| {}) };
    let worker = Worker::start(settings, setup).expect("a worker");
    let polls = worker.polls();
    until("it polls", async || polls.load(std::sync::atomic::Ordering::Relaxed).then_some(())).await;
    worker
}

#[tokio::test]
async fn a_build_that_diverges_is_reported_with_the_cause_and_the_right_build_finishes_its_runs() {
    let cluster = Cluster::new(&[]).await;
    let api = cluster.api_only().await;
    let mut began = cluster.worker().await;
    let nodes = json!({
        "left": cluster.receiver.node("/ok/left"),
        "right": cluster.receiver.node("/ok/right"),
        "held": { "kind": "HTTP_REQUEST", "needs": ["left", "right"], "with": { "url": cluster.receiver.url("/hold/a") } },
        "say": { "kind": "LOG", "needs": "held", "with": { "message": "done" } },
    });
    let id = cluster.tenant.start(&cluster.tenant.apply("graph", nodes).await).await;
    cluster.receiver.until_called("/hold/a", 1).await;
    began.sigkill();
    let other = worker_of_another_build(&cluster).await;
    // It may perform a node: that is no matter of order. What it makes of the history is.
    cluster.receiver.until_called("/hold/a", 2).await;
    cluster.receiver.open();
    for tenant in [&cluster.tenant, &cluster.tenant.at(&api.base)] {
        let item = until("it is explained", async || {
            Some(tenant.queue(&id).await).filter(|item| item["waiting"]["reason"] == "stuck")
        })
        .await;
        let message = text(&item["waiting"]["message"]);
        assert!(message.contains("workflow task failed") && message.contains("NonDeterministicError"), "{message}");
    }
    let shown = Cli::of(&api.base, api.root_key().expose()).ok(&["queue", &id]).await;
    assert!(shown.contains("NonDeterministicError"), "{shown}");
    cluster.until_check("reconciler", |said| said.contains("1 runs make no progress")).await;
    until_check(&api, "engine", |said| said.contains("make no progress")).await;
    let metrics = cluster.server.anonymous().get("/metrics").await.text;
    assert!(metrics.contains("forebay_engine_runs_stuck{reason=\"worker_failing\"} 1"), "{metrics}");
    assert_eq!((cluster.tenant.status(&id).await.as_str(), cluster.tenant.running().await), ("RUNNING", 1));

    other.stop().await;
    let _returns = cluster.worker().await;
    cluster.tenant.completed(&id).await;
    cluster.until_check("reconciler", |said| said == "ok").await;
    until("its slot is free", async || (cluster.tenant.running().await == 0).then_some(())).await;
    let calls = ["/ok/left", "/ok/right", "/hold/a"].map(|path| cluster.receiver.calls(path).len());
    assert_eq!(calls, [1, 1, 2], "nothing but what the kill interrupted was called again");
    let nodes = cluster.tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
    let attempts: Vec<_> = nodes["items"].as_array().expect("nodes").iter().map(|node| &node["attempt"]).collect();
    assert_eq!(attempts, [1, 1, 1, 1], "{nodes}");
}
