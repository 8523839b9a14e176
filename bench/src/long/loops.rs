//! Measures loops over many items, each item a call: speed, peak memory, and how much work a kill in the middle
//! repeats.
//!
//! Invariants
//! - No expression reads the output of a loop, except in the loop `looked_at`, which measures this case: then the whole
//!   output must be in memory.
//! - The items that were done before the kill are read from the database after the kill, when no process writes any
//!   more.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kernel::ids::ExecutionId;
use serde_json::{Value, json};

use crate::measure::served::Service;
use crate::measure::stats::round;
use crate::measure::world::{Tenant, World};
use crate::receiver::{Policy, Receiver};
use crate::report::{peak_mb, say};

/// Items in flight at once.
pub(super) const PARALLEL: usize = 50;
const LARGE: f64 = 10_000.0;
const SMALL: f64 = 1_000.0;
const BARE_CALLS: usize = 5_000;
/// How often the progress of a loop is polled.
const LOOK: Duration = Duration::from_millis(25);
const PATIENCE: Duration = Duration::from_secs(600);

/// One complete loop.
pub(super) struct Loop {
    pub(super) items: usize,
    pub(super) per_s: f64,
    pub(super) peak_mb: f64,
}

pub(super) struct Loops {
    pub(super) small: Loop,
    pub(super) large: Loop,
    /// The large loop, in a workflow whose outputs read the loop's output.
    pub(super) looked_at: Loop,
    pub(super) idle_mb: f64,
    pub(super) bare_per_s: f64,
    pub(super) killed: Killed,
}

/// A loop whose server was killed in the middle.
pub(super) struct Killed {
    /// Items that were done at the kill.
    pub(super) done: usize,
    /// Items that were called again although they were done.
    pub(super) redone: usize,
    /// Items that were called again because their result was not recorded.
    pub(super) repeated: usize,
    /// From its start to its end.
    pub(super) took_s: f64,
}

impl Loops {
    pub(super) fn ratio(&self) -> f64 {
        self.large.peak_mb / self.small.peak_mb
    }
}

pub(super) async fn measure(world: &World, scale: f64) -> Result<Loops> {
    let policy = Policy { seed: 1, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: Duration::ZERO };
    let receiver = Receiver::start(policy).await?;
    let bare_per_s = bare(&receiver).await.context("bare calls")?;
    let tenant = world.tenant_in(None, 1, 1, &document(&receiver, false)).await?;
    let looks = Tenant { definition: world.definition(tenant.workspace, &document(&receiver, true)).await?, ..tenant };
    world.leave_to_service().await?;
    let bench = Bench { world, tenant, settings: vec![format!("outbound.allow={}", receiver.address)], receiver };
    let idle = bench.service().await?;
    let idle_mb = peak(&idle)?;
    idle.stop().await?;
    let items = |full: f64| ((full * scale) as usize).max(PARALLEL * 2);
    let small = bench.whole(tenant, items(SMALL)).await.context("the small loop")?;
    say(format!("a loop of {} items: {:.0}/s, {:.1} MB at its peak", small.items, small.per_s, small.peak_mb));
    let large = bench.whole(tenant, items(LARGE)).await.context("the large loop")?;
    say(format!("a loop of {} items: {:.0}/s, {:.1} MB at its peak", large.items, large.per_s, large.peak_mb));
    let looked_at = bench.whole(looks, items(LARGE)).await.context("the loop whose output is read")?;
    say(format!("the same with its output read: {:.0}/s, {:.1} MB at its peak", looked_at.per_s, looked_at.peak_mb));
    let killed = bench.killed(items(LARGE)).await.context("the loop that is killed")?;
    Ok(Loops { small, large, looked_at, idle_mb, bare_per_s, killed })
}

struct Bench<'a> {
    world: &'a World,
    tenant: Tenant,
    settings: Vec<String>,
    receiver: Receiver,
}

