//! Measures the whole life of many executions: accepted, admitted under their limits, run, recorded, ended.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kernel::ids::{ExecutionId, WorkspaceId};
use kernel::queue::Priority;
use serde_json::{Value, json};
use store::connect::Target;
use store::queue::enqueue::{EnqueueOutcome, Start};
use tokio::sync::mpsc;
use tokio_postgres::Client;

use super::{BATCH, Scale, TENANTS, one_node};
use crate::measure::cpu;
use crate::measure::served::Service;
use crate::measure::world::{Tenant, World};

const ITEMS: usize = 40_000;
/// The slot limit of a workspace, as in the tier ENTERPRISE.
const LIMIT: i32 = 20;
/// How many batches are accepted at once.
const ACCEPTING: usize = 2;
/// How long notifications are collected before they are sent.
const GATHER: Duration = Duration::from_millis(10);
/// The database updates its commit statistics about once a second: a pause before they are read.
const STATISTICS_DELAY: Duration = Duration::from_millis(1_500);

pub(crate) struct Lifecycle {
    pub(crate) per_s: f64,
    /// Processor time per execution, in microseconds: of the database, and of the service.
    pub(crate) database_us: f64,
    pub(crate) service_us: f64,
    pub(crate) commits: f64,
    /// None if the server cannot count statements.
    pub(super) statements: Option<f64>,
    /// Bytes of the write-ahead log per execution.
    pub(crate) wal_bytes: f64,
    /// The share of updates of `workflow_execution` that touch no index.
    pub(super) hot: f64,
}

/// Runs executions of one node in the service while they are accepted, and measures from the first to the last. `first`
/// runs before that, with the service; its result is kept until the end.
pub(crate) async fn measure<T>(
    world: &World,
    scale: Scale,
    first: impl AsyncFnOnce(&Service) -> Result<T>,
) -> Result<Lifecycle> {
    measure_graph(world, &one_node(), scale.count(ITEMS), first).await
}

/// The same for this many executions of any graph.
pub(crate) async fn measure_graph<T>(
    world: &World,
    document: &Value,
    items: usize,
    first: impl AsyncFnOnce(&Service) -> Result<T>,
) -> Result<Lifecycle> {
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(world.tenant_in(None, LIMIT, 1, document).await?);
    }
    world.leave_to_service().await?;
    world.settle().await?;
    let service = Service::start(world, &[]).await?;
    let kept = first(&service).await?;
    run(world, &tenants, BATCH * TENANTS).await.context("warm up")?;
    tokio::time::sleep(STATISTICS_DELAY).await;
    let before = Counted::look(&world.client).await?;
    let (server, process) = (cpu::postmaster(&world.client).await?, service.pid()?);
    let used = || anyhow::Ok([cpu::used_by(server)?, cpu::used_by(process)?]);
    let (earlier, began) = (used()?, Instant::now());
    run(world, &tenants, items).await?;
    let (took, later) = (began.elapsed(), used()?);
    tokio::time::sleep(STATISTICS_DELAY).await;
    let after = Counted::look(&world.client).await?;
    drop(kept);
    service.stop().await?;
    let each = |count: i64| count as f64 / items as f64;
    let us = |which: usize| later[which].saturating_sub(earlier[which]).as_secs_f64() * 1e6 / items as f64;
    Ok(Lifecycle {
        per_s: items as f64 / took.as_secs_f64(),
        database_us: us(0),
        service_us: us(1),
        commits: each(after.commits - before.commits),
        statements: after.statements.zip(before.statements).map(|(after, before)| each(after - before)),
        wal_bytes: each(after.wal_bytes - before.wal_bytes),
        hot: (after.hot_updates - before.hot_updates) as f64 / (after.updates - before.updates).max(1) as f64,
    })
}

