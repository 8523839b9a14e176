//! Measures the database alone: plain SQL in batches, without limits, fairness or crash recovery.
//!
//! Invariants
//! - Each of the steps accept, claim and finish is a flushed commit of its own, as in a service.
//! - The ceiling is the best result over several numbers of workers, so that too few workers do not lower it.
//! - Plain SQL writes for as many tenants as Forebay does, one batch per tenant in turn.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use store::connect::Target;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::{BATCH, Scale, TENANTS, one_node};
use crate::measure::cpu;
use crate::measure::world::World;

const WORKERS: [usize; 3] = [1, 2, 4];
const ITEMS: usize = 30_000;

const BARE: [&str; 3] = [
    "INSERT INTO bare (id, body) SELECT id, '{}' FROM unnest($1::uuid[]) AS id",
    "WITH c AS MATERIALIZED (SELECT id FROM bare WHERE NOT claimed ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
     UPDATE bare b SET claimed = true FROM c WHERE b.id = c.id RETURNING b.id",
    "DELETE FROM bare WHERE id = ANY($1::uuid[])",
];

const SAME_ROWS: [&str; 3] = [
    "WITH i AS MATERIALIZED (SELECT id FROM unnest($1::uuid[]) AS id),
     e AS (INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics,
                trigger, input, deadline_at, root)
           SELECT id, $2::uuid, $3::uuid, $4::uuid, 'PENDING', 1, '{\"type\": \"api\", \"actor\": \"bench\"}', '{}',
                  now() + interval '30 days', id FROM i)
     INSERT INTO execution_queue (id, workspace_id, workflow_definition_id, available_at, deadline_at, rank)
     SELECT id, $2::uuid, $3::uuid, now(), now() + interval '30 days',
            (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM i",
    "WITH c AS MATERIALIZED (SELECT q.id FROM execution_queue q
              WHERE q.shard = (get_byte(uuid_send($2::uuid), 15) & 63)::smallint AND q.workspace_id = $2::uuid AND \
              q.stage = 0
              ORDER BY q.rank, q.id LIMIT $1 FOR UPDATE SKIP LOCKED),
     e AS (UPDATE workflow_execution e SET status = 'RUNNING', engine = 'plain', owner = $3::uuid, owner_epoch = 1,
                  started_at = clock_timestamp() FROM c WHERE e.id = c.id)
     UPDATE execution_queue q SET status = 'DISPATCHED', stage = 5, claim_number = 1, claim_id = $3::uuid,
            claimed_by = $3::uuid, claimed_at = clock_timestamp(), dispatched_at = clock_timestamp(), owner = $3::uuid
       FROM c WHERE q.id = c.id RETURNING q.id",
    "WITH n AS (INSERT INTO workflow_execution_node (execution_id, node, iteration, workspace_id, status, attempt, seq,
                    input, output, started_at, completed_at, duration_ms)
                SELECT id, 'say', 0, $2::uuid, 'COMPLETED', 1, 1, '{\"message\": \"hello\"}', \
                '{\"message\": \"hello\"}', clock_timestamp(),
                       clock_timestamp(), 0 FROM unnest($1::uuid[]) AS id),
     e AS (UPDATE workflow_execution SET status = 'COMPLETED', output = '{}', completed_at = clock_timestamp(),
                  duration_ms = 1, last_seq = 1, owner = NULL WHERE id = ANY($1::uuid[]))
     DELETE FROM execution_queue WHERE id = ANY($1::uuid[])",
];

/// The result of a ceiling.
#[derive(Clone, Copy, Default)]
pub(super) struct Ceiling {
    pub(super) per_s: f64,
    /// The server's processor time per item, in microseconds.
    pub(super) cpu_us: f64,
}

/// Further parameters of a step, by the numbers of the step and the batch.
type Extra = Arc<dyn Fn(usize, usize) -> Vec<Uuid> + Send + Sync>;

