//! Fills one database of a measurement: workspaces, published definitions, and backlogs of any size.
//!
//! Invariants
//! - Loaded rows look as if the service had written them: both tables, every CHECK, ids and ranks in the order of time,
//!   older than anything enqueued later.
//! - After a load the tables are vacuumed and analyzed, as autovacuum would have left them in production.
//!
//! Not here: what is measured (`crate::admission`, `crate::dispatch`).

use anyhow::{Context, Result};
use kernel::ids::{DefinitionId, ProcessId, WorkspaceId};
use serde_json::Value;
use store::Store;
use store::connect::Target;
use store::definition::NewVersion;
use store::process::{ProcessRegistration, register};
use store::workspace::NewWorkspace;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::cluster::Cluster;

/// The shard of all measured workspaces.
pub(crate) const SHARD: i16 = 7;

/// How many rows one statement writes.
const CHUNK: i64 = 250_000;

/// One database, a store over it, and a direct connection without time limits.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) store: Store,
    pub(crate) client: Client,
    pub(crate) process: ProcessId,
}

/// A workspace with one definition in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(crate) workspace: WorkspaceId,
    pub(crate) definition: DefinitionId,
}

/// A backlog to load: for each tenant this many running and this many waiting items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog<'a> {
    pub(crate) running: i64,
    pub(crate) waiting: i64,
    pub(crate) stage: i16,
    /// An SQL expression over `n`, the item's number.
    pub(crate) key: &'a str,
    /// When the waiting items may start, from now.
    pub(crate) due_in_s: f64,
}

/// Waiting items that are ready and have no key, and nothing running.
pub(crate) const READY: Backlog<'static> = Backlog { running: 0, waiting: 0, stage: 0, key: "NULL", due_in_s: 0.0 };

impl World {
    /// A new database of a cluster.
    pub(crate) async fn create(cluster: &Cluster, name: &str) -> Result<World> {
        let world = World::new(World::create_empty(cluster, name).await?).await?;
        // This succeeds only if the server was started with statement counting.
        let _not_there = world.client.batch_execute("CREATE EXTENSION pg_stat_statements").await;
        Ok(world)
    }

    /// A new database of a cluster, without any table. Returns its URL.
    pub(crate) async fn create_empty(cluster: &Cluster, name: &str) -> Result<String> {
        let client = cluster.target()?.connect().await?;
        client.batch_execute("SET statement_timeout = 0").await?;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.context("create a database")?;
        Ok(cluster.url().replace("///forebay?", &format!("///{name}?")))
    }

    /// A migrated database at this URL, with this program registered as a process of it.
    pub(crate) async fn new(url: String) -> Result<World> {
        let target = Target::new(&url)?;
        store::migrate::migrate(&target).await.context("migrate the database")?;
        let client = target.connect().await?;
        client
            .batch_execute(
                "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
                 SET search_path = forebay, public; SET synchronous_commit = off; SET maintenance_work_mem = '256MB'",
            )
            .await?;
        let process = ProcessId(store::new_id());
        let roles = vec!["dispatcher".to_owned(), "worker".to_owned()];
        let registration =
            ProcessRegistration { id: process, host: "bench".to_owned(), pid: 1, roles, version: "0".to_owned() };
        register(&client, &registration).await?;
        Ok(World { store: Store::new(&target, 4)?, url, client, process })
    }

    /// A workspace of the measured shard with a published definition.
    pub(crate) async fn tenant(&self, limit: i32, document: &Value) -> Result<Tenant> {
        self.tenant_in(Some(SHARD), limit, 1, document).await
    }

    /// A workspace with a published definition, in a shard if one is given.
    pub(crate) async fn tenant_in(
        &self,
        shard: Option<i16>,
        limit: i32,
        weight: i16,
        document: &Value,
    ) -> Result<Tenant> {
        let mut bytes = *store::new_id().as_bytes();
        if let Some(shard) = shard {
            bytes[15] = (bytes[15] & 0xc0) | u8::try_from(shard)?;
        }
        let workspace = WorkspaceId(Uuid::from_bytes(bytes));
        let new = NewWorkspace {
            id: workspace,
            name: workspace.to_string(),
            tier: "FREE".to_owned(),
            limit_override: Some(limit),
            weight,
            max_backlog: None,
        };
        self.store.create_workspace(&new, "bench").await?;
        Ok(Tenant { workspace, definition: self.definition(workspace, document).await? })
    }

