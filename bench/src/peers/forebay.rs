//! Forebay in the place of a peer: the release binary, jobs are executions of a workflow with one node, and limits are
//! on.
//!
//! Invariants
//! - Jobs are sent over HTTP. Only the floods are loaded as rows.
//! - A handler counts as begun at the time that is stored with its node. That is when the finished node is stored, so
//!   it is later than the handler's own begin, never earlier.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::known::LIMIT;
use super::queue::{BEGIN, DRAIN, FLOOD_HOLD_MS, QUIET_RATE, RATE, SETTLE};
use super::{Drained, PickUp};
use crate::measure::cpu;
use crate::measure::served::Service;
use crate::measure::stats::Sample;
use crate::measure::world::{Backlog, READY, Tenant, World};
use crate::receiver::{Policy, Receiver};
use crate::service::now_us;

/// Workspaces, and the limit of each, as in the tier ENTERPRISE.
const TENANTS: usize = 40;
const TENANT_LIMIT: i32 = 20;
/// Executions per bulk start.
const BATCH: usize = 500;

/// Drains executions that were accepted before by bulk starts.
pub(super) async fn drain(world: &World, jobs: usize) -> Result<Drained> {
    let tenants = tenants(world).await?;
    world.leave_to_service().await?;
    let api = Service::start_as("api", world, &[]).await?;
    for batch in 0..jobs / BATCH {
        let accepted = api.enqueue_bulk(tenants[batch % TENANTS], BATCH).await?;
        ensure!(accepted == BATCH, "a bulk start accepted {accepted} of {BATCH}");
    }
    api.stop().await?;
    world.settle().await?;
    let server = cpu::postmaster(&world.client).await?;
    let before = cpu::used_by(server)?;
    let (service, began) = (Service::start(world, &[]).await?, Instant::now());
    let left = "SELECT EXISTS (SELECT 1 FROM execution_queue)";
    while began.elapsed() < DRAIN && world.client.query_one(left, &[]).await?.try_get(0)? {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let used = cpu::used_by(server)?.saturating_sub(before);
    let of_service = cpu::used_by(service.pid()?)?;
    service.stop().await?;
    let sql = "SELECT count(*), extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM workflow_execution
                WHERE completed_at IS NOT NULL";
    let row = world.client.query_one(sql, &[]).await?;
    let (ended, took): (i64, f64) = (row.try_get(0)?, row.try_get::<_, Option<f64>>(1)?.context("nothing ended")?);
    let each_us = |used: Duration| used.as_secs_f64() * 1e6 / ended as f64;
    Ok(Drained { per_s: ended as f64 / took, server_us: each_us(used), worker_us: each_us(of_service) })
}

/// Drains a part of the executions that wait. Returns the rate.
pub(super) async fn drain_of(world: &World, deep: usize, jobs: usize) -> Result<f64> {
    let tenants = tenants(world).await?;
    let each = i64::try_from(deep / TENANTS)?;
    world.load(&tenants, Backlog { waiting: each, ..READY }).await?;
    world.leave_to_service().await?;
    world.settle().await?;
    let (service, began) = (Service::start(world, &[]).await?, Instant::now());
    let ended = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL";
    let jobs = i64::try_from(jobs.min(deep))?;
    while began.elapsed() < DRAIN && world.client.query_one(ended, &[]).await?.try_get::<_, i64>(0)? < jobs {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // What is left need not be ended in order.
    service.kill().await?;
    let sql = "SELECT count(*), extract(epoch FROM max(completed_at) - min(started_at))::float8
                 FROM (SELECT started_at, completed_at FROM workflow_execution WHERE completed_at IS NOT NULL
                        ORDER BY completed_at LIMIT $1) AS first_ended";
    let row = world.client.query_one(sql, &[&jobs]).await?;
    let (count, took): (i64, f64) = (row.try_get(0)?, row.try_get::<_, Option<f64>>(1)?.context("nothing ended")?);
    Ok(count as f64 / took)
}

/// Sends executions at a steady pace to an idle service. Returns how soon their nodes began, and how soon they were
/// claimed.
pub(super) async fn pick_up(world: &World, seconds: usize) -> Result<(PickUp, Sample)> {
    let tenants = tenants(world).await?;
    world.leave_to_service().await?;
    world.settle().await?;
    let service = Arc::new(Service::start(world, &[]).await?);
    let both = send_and_collect(world, &service, &tenants, RATE, seconds).await?;
    Arc::into_inner(service).context("a request still holds the service")?.stop().await?;
    Ok(both)
}

/// Sends executions of one workspace while many of another wait, whose limit is reached.
pub(super) async fn flood(world: &World, jobs: usize, seconds: usize) -> Result<PickUp> {
    let receiver = holding(FLOOD_HOLD_MS).await?;
    let flooding = world.tenant_in(None, i32::try_from(LIMIT)?, 1, &held_node(&receiver)).await?;
    let quiet = world.tenant_in(None, i32::try_from(LIMIT)?, 1, &one_node()).await?;
    world.load(&[flooding], Backlog { waiting: i64::try_from(jobs)?, ..READY }).await?;
    world.leave_to_service().await?;
    world.settle().await?;
    let service = Arc::new(Service::start(world, &[allowed(&receiver)]).await?);
    let (quiet, _) = send_and_collect(world, &service, &[quiet], QUIET_RATE, seconds).await?;
    Arc::into_inner(service).context("a request still holds the service")?.kill().await?;
    ensure!(receiver.count() > 0, "no execution of the flood ran");
    Ok(quiet)
}

/// A workspace with this limit, and a backlog of executions that each hold their slot for a while.
pub(super) async fn capped(world: &World, receiver: &Receiver, waiting: i64) -> Result<()> {
    let tenant = world.tenant_in(None, i32::try_from(LIMIT)?, 1, &held_node(receiver)).await?;
    world.load(&[tenant], Backlog { waiting, ..READY }).await?;
    world.leave_to_service().await?;
    world.settle().await
}

/// A server whose responses take this long.
pub(super) async fn holding(ms: u64) -> Result<Receiver> {
    let policy = Policy { seed: 0, fast: (ms, ms), slow: (ms, ms), slow_every: 1, repeat: Duration::from_millis(ms) };
    Receiver::start(policy).await
}

/// The setting that permits calls to the server.
pub(super) fn allowed(receiver: &Receiver) -> String {
    format!("outbound.allow={}", receiver.address)
}

async fn tenants(world: &World) -> Result<Vec<Tenant>> {
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(world.tenant_in(None, TENANT_LIMIT, 1, &one_node()).await?);
    }
    Ok(tenants)
}

/// The first second is a warm-up.
async fn send_and_collect(
    world: &World,
    service: &Arc<Service>,
    tenants: &[Tenant],
    rate: usize,
    seconds: usize,
) -> Result<(PickUp, Sample)> {
    tokio::time::sleep(SETTLE).await;
    let began = tokio::time::Instant::now();
    let mut sending = JoinSet::new();
    for number in 0..rate * (seconds + 1) {
        tokio::time::sleep_until(began + Duration::from_secs_f64(number as f64 / rate as f64)).await;
        let (service, tenant) = (Arc::clone(service), tenants[number % tenants.len()]);
        sending.spawn(async move {
            let at = now_us();
            anyhow::Ok((number, at, service.enqueue(tenant).await?.0))
        });
    }
    let (mut ids, mut sent_at) = (Vec::new(), Vec::new());
    while let Some(sent) = sending.join_next().await {
        let (number, at, id) = sent.context("a request failed")??;
        if number >= rate {
            ids.push(id);
            sent_at.push(at);
        }
    }
    collect(world, &ids, &sent_at).await
}

/// From the sending of executions to the begin of their nodes, and to their claim.
async fn collect(world: &World, ids: &[Uuid], sent_at: &[i64]) -> Result<(PickUp, Sample)> {
    let sql = "SELECT (extract(epoch FROM node.started_at) * 1000000)::bigint - sent.at,
                      (extract(epoch FROM execution.started_at) * 1000000)::bigint - sent.at
                 FROM unnest($1::uuid[], $2::bigint[]) AS sent(id, at)
                 JOIN workflow_execution execution ON execution.id = sent.id
                 JOIN workflow_execution_node node ON node.execution_id = execution.id
                WHERE node.started_at IS NOT NULL";
    let began = Instant::now();
    let rows = loop {
        let rows = world.client.query(sql, &[&ids, &sent_at]).await?;
        if rows.len() == ids.len() || began.elapsed() > BEGIN {
            break rows;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let never = ids.len() - rows.len();
    let ms = |at: usize| -> Result<Vec<f64>> {
        rows.iter().map(|row| Ok(row.try_get::<_, i64>(at)? as f64 / 1e3)).collect()
    };
    let mut begun = ms(0)?;
    begun.extend(std::iter::repeat_n(BEGIN.as_secs_f64() * 1e3, never));
    Ok((PickUp { sample: Sample::new(begun), never }, Sample::new(ms(1)?)))
}

/// A workflow of one light node.
fn one_node() -> Value {
    json!({ "version": 1, "name": "one", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } })
}

/// A workflow of one node that calls the server.
fn held_node(receiver: &Receiver) -> Value {
    let query = json!({
        "execution": "${{ execution.id }}",
        "workspace": "${{ workspace.id }}",
        "n": 1,
        "node": "hold",
    });
    let with = json!({ "url": receiver.url("/hit"), "query": query });
    json!({ "version": 1, "name": "hold", "nodes": { "hold": { "kind": "HTTP_REQUEST", "with": with } } })
}