/// Accepts this many executions and waits until the last one has ended.
pub(crate) async fn run(world: &World, tenants: &[Tenant], items: usize) -> Result<()> {
    accept(world, tenants, items).await?;
    // This query costs almost nothing, so polling does not disturb the measurement.
    let left = "SELECT EXISTS (SELECT 1 FROM execution_queue WHERE stage = 0) OR EXISTS (SELECT 1 FROM execution_queue \
        WHERE stage = 5)";
    while world.client.query_one(left, &[]).await?.try_get(0)? {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Accepts this many executions, a multiple of `BATCH`, like a process with the role `api`: each batch is a commit, and
/// soon after, one notification for many batches wakes the dispatchers.
pub(crate) async fn accept(world: &World, tenants: &[Tenant], items: usize) -> Result<()> {
    let batches = items / BATCH;
    let mut accepting = tokio::task::JoinSet::new();
    let (hints, inbox) = mpsc::unbounded_channel();
    let hinting = tokio::spawn(send_notifications(Target::new(&world.url)?, inbox));
    for worker in 0..ACCEPTING {
        let target = Target::new(&world.url)?;
        let (store, tenants, hints) = (store::Store::new(&target, 1)?, tenants.to_vec(), hints.clone());
        accepting.spawn(async move {
            for batch in (worker..batches).step_by(ACCEPTING) {
                // A batch belongs to one tenant, like a bulk start.
                let tenant = tenants[batch % tenants.len()];
                let starts: Vec<Start> = (0..BATCH).map(|_| start(tenant)).collect();
                let accepted = store.enqueue(&starts, "bench").await?;
                ensure!(
                    accepted.iter().all(|one| matches!(one, EnqueueOutcome::New { .. })),
                    "a start was not accepted"
                );
                hints.send(tenant.workspace)?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = accepting.join_next().await {
        done.context("accepting stopped early")??;
    }
    drop(hints);
    hinting.await.context("hinting stopped early")?
}

/// Sends notifications about workspaces with new items, as the service's API processes do.
pub(crate) async fn send_notifications(target: Target, mut inbox: mpsc::UnboundedReceiver<WorkspaceId>) -> Result<()> {
    let client = target.connect().await?;
    while let Some(first) = inbox.recv().await {
        tokio::time::sleep(GATHER).await;
        let mut workspaces = BTreeSet::from([first.to_string()]);
        while let Ok(more) = inbox.try_recv() {
            workspaces.insert(more.to_string());
        }
        let payload = workspaces.into_iter().collect::<Vec<_>>().join(",");
        client.execute("SELECT pg_notify('forebay_notification', $1)", &[&payload]).await?;
    }
    Ok(())
}

/// A start of a tenant's definition.
pub(crate) fn start(tenant: Tenant) -> Start {
    Start {
        execution: ExecutionId(store::new_id()),
        workspace: tenant.workspace,
        definition: tenant.definition,
        input: None,
        priority: Priority::default(),
        run_at: None,
        concurrency_key: None,
        idempotency: None,
        trigger: json!({ "type": "api", "actor": "bench" }),
        trace: None,
        version: None,
        rerun_of: None,
    }
}

/// The counters of the server.
struct Counted {
    commits: i64,
    statements: Option<i64>,
    wal_bytes: i64,
    updates: i64,
    hot_updates: i64,
}

impl Counted {
    async fn look(client: &Client) -> Result<Counted> {
        let commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
        let statements = "SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s
                            JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()";
        let wal = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
        let updates = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'workflow_execution'";
        let updates = client.query_one(updates, &[]).await?;
        Ok(Counted {
            wal_bytes: client.query_one(wal, &[]).await?.try_get(0)?,
            updates: updates.try_get(0)?,
            hot_updates: updates.try_get(1)?,
            commits: client.query_one(commits, &[]).await?.try_get(0)?,
            statements: match client.query_one(statements, &[]).await {
                Ok(row) => Some(row.try_get(0)?),
                Err(_) => None,
            },
        })
    }
}