    /// A published definition.
    pub(crate) async fn definition(&self, workspace: WorkspaceId, document: &Value) -> Result<DefinitionId> {
        let version = version(document)?;
        let name = store::new_id().to_string();
        let (id, stored) = self.store.create_definition(workspace, &name, &version, "bench").await?;
        self.store.publish(workspace, id, stored.id, &version, "bench").await?;
        Ok(id)
    }

    /// Many workspaces of the measured shard, each with a published definition and a limit of one.
    pub(crate) async fn tenants(&self, count: i64, document: &Value) -> Result<Vec<Tenant>> {
        let id = format!("overlay(gen_random_uuid()::text PLACING '{SHARD:02x}' FROM 35 FOR 2)::uuid");
        self.many(count, &id, "FREE", document).await
    }

    /// Many workspaces of the largest tier, over all shards, each with a published definition.
    pub(crate) async fn enterprises(&self, count: i64, document: &Value) -> Result<Vec<Tenant>> {
        self.many(count, "gen_random_uuid()", "ENTERPRISE", document).await
    }

    async fn many(&self, count: i64, id: &str, tier: &str, document: &Value) -> Result<Vec<Tenant>> {
        let graph = version(document)?.graph;
        let sql = format!(
            "WITH t AS MATERIALIZED (
                SELECT {id} AS ws,
                       gen_random_uuid() AS def, gen_random_uuid() AS ver FROM generate_series(1, $1::bigint)),
             w AS (INSERT INTO workspace (id, name, tier) SELECT ws, ws::text, '{tier}' FROM t),
             d AS (INSERT INTO workflow_definition (id, workspace_id, name, status, published_version)
                   SELECT def, ws, def::text, 'ACTIVE', ver FROM t),
             v AS (INSERT INTO workflow_definition_version (id, workspace_id, workflow_definition_id, number, graph, \
             content_hash)
                   SELECT ver, ws, def, 1, $2::jsonb, 'bench' FROM t)
             SELECT ws, def FROM t"
        );
        let rows = self.client.query(&sql, &[&count, &graph]).await.context("load workspaces")?;
        let tenant = |row: &tokio_postgres::Row| {
            Ok(Tenant { workspace: WorkspaceId(row.try_get(0)?), definition: DefinitionId(row.try_get(1)?) })
        };
        rows.iter().map(tenant).collect()
    }

    /// Loads a backlog: executions and queue items as the service would have written them an hour ago.
    pub(crate) async fn load(&self, tenants: &[Tenant], backlog: Backlog<'_>) -> Result<()> {
        let workspaces: Vec<Uuid> = tenants.iter().map(|tenant| tenant.workspace.0).collect();
        let definitions: Vec<Uuid> = tenants.iter().map(|tenant| tenant.definition.0).collect();
        let per = backlog.running + backlog.waiting;
        let hour_ago: jiff::Timestamp =
            self.client.query_one("SELECT now() - interval '1 hour'", &[]).await?.try_get(0)?;
        let mut from = 0;
        while from < per {
            let to = (from + (CHUNK / i64::try_from(tenants.len())?).max(1)).min(per);
            let items = items(backlog.key);
            for sql in [format!("{EXECUTIONS} {items}"), format!("{TICKETS} {items}")] {
                self.client
                    .execute(
                        &sql,
                        &[
                            &workspaces,
                            &definitions,
                            &from,
                            &to,
                            &backlog.running,
                            &self.process.0,
                            &backlog.stage,
                            &backlog.due_in_s,
                            &hour_ago,
                        ],
                    )
                    .await
                    .context("load a backlog")?;
            }
            from = to;
        }
        Ok(())
    }

    /// Ends this program's own process record, so that the service gets all shards.
    pub(crate) async fn leave_to_service(&self) -> Result<()> {
        Ok(self.store.end_process(self.process).await?)
    }

    /// Leaves the tables as autovacuum would have left them.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.client.batch_execute("VACUUM (ANALYZE)").await.context("vacuum")
    }

    /// Reads one number from the database.
    pub(crate) async fn number(&self, sql: &str, workspace: WorkspaceId) -> Result<i64> {
        Ok(self.client.query_one(sql, &[&workspace.0]).await?.try_get(0)?)
    }
}

