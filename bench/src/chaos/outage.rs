//! Outage: the database crashes and comes back, connections are cut in the middle of things, and
//! whatever was accepted ends once, as if nothing had happened.
//!
//! Invariants
//! - Accepted means that the client saw a 202. It asks again, with the same key, until it does.
//! - A crash is a real one: a server process is killed, and the server throws everybody out and
//!   recovers from its log.
//! - Nobody helps: no process is restarted.
//!
//! Not here: killed processes of ours (`strict`, `durable`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use store::connect::Client;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::judge::{Evidence, judge};
use super::load::{Burst, Load};
use super::setup::{Setup, Stage, Tenant};
use super::{Leases, Outcome, Request, log, ms, seconds};
use crate::cluster::Commits;
use crate::random::Random;
use crate::receiver::{Policy, Receiver};
use crate::report::{machine, progress, say};
use crate::service::{Fleet, now_us};

const PROCESSES: usize = 3;
const TENANTS: usize = 12;
/// The run is over when nothing ended for so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// After an outage something must end within so long.
const RECOVERY: Duration = Duration::from_secs(30);

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    restarts: usize,
    /// From one crash to the next, in ms.
    every: (u64, u64),
    /// Connections are cut this often, in ms.
    cut_every: (u64, u64),
    burst_every: Duration,
}

impl Size {
    fn of(request: &Request) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of times")]
        let restarts = ((20.0 * request.scale).ceil() as usize).max(1);
        match request.short {
            false => Size { restarts, every: (5_000, 9_000), cut_every: (300, 1_500), burst_every: ms(40) },
            true => Size { restarts: 2, every: (2_000, 3_000), cut_every: (300, 900), burst_every: ms(60) },
        }
    }
}

