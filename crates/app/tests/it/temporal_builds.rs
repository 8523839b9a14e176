//! A run begun by one build and met by another that goes a different way: told wherever one asks, and finished by the
//! build that began it.
//!
//! Not here: histories of earlier builds (`temporal`'s own tests replay them), workers that lack a key
//! (`temporal_lost`).

use std::sync::Arc;
use std::time::Duration;

use ::temporal::testing::{Mutant, mutate};
use ::temporal::{Hands, Keys, Settings, Tls, Worker};
use engine::nodes::call::Means;
use engine::outbound::{self, Outbound};
use engine::pulse::Pulse;
use engine::vault::Vault;
use serde_json::json;

use crate::support::cli::Cli;
use crate::support::temporal::{Cluster, until_check};
use crate::support::tenant::text;
use crate::support::until;

/// A worker of a build that begins nodes in another order, as a part of this process.
async fn worker_of_another_build(cluster: &Cluster) -> Worker {
    mutate(Mutant::Backwards);
    let settings = Settings {
        address: cluster.setting("engine.temporal.address").to_owned(),
        namespace: "default".to_owned(),
        task_queue: cluster.queue().to_owned(),
        api_key: None,
        tls: Tls::default(),
        keys: Keys::default(),
        local_below: Duration::ZERO,
        max_calls: 10,
        max_generations: 32,
        heartbeat: Duration::from_secs(1),
        drain: Duration::from_secs(1),
    };
    let allow = vec![cluster.setting("outbound.allow").parse().expect("an address")];
    let outbound = Outbound::new(outbound::Settings { allow, ..Default::default() }).expect("a guard");
    let pulse = Arc::new(Pulse::new(Duration::from_secs(3600)));
    let store = cluster.database.store.clone();
    let vault = Vault::new(store.clone(), engine::vault::Keys::default());
    let means = Means { store, outbound, vault, pulse };
    let hands = Hands { means, on_left: Arc::new(|_, _| {}), on_ready: Arc::new(|_| {}) };
    let worker = Worker::start(settings, hands).expect("a worker");
    let polls = worker.polls();
    until("it polls", async || polls.load(std::sync::atomic::Ordering::Relaxed).then_some(())).await;
    worker
}

#[tokio::test]
async fn a_build_that_goes_another_way_is_told_with_the_cause_and_the_right_one_finishes_its_runs() {
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
    cluster.until_check("reconciler", |said| said.contains("1 runs do not go on")).await;
    until_check(&api, "engine", |said| said.contains("do not go on")).await;
    let metrics = cluster.server.anonymous().get("/metrics").await.text;
    assert!(metrics.contains("engine_runs_stuck{why=\"failing\"} 1"), "{metrics}");
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