/// The items of a load. Parameters: $1 workspaces, $2 definitions, $3 and $4 the first and last item of each tenant, $5
/// how many of them run, $6 their owner, $7 the stage and $8 the delay of waiting items, $9 an hour ago.
fn items(key: &str) -> String {
    format!(
        "FROM (SELECT t.ws, t.def, d.published_version AS ver, n, n <= $5::bigint AS runs, {key} AS key,
                      $9::timestamptz + make_interval(secs => k / 1000000.0) AS at,
                      (lpad(to_hex((extract(epoch FROM $9::timestamptz) * 1000)::bigint + k / 1000), 12, '0') || '7000'
                       || substr(md5(t.ws::text || t.def::text), 1, 4) || lpad(to_hex(k), 12, '0'))::uuid AS id
                 FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS t(ws, def, ord)
                 JOIN workflow_definition d ON d.id = t.def
                CROSS JOIN generate_series($3::bigint + 1, $4::bigint) n
                CROSS JOIN LATERAL (SELECT n * cardinality($1::uuid[]) + t.ord AS k) k
                WHERE $6::uuid IS NOT NULL AND $7::smallint IS NOT NULL AND $8::float8 IS NOT NULL
                ORDER BY k) i"
    )
}

const EXECUTIONS: &str = "INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status,
        semantics, engine, trigger, input, concurrency_key, created_at, started_at, deadline_at, owner, owner_epoch, \
        root)
    SELECT i.id, i.ws, i.def, i.ver, CASE WHEN i.runs THEN 'RUNNING' ELSE 'PENDING' END, 1,
           CASE WHEN i.runs THEN 'embedded' END, '{\"type\": \"api\", \"actor\": \"bench\"}', '{}', i.key, i.at,
           CASE WHEN i.runs THEN i.at END, i.at + interval '30 days', CASE WHEN i.runs THEN $6 END,
           CASE WHEN i.runs THEN 1 ELSE 0 END, i.id";

const TICKETS: &str = "INSERT INTO execution_queue (id, workspace_id, workflow_definition_id, created_at,
        available_at, rank, stage, limited, concurrency_key, status, claim_id, claimed_by, claimed_at, dispatched_at, \
        owner, claim_number)
    SELECT i.id, i.ws, i.def, i.at, CASE WHEN i.runs THEN i.at ELSE $9 + make_interval(secs => $8 + 3600) END,
           (extract(epoch FROM i.at) * 1000)::bigint, CASE WHEN i.runs THEN 5 ELSE $7 END, i.key IS NOT NULL OR $7 = 3,
           i.key, CASE WHEN i.runs THEN 'DISPATCHED' ELSE 'PENDING' END, CASE WHEN i.runs THEN $6 END,
           CASE WHEN i.runs THEN $6 END, CASE WHEN i.runs THEN i.at END, CASE WHEN i.runs THEN i.at END,
           CASE WHEN i.runs THEN $6 END, CASE WHEN i.runs THEN nextval('claim_number') END";

/// A checked document, ready to be stored.
fn version(document: &Value) -> Result<NewVersion> {
    let (definition, _) = kernel::definition::parse::check(document)
        .map_err(|problems| anyhow::anyhow!("the benchmark's own definition is wrong: {problems:?}"))?;
    let small = |number: Option<u32>| number.map(i32::try_from).transpose();
    Ok(NewVersion {
        graph: serde_json::to_value(&definition)?,
        content_hash: kernel::definition::parse::content_hash(&definition),
        source: None,
        timeout_ms: None,
        concurrency: small(definition.concurrency)?,
        key_concurrency: small(definition.key_concurrency)?,
        max_attempts: small(definition.max_attempts)?,
    })
}