impl Bench<'_> {
    async fn service(&self) -> Result<Service> {
        Service::start(self.world, &self.settings).await
    }

    /// Runs a loop in its own server.
    async fn whole(&self, tenant: Tenant, items: usize) -> Result<Loop> {
        let service = self.service().await?;
        let id = service.enqueue_with(tenant, input(items)).await?;
        let took = self.ended(id, items).await?;
        let peak_mb = peak(&service)?;
        service.stop().await?;
        Ok(Loop { items, per_s: items as f64 / took, peak_mb })
    }

    /// Runs a loop whose server is killed when about half of it is done. Another server resumes it.
    async fn killed(&self, items: usize) -> Result<Killed> {
        let first = self.service().await?;
        let id = first.enqueue_with(self.tenant, input(items)).await?;
        let began = Instant::now();
        while self.done(id).await?.len() < items / 2 {
            ensure!(began.elapsed() < PATIENCE, "half of the loop was not done in time");
            tokio::time::sleep(LOOK).await;
        }
        first.kill().await?;
        // The pause lets the database finish writes that the killed server had sent.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (done, before) = (self.done(id).await?, self.receiver.count());
        let second = self.service().await?;
        self.ended(id, items).await?;
        let took_s = began.elapsed().as_secs_f64();
        second.stop().await?;
        let after = self.receiver.deliveries().split_off(before);
        let again = after.iter().filter(|call| call.execution == id.0 && call.nth > 0);
        let (redone, repeated): (Vec<_>, Vec<_>) = again.partition(|call| done.contains(&call.iteration));
        Ok(Killed { done: done.len(), redone: redone.len(), repeated: repeated.len(), took_s })
    }

    /// The items that are recorded as completed.
    async fn done(&self, id: ExecutionId) -> Result<BTreeSet<i32>> {
        let sql = "SELECT iteration FROM workflow_execution_node WHERE execution_id = $1 AND iteration > 0 AND status \
            = 'COMPLETED'";
        let rows = self.world.client.query(sql, &[&id.0]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Waits for its end. Returns how long it ran, in seconds.
    async fn ended(&self, id: ExecutionId, items: usize) -> Result<f64> {
        let sql = "SELECT extract(epoch FROM e.completed_at - e.started_at)::float8, e.status, (n.output ->> \
            'count')::bigint, e.error::text
                     FROM workflow_execution e LEFT JOIN workflow_execution_node n ON n.execution_id = e.id AND \
                     n.iteration = 0
                    WHERE e.id = $1 AND e.completed_at IS NOT NULL";
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(row) = self.world.client.query_opt(sql, &[&id.0]).await? {
                let (status, error): (String, Option<String>) = (row.try_get(1)?, row.try_get(3)?);
                ensure!(status == "COMPLETED", "a loop ended {status}: {error:?}");
                ensure!(row.try_get::<_, Option<i64>>(2)? == Some(i64::try_from(items)?), "a loop missed items");
                return Ok(row.try_get(0)?);
            }
            tokio::time::sleep(LOOK).await;
        }
        bail!("a loop did not end")
    }
}

/// The rate that the harness's own client reaches at the same receiver, with the same parallelism.
async fn bare(receiver: &Receiver) -> Result<f64> {
    let (http, url) = (reqwest::Client::new(), receiver.url("/hit"));
    let id = store::new_id();
    let began = Instant::now();
    let lanes = (0..PARALLEL).map(|lane| {
        let (http, url) = (http.clone(), url.clone());
        tokio::spawn(async move {
            for at in (lane..BARE_CALLS).step_by(PARALLEL) {
                let query = format!("{url}?execution={id}&workspace={id}&n=0&node=bare&iteration={}&i={at}", at + 1);
                http.get(query).send().await?.error_for_status()?.bytes().await?;
            }
            anyhow::Ok(())
        })
    });
    for lane in futures_util::future::join_all(lanes).await {
        lane.context("a lane stopped early")??;
    }
    Ok(BARE_CALLS as f64 / began.elapsed().as_secs_f64())
}

fn peak(service: &Service) -> Result<f64> {
    peak_mb(service.pid()?).map(round).context("read the peak of a process")
}

fn input(items: usize) -> Value {
    json!({ "n": items, "items": (1..=items).collect::<Vec<_>>() })
}

fn document(receiver: &Receiver, looks: bool) -> Value {
    let call = json!({
        "kind": "HTTP_REQUEST",
        "with": { "url": receiver.url("/hit"), "query": {
            "execution": "${{ execution.id }}", "workspace": "${{ workspace.id }}", "n": "${{ inputs.n }}",
            "node": "loop", "iteration": "${{ index + 1 }}", "i": "${{ item }}",
        }},
    });
    let with = json!({ "items": "${{ inputs.items }}", "parallel": PARALLEL, "do": call });
    let outputs = if looks { json!({ "count": "${{ nodes.loop.output.count }}" }) } else { json!({}) };
    json!({ "version": 1, "name": "loop", "nodes": { "loop": { "kind": "FOR_EACH", "with": with } },
        "outputs": outputs })
}
