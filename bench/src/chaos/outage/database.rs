//! The first act: the database crashes and recovers, and connections are cut at random times.
//!
//! Invariants
//! - Each crash is real: a process of the server is killed. So the server closes every connection and recovers from its
//!   write-ahead log.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use store::connect::Client;
use tokio_util::sync::CancellationToken;

use super::{Act, PROCESSES, Size, TENANTS, Tally, even_limits, stop_setup, wait_until_ended};
use crate::chaos::load::{Burst, Load};
use crate::chaos::proxy::Proxy;
use crate::chaos::setup::{Setup, Stage, Tenant};
use crate::chaos::{ChaosOptions, Leases, ms};
use crate::cluster::Commits;
use crate::random::Random;
use crate::receiver::{Policy, Receiver};
use crate::report::{progress, say};
use crate::service::{Fleet, now_us};

pub(super) async fn act(options: &ChaosOptions, size: Size) -> anyhow::Result<Act> {
    say(format!("the database: {} crashes, cut connections", size.restarts));
    let policy = Policy { seed: options.seed, fast: (2, 20), slow: (100, 400), slow_every: 12, repeat: ms(50) };
    let leases = Leases::of(options.short);
    let stage = Stage { proxied: true, commits: Commits::Flushed, ..Stage::new(PROCESSES, leases, policy) };
    let setup = Setup::start(options, stage).await?;
    let tenants: Arc<[Tenant]> = setup.tenants(TENANTS, &documents(&setup.receiver)).await?.into();
    even_limits(&setup).await?;
    let run = Run { setup, size, seed: options.seed, load: Arc::new(Load::new(0)), unready: Arc::default() };
    let crashes = run.setup.while_all_live(run.trouble(tenants)).await?;
    let client = run.connect().await?;
    wait_until_ended(&client).await?;
    let tally = Tally::of(&run.setup, &client, &run.load, &crashes).await?;
    let unready = run.unready.load(Ordering::Relaxed);
    let cuts = run.setup.proxy.as_ref().map_or(0, Proxy::cuts);
    let broken = tally.broken("database", &[("readiness", unready == 0)]);
    stop_setup(run.setup, options.keep_logs || !broken.is_empty()).await?;
    Ok(Act { tally, figures: json!({ "restarts": crashes.len(), "cuts": cuts, "unready_seen": unready }), broken })
}

fn documents(receiver: &Receiver) -> Vec<Value> {
    let call = |node: &str| json!({ "kind": "HTTP_REQUEST", "with": receiver.node(node, false) });
    let mut two = json!({ "a": call("a"), "pause": { "kind": "DELAY", "with": { "for": "300ms" }, "needs": "a" },
        "b": call("b") });
    two["b"]["needs"] = json!("pause");
    vec![json!({ "version": 1, "name": "outage", "nodes": two })]
}

struct Run {
    setup: Setup,
    size: Size,
    seed: u64,
    load: Arc<Load>,
    /// How often a process reported that it was not ready.
    unready: Arc<AtomicUsize>,
}

impl Run {
    /// The load, with crashes and cuts. Returns the time of each crash.
    async fn trouble(&self, tenants: Arc<[Tenant]>) -> anyhow::Result<Vec<i64>> {
        let stop = CancellationToken::new();
        let mut random = Random::new(self.seed);
        let burst = Burst { api: self.setup.api.clone(), tenants, every: self.size.burst_every };
        let loading = tokio::spawn(Arc::clone(&self.load).bursts(burst, Random::new(self.seed ^ 7), stop.clone()));
        let watching = tokio::spawn(watch(Arc::clone(&self.setup.fleet), Arc::clone(&self.unready), stop.clone()));
        let cutting =
            tokio::spawn(cut(self.setup.proxy.clone(), self.size.cut_every, Random::new(self.seed ^ 9), stop.clone()));
        let mut crashes = Vec::new();
        for crash in 1..=self.size.restarts {
            tokio::time::sleep(ms(random.between(self.size.every.0, self.size.every.1))).await;
            crashes.push(self.crash().await?);
            progress(format!("crash {crash} of {}, accepted {}", self.size.restarts, self.load.count()));
            if crash % 5 == 0 {
                say(format!("crash {crash} of {}, accepted {}", self.size.restarts, self.load.count()));
            }
        }
        tokio::time::sleep(ms(self.size.every.0)).await;
        stop.cancel();
        loading.await.context("the load stopped early")?;
        cutting.await.context("cutting stopped early")?;
        watching.await.context("watching stopped early")?;
        Ok(crashes)
    }

    /// Kills a process of the server and waits until the server accepts connections again.
    async fn crash(&self) -> anyhow::Result<i64> {
        let client = self.connect().await?;
        let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        let at = now_us();
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("kill a process of the database")?;
        drop(client);
        self.connect().await.map(|_| at)
    }

    /// Tries to connect until the server accepts the connection.
    async fn connect(&self) -> anyhow::Result<Client> {
        let began = Instant::now();
        loop {
            match self.setup.cluster.target()?.connect().await {
                Ok(client) => return Ok(client),
                Err(error) if began.elapsed() > Duration::from_secs(60) => {
                    return Err(error).context("the database never came back");
                }
                Err(_) => tokio::time::sleep(ms(20)).await,
            }
        }
    }
}

async fn cut(proxy: Option<Proxy>, every: (u64, u64), mut random: Random, stop: CancellationToken) {
    let Some(proxy) = proxy else { return };
    loop {
        let pause = ms(random.between(every.0, every.1));
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => return }
        // Sometimes every connection, mostly a few.
        proxy.cut(if random.one_in(5) { 1 } else { 3 });
    }
}

/// Polls the readiness of every process, and counts those that are not ready.
async fn watch(fleet: Arc<Fleet>, unready: Arc<AtomicUsize>, stop: CancellationToken) {
    let http = reqwest::Client::new();
    while !stop.is_cancelled() {
        for base in (0..fleet.len()).filter_map(|place| fleet.base(place)) {
            let answer = http.get(format!("{base}/readyz")).timeout(Duration::from_secs(5)).send().await;
            if answer.is_ok_and(|answer| answer.status().as_u16() == 503) {
                unready.fetch_add(1, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(ms(50)).await;
    }
}
