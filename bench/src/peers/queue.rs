//! A peer's queue in a database of its own: it is filled, drained, flooded, and jobs are sent to it at a steady pace.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use store::connect::Client;

use super::known::Peer;
use super::program::{PeerEvent, Program, Programs};
use super::{Drained, PickUp};
use crate::cluster::Cluster;
use crate::measure::cpu;
use crate::measure::stats::Sample;

/// Jobs sent per second where pick-up is measured, and by the quiet tenant beside a flood.
pub(super) const RATE: usize = 300;
pub(super) const QUIET_RATE: usize = 50;
/// How long a job of the flood runs, in ms.
pub(super) const FLOOD_HOLD_MS: u64 = 20;
/// How long jobs may be stored. Some peers store them one by one.
const FILL_S: u64 = 120;
/// How long a drain may take. What was begun until then gives the rate.
pub(super) const DRAIN: Duration = Duration::from_secs(60);
/// How long a sent job may take to begin.
pub(super) const BEGIN: Duration = Duration::from_secs(10);
/// How long a worker works before jobs are sent to it.
pub(super) const SETTLE: Duration = Duration::from_secs(1);

/// The database of one measurement of a peer.
pub(super) struct Queue<'a> {
    pub(super) programs: &'a Programs,
    pub(super) peer: &'static Peer,
    pub(super) url: String,
    pub(super) version: String,
    limit: usize,
    name: String,
    /// Connected to the database of the peer.
    client: Client,
    /// Connected to another one, which removes it.
    outside: Client,
}