/// Insert, claim and delete in a separate table.
pub(super) async fn measure_bare(world: &World, scale: Scale) -> Result<Ceiling> {
    let table = "CREATE TABLE bare (id uuid PRIMARY KEY, claimed boolean NOT NULL DEFAULT false, body jsonb NOT NULL)
                 WITH (fillfactor = 70);
                 CREATE INDEX ON bare (id) WHERE NOT claimed";
    world.client.batch_execute(table).await?;
    best(world, scale, &BARE, Arc::new(|_, _| Vec::new())).await
}

/// Writes the rows that Forebay writes, in its own tables, by plain statements.
pub(super) async fn measure_same_rows(world: &World, scale: Scale) -> Result<Ceiling> {
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        let tenant = world.tenant_in(None, 1_000, 1, &one_node()).await?;
        let version = "SELECT published_version FROM workflow_definition WHERE id = $1";
        let version: Uuid = world.client.query_one(version, &[&tenant.definition.0]).await?.try_get(0)?;
        tenants.push((tenant.workspace.0, tenant.definition.0, version));
    }
    let process = world.process.0;
    let extra = move |step: usize, batch: usize| {
        let (workspace, definition, version) = tenants[batch % tenants.len()];
        match step {
            0 => vec![workspace, definition, version],
            1 => vec![workspace, process],
            _ => vec![workspace],
        }
    };
    best(world, scale, &SAME_ROWS, Arc::new(extra)).await
}

async fn best(world: &World, scale: Scale, steps: &[&'static str; 3], extra: Extra) -> Result<Ceiling> {
    let mut best = Ceiling::default();
    let server = cpu::postmaster(&world.client).await?;
    for workers in WORKERS {
        world.settle().await?;
        let batches = scale.count(ITEMS) / BATCH / workers;
        let mut tasks = tokio::task::JoinSet::new();
        let target = Arc::new(Target::new(&world.url)?);
        let mut all = Vec::new();
        for number in 0..workers {
            all.push(Worker::new(&target, steps, number * batches).await?);
        }
        let (before, began) = (cpu::used_by(server)?, Instant::now());
        for worker in all {
            let extra = Arc::clone(&extra);
            tasks.spawn(async move { worker.work(batches, &extra).await });
        }
        while let Some(done) = tasks.join_next().await {
            done.context("a worker stopped early")??;
        }
        let (took, items) = (began.elapsed(), (batches * BATCH * workers) as f64);
        let cpu = cpu::used_by(server)?.saturating_sub(before);
        let this = Ceiling { per_s: items / took.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / items };
        if this.per_s > best.per_s {
            best = this;
        }
    }
    Ok(best)
}

struct Worker {
    client: Client,
    /// The number of its first batch.
    first: usize,
    steps: Vec<Statement>,
}

impl Worker {
    async fn new(target: &Target, steps: &[&'static str; 3], first: usize) -> Result<Worker> {
        let client = target.connect().await?;
        client.batch_execute("SET search_path = forebay, public").await?;
        let mut prepared = Vec::new();
        for step in steps {
            prepared.push(client.prepare(step).await.context("prepare a step")?);
        }
        Ok(Worker { client, first, steps: prepared })
    }

    async fn work(&self, batches: usize, extra: &Extra) -> Result<()> {
        for batch in self.first..self.first + batches {
            let ids: Vec<Uuid> = (0..BATCH).map(|_| store::new_id()).collect();
            self.step(0, &ids, &extra(0, batch)).await?;
            let most = i64::try_from(BATCH)?;
            let rows = self.step(1, &most, &extra(1, batch)).await?;
            let claimed: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
            self.step(2, &claimed, &extra(2, batch)).await?;
        }
        Ok(())
    }

    async fn step(
        &self,
        step: usize,
        first: &(dyn ToSql + Sync),
        more: &[Uuid],
    ) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![first];
        params.extend(more.iter().map(|id| id as &(dyn ToSql + Sync)));
        self.client.query(&self.steps[step], &params).await
    }
}