/// Runs it.
pub async fn run(request: &Request) -> anyhow::Result<Outcome> {
    let (size, leases) = (Size::of(request), Leases::of(request.short));
    say(format!(
        "outage: {PROCESSES} processes, {} crashes of the database, cut connections, seed {}",
        size.restarts, request.seed
    ));
    let machine = machine();
    let policy = Policy { seed: request.seed, fast: (2, 20), slow: (100, 400), slow_every: 12, repeat: ms(50) };
    let stage = Stage { proxied: true, commits: Commits::Flushed, ..Stage::new(PROCESSES, leases, policy) };
    let setup = Setup::start(request, stage).await?;
    let tenants: Arc<[Tenant]> = setup.tenants(TENANTS, &documents(&setup.receiver)).await?.into();
    // The load is even over the workspaces: a smaller tier's would only wait.
    setup.client.batch_execute("UPDATE workspace SET limit_override = 10").await.context("set the limits")?;
    let began = Instant::now();
    let run = Run { setup, size, seed: request.seed, load: Arc::new(Load::new(0)), unready: Arc::default() };
    let crashes = run.trouble(tenants).await?;
    run.quiet().await?;
    let (mut figures, broken) = run.audit(&crashes).await?;
    figures["run"] = json!("outage");
    figures["seed"] = json!(request.seed);
    figures["seconds"] = json!(seconds(began.elapsed()));
    figures["machine"] = machine;
    figures["settings"] = json!({ "processes": PROCESSES, "workspaces": TENANTS, "short": request.short, "scale": request.scale, "leases": leases.json() });
    figures["broken"] = json!(broken);
    if let Some(logs) = run.setup.stop(request.keep_logs || !broken.is_empty()).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

fn documents(receiver: &Receiver) -> Vec<Value> {
    let call = |node: &str| json!({ "kind": "HTTP_REQUEST", "with": receiver.node(node, false) });
    let mut two = json!({ "a": call("a"), "pause": { "kind": "DELAY", "with": { "for": "300ms" }, "needs": "a" }, "b": call("b") });
    two["b"]["needs"] = json!("pause");
    vec![json!({ "version": 1, "name": "outage", "nodes": two })]
}

struct Run {
    setup: Setup,
    size: Size,
    seed: u64,
    load: Arc<Load>,
    /// How often a process said that it was not ready.
    unready: Arc<AtomicUsize>,
}

impl Run {
    /// The load with crashes and cuts beside it; answers when each crash was.
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
        loading.await.context("the load broke off")?;
        cutting.await.context("cutting broke off")?;
        watching.await.context("watching broke off")?;
        Ok(crashes)
    }

    /// Kills a process of the server and waits until the server takes connections again.
    async fn crash(&self) -> anyhow::Result<i64> {
        let client = self.connect().await?;
        let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
        let at = now_us();
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("kill a process of the database")?;
        drop(client);
        self.connect().await.map(|_| at)
    }

    /// Connects, however long it takes.
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

    async fn quiet(&self) -> anyhow::Result<()> {
        say("quiet: whatever was accepted ends");
        let client = self.connect().await?;
        let open = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NULL";
        let (mut last, mut since) = (i64::MAX, Instant::now());
        loop {
            let left: i64 = client.query_one(open, &[]).await?.get(0);
            if left < last {
                (last, since) = (left, Instant::now());
            }
            if left == 0 || since.elapsed() > PATIENCE {
                break;
            }
            tokio::time::sleep(ms(100)).await;
        }
        Ok(())
    }

    async fn audit(&self, crashes: &[i64]) -> anyhow::Result<(Value, Vec<String>)> {
        say("audit: replaying the log");
        let client = self.connect().await?;
        let accepted: Vec<Uuid> = self.load.accepted();
        let unended = "SELECT count(*) FROM unnest($1::uuid[]) AS a (id) LEFT JOIN workflow_execution e ON e.id = a.id
                        WHERE e.completed_at IS NULL";
        let lost: i64 = client.query_one(unended, &[&accepted]).await?.get(0);
        let failed = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL AND status <> 'COMPLETED'";
        let failed: i64 = client.query_one(failed, &[]).await?.get(0);
        let slots: i64 = client.query_one("SELECT count(*) FROM execution_queue WHERE stage = 5", &[]).await?.get(0);
        let recovery = self.recovery(&client, crashes).await?;
        let (entries, processes) = (log::load(&client).await?, log::processes(&client).await?);
        let deliveries = self.setup.receiver.deliveries();
        let verdict = judge(&Evidence { log: &entries, deliveries: &deliveries, pauses: &[], processes: &processes });
        for finding in &verdict.told {
            say(format!("  found: {finding}"));
        }
        let unready = self.unready.load(Ordering::Relaxed);
        let checks = [
            ("lost", lost > 0 || accepted.is_empty()),
            ("doubled", verdict.double_started() > 0),
            ("failed_by_outage", failed > 0),
            ("slots_left", slots > 0),
            ("over_cap", verdict.over_cap() > 0),
            ("recovery", recovery > RECOVERY.as_secs_f64()),
            ("readiness", unready == 0),
        ];
        let figures = json!({
            "restarts": crashes.len(), "cuts": self.setup.proxy.as_ref().map_or(0, super::proxy::Proxy::cuts),
            "accepted": accepted.len(), "terminal": i64::try_from(accepted.len())? - lost, "lost": lost,
            "doubled": verdict.double_started(), "failed_by_outage": failed, "recovery_max_s": (recovery * 10.0).round() / 10.0,
            "slots_left": slots, "over_cap": verdict.over_cap(), "unready_seen": unready,
        });
        Ok((figures, checks.into_iter().filter(|(_, broke)| *broke).map(|(name, _)| name.to_owned()).collect()))
    }

    /// The longest time from a crash to the next end of an execution, in seconds.
    async fn recovery(&self, client: &Client, crashes: &[i64]) -> anyhow::Result<f64> {
        let sql = "SELECT coalesce(max(extract(epoch FROM n.at) - c.at / 1000000.0), 0)::float8
                     FROM unnest($1::bigint[]) AS c (at)
                    CROSS JOIN LATERAL (SELECT coalesce(min(e.completed_at), now()) AS at FROM workflow_execution e
                                         WHERE e.completed_at > to_timestamp(c.at / 1000000.0)) n";
        Ok(client.query_one(sql, &[&crashes]).await?.get(0))
    }
}

async fn cut(proxy: Option<super::proxy::Proxy>, every: (u64, u64), mut random: Random, stop: CancellationToken) {
    let Some(proxy) = proxy else { return };
    loop {
        let pause = ms(random.between(every.0, every.1));
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => return }
        // Now and then everybody, mostly a few.
        proxy.cut(if random.one_in(5) { 1 } else { 3 });
    }
}

/// Asks everybody whether they are ready, and counts who is not.
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
