//! Measures many executions that wait for an answer: how much memory they cost an idle server, and how soon one of them
//! is woken.
//!
//! Invariants
//! - All executions are parked before anything is measured: each has no owner and one open wait.
//! - The time to wake up is measured from the answer to the execution's recorded end, both by the database's clock. The
//!   clock is read in the answer's transaction, so the time includes the answer's commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::measure::served::Service;
use crate::measure::stats::Sample;
use crate::measure::world::{Backlog, READY, World};
use crate::report::progress;

/// The slot limit of an ENTERPRISE workspace.
const EACH: i64 = 20;
const PATIENCE: Duration = Duration::from_secs(1_200);
const NODE: &str = "ask";

/// How many executions wait, and how many are woken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    workspaces: i64,
    answers: i64,
    over: Duration,
}

impl Size {
    pub(super) fn of(few: bool, scale: f64) -> Size {
        let scaled = |full: f64, least: i64| ((full * scale) as i64).max(least);
        match few {
            true => Size {
                workspaces: 50,
                answers: scaled(300.0, 50),
                over: Duration::from_secs_f64((10.0 * scale).max(3.0)),
            },
            false => Size {
                workspaces: scaled(5_000.0, 50),
                answers: scaled(2_000.0, 50),
                over: Duration::from_secs_f64((60.0 * scale).max(5.0)),
            },
        }
    }
}

pub(super) struct Slept {
    pub(super) sleeping: i64,
    pub(super) workspaces: i64,
    pub(super) parked_s: f64,
    pub(super) rss_mb: f64,
    /// Memory of a process that started while they waited.
    pub(super) rss_new_mb: f64,
    pub(super) rss_idle_mb: f64,
    pub(super) wake: Sample,
}

pub(super) async fn measure(world: &World, size: Size) -> Result<Slept> {
    world.leave_to_service().await?;
    let idle = Service::start(world, &[]).await?;
    let rss_idle_mb = idle.resident_mb_at_rest().await?;
    idle.stop().await?;
    let tenants = world.enterprises(size.workspaces, &document()).await?;
    world.load(&tenants, Backlog { waiting: EACH, ..READY }).await?;
    world.settle().await?;
    let sleeping = size.workspaces * EACH;
    let (service, began) = (Service::start(world, &[]).await?, Instant::now());
    parked(world, sleeping).await?;
    let parked_s = began.elapsed().as_secs_f64();
    let rss_mb = service.resident_mb_at_rest().await?;
    service.stop().await?;
    let service = Arc::new(Service::start(world, &[]).await?);
    let rss_new_mb = service.resident_mb_at_rest().await?;
    let wake = woken(world, &service, size).await.context("wake a sample of the executions")?;
    Arc::into_inner(service).context("an answer still holds the service")?.stop().await?;
    Ok(Slept { sleeping, workspaces: size.workspaces, parked_s, rss_mb, rss_new_mb, rss_idle_mb, wake })
}

/// Waits until this many executions wait, and no process holds one of them.
pub(crate) async fn parked(world: &World, sleeping: i64) -> Result<()> {
    let sql = "SELECT (SELECT count(*) FROM workflow_execution_wait WHERE status = 'OPEN'),
                      (SELECT count(*) FROM workflow_execution WHERE status = 'RUNNING' AND owner IS NULL)";
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let row = world.client.query_one(sql, &[]).await?;
        let (open, parked): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        if open == sleeping && parked == sleeping {
            return Ok(());
        }
        progress(format!("{:>4} s  {open} wait, {parked} are parked", began.elapsed().as_secs()));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("not all of the {sleeping} executions were parked in time")
}

/// Answers a sample of the waits, at a steady rate. Returns how long each took to its end, in ms.
async fn woken(world: &World, service: &Arc<Service>, size: Size) -> Result<Sample> {
    let some = "SELECT execution_id FROM workflow_execution_wait WHERE status = 'OPEN' \
        ORDER BY md5(execution_id::text) LIMIT $1";
    let ids: Vec<Uuid> = world.client.query(some, &[&size.answers]).await?.iter().map(|row| row.get(0)).collect();
    let mut next = tokio::time::interval(size.over / u32::try_from(ids.len().max(1))?);
    let mut answers = JoinSet::new();
    for id in ids.clone() {
        next.tick().await;
        let service = Arc::clone(service);
        answers.spawn(async move { service.answer(id, NODE).await });
    }
    while let Some(done) = answers.join_next().await {
        done.context("an answer failed")??;
    }
    ended(world, &ids).await
}

async fn ended(world: &World, ids: &[Uuid]) -> Result<Sample> {
    let sql = "SELECT extract(epoch FROM e.completed_at - a.answered_at)::float8 * 1000
                 FROM workflow_execution e JOIN workflow_execution_wait a ON a.execution_id = e.id
                WHERE e.id = ANY ($1) AND e.status = 'COMPLETED'";
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        let rows = world.client.query(sql, &[&ids]).await?;
        if rows.len() == ids.len() {
            return Ok(Sample::new(rows.iter().map(|row| row.get(0)).collect()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("some executions did not end after their answer")
}

/// A workflow of one node that waits for an answer.
pub(crate) fn document() -> Value {
    json!({ "version": 1, "name": "sleep", "nodes": { NODE: { "kind": "WAIT_FOR_EVENT" } } })
}