impl<'a> Queue<'a> {
    pub(super) async fn create(
        cluster: &Cluster,
        programs: &'a Programs,
        peer: &'static Peer,
        limit: usize,
    ) -> Result<Queue<'a>> {
        let outside = cluster.target()?.connect().await?;
        outside.batch_execute("SET statement_timeout = 0").await?;
        let name = format!("peer_{}", store::new_id().simple());
        outside.batch_execute(&format!("CREATE DATABASE {name}")).await.context("create a database")?;
        let url = cluster.url().replace("///forebay?", &format!("///{name}?"));
        let setup = programs.order(peer, "setup", &url, &with(peer.work(false), limit, json!({}))).await?;
        let PeerEvent::Ready { version } = setup else { bail!("the setup reported {setup:?}") };
        let client = store::connect::Target::new(&url)?.connect().await?;
        client.batch_execute("SET statement_timeout = 0").await?;
        Ok(Queue { programs, peer, url, version, limit, name, client, outside })
    }

    pub(super) async fn remove(self) -> Result<()> {
        drop(self.client);
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        self.outside.batch_execute(&sql).await.context("drop a database")
    }

    /// Drains jobs that were stored before, in batches.
    pub(super) async fn drain(&self, jobs: usize) -> Result<Drained> {
        let jobs = self.fill(jobs, &json!({ "tenant": "a", "hold": 0 })).await?;
        let server = cpu::postmaster(&self.client).await?;
        let before = cpu::used_by(server)?;
        let mut worker = self.work(true, &json!({ "expect": jobs }))?;
        let began = self.first(&mut worker).await?;
        let all = worker.wait_for(DRAIN, |event| matches!(event, PeerEvent::All)).await?;
        while all && began.elapsed() < DRAIN && self.client.query_one(self.peer.left, &[]).await?.try_get(0)? {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (took, used) = (began.elapsed(), cpu::used_by(server)?.saturating_sub(before));
        let of_worker = cpu::used_by(worker.pid()?)?;
        let (begun, _) = worker.end().await?;
        let jobs = if all { jobs } else { begun } as f64;
        let each_us = |used: Duration| used.as_secs_f64() * 1e6 / jobs;
        Ok(Drained { per_s: jobs / took.as_secs_f64(), server_us: each_us(used), worker_us: each_us(of_worker) })
    }

    /// Drains a part of the jobs that were stored before. Returns how many were stored, and the rate.
    pub(super) async fn drain_of(&self, deep: usize, jobs: usize) -> Result<(usize, f64)> {
        let deep = self.fill(deep, &json!({ "tenant": "a", "hold": 0 })).await?;
        let mut worker = self.work(true, &json!({ "expect": jobs.min(deep) }))?;
        let began = self.first(&mut worker).await?;
        let all = worker.wait_for(DRAIN, |event| matches!(event, PeerEvent::All)).await?;
        let took = began.elapsed();
        let (begun, _) = worker.end().await?;
        let jobs = if all { jobs.min(deep) } else { begun };
        Ok((deep, jobs as f64 / took.as_secs_f64()))
    }

    /// Sends jobs at a steady pace to an idle worker.
    pub(super) async fn pick_up(&self, seconds: usize) -> Result<PickUp> {
        let mut worker = self.work(false, &json!({ "timed": true, "expect": RATE * (seconds + 1) }))?;
        worker.wait_until_ready().await?;
        self.send_and_collect(worker, "a", RATE, seconds).await
    }

    /// Sends jobs of one tenant while many jobs of another wait. Returns how many wait, and how soon the jobs began.
    pub(super) async fn flood(&self, jobs: usize, seconds: usize) -> Result<(usize, PickUp)> {
        let jobs = self.fill(jobs, &json!({ "tenant": "flood", "hold": FLOOD_HOLD_MS })).await?;
        let mut worker = self.work(false, &json!({ "timed": true, "expect": QUIET_RATE * (seconds + 1) }))?;
        worker.wait_until_ready().await?;
        Ok((jobs, self.send_and_collect(worker, "quiet", QUIET_RATE, seconds).await?))
    }

    /// The first second is a warm-up.
    async fn send_and_collect(&self, mut worker: Program, tenant: &str, rate: usize, seconds: usize) -> Result<PickUp> {
        tokio::time::sleep(SETTLE).await;
        let count = rate * (seconds + 1);
        let options = with(json!({ "tenant": tenant, "rate": rate, "count": count }), self.limit, json!({}));
        let sent = self.programs.order(self.peer, "send", &self.url, &options).await?;
        ensure!(matches!(sent, PeerEvent::Sent { count: sent } if sent == count), "the sender reported {sent:?}");
        worker.wait_for(BEGIN, |event| matches!(event, PeerEvent::All)).await?;
        let (_, mut times) = worker.end().await?;
        let never = count.saturating_sub(times.len());
        times.drain(..rate.min(times.len()));
        let missing = (count - rate).saturating_sub(times.len());
        times.extend(std::iter::repeat_n(BEGIN.as_secs_f64() * 1e3, missing));
        Ok(PickUp { sample: Sample::new(times), never })
    }

    /// Stores jobs, then leaves the tables as autovacuum would have left them. Returns how many were stored in time.
    pub(super) async fn fill(&self, count: usize, options: &Value) -> Result<usize> {
        let options = with(json!({ "count": count, "seconds": FILL_S }), self.limit, options.clone());
        let filled = self.programs.order(self.peer, "fill", &self.url, &options).await?;
        let PeerEvent::Filled { count } = filled else { bail!("the filling reported {filled:?}") };
        ensure!(count > 0, "no jobs were stored in time");
        self.client.batch_execute("VACUUM (ANALYZE)").await.context("vacuum")?;
        Ok(count)
    }

    pub(super) fn work(&self, is_fast: bool, options: &Value) -> Result<Program> {
        let options = with(self.peer.work(is_fast), self.limit, options.clone());
        self.programs.start(self.peer, "work", &self.url, &options)
    }

    async fn first(&self, worker: &mut Program) -> Result<Instant> {
        ensure!(worker.wait_for(DRAIN, |event| matches!(event, PeerEvent::First)).await?, "no job began in time");
        Ok(Instant::now())
    }
}

/// Options, the limit of a tenant, and more options.
fn with(mut options: Value, limit: usize, more: Value) -> Value {
    options["limit"] = json!(limit);
    if let Value::Object(more) = more {
        for (name, value) in more {
            options[&name] = value;
        }
    }
    options
}
