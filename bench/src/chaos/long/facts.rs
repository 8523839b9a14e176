//! What the database contains at the end: every execution, and what the triggers recorded about nodes and waits.

use std::collections::HashMap;

use anyhow::Context;
use serde_json::Value;
use store::connect::Client;
use tokio_postgres::Row;
use uuid::Uuid;

/// The final state of an execution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Execution {
    pub(super) id: Uuid,
    pub(super) root: Uuid,
    /// The plan that it belongs to.
    pub(super) n: i64,
    pub(super) status: String,
    pub(super) output: Option<Value>,
    /// The class of its failure.
    pub(super) class: Option<String>,
    pub(super) ended: bool,
}

impl Execution {
    pub(super) fn is_root(&self) -> bool {
        self.id == self.root
    }
}

/// The key of a node row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeRowKey {
    pub(super) execution: Uuid,
    pub(super) node: String,
    pub(super) iteration: i32,
}

/// When each node was first recorded as completed, in µs since 1970, and how often.
pub(super) type Done = HashMap<NodeRowKey, (i64, usize)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Handed,
    Answered,
}

/// What happened to a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitFact {
    pub(super) at: i64,
    pub(super) step: Step,
    pub(super) is_task: bool,
    pub(super) task: Uuid,
    pub(super) node: NodeRowKey,
    pub(super) attempt: i32,
    pub(super) claim: Option<Uuid>,
}

/// Installs the triggers. Call it before anything is started.
pub(super) async fn install(client: &Client) -> anyhow::Result<()> {
    client.batch_execute(include_str!("../../../sql/long.sql")).await.context("install the judge's triggers")
}

pub(super) async fn executions(client: &Client) -> anyhow::Result<Vec<Execution>> {
    client.batch_execute("SET statement_timeout = 0").await?;
    let sql = "SELECT id, root, (input ->> 'n')::bigint, status, output, error ->> 'type', completed_at IS NOT NULL
                 FROM workflow_execution ORDER BY created_at, id";
    let rows = client.query(sql, &[]).await.context("read the executions")?;
    let execution = |row: &Row| Execution {
        id: row.get(0),
        root: row.get(1),
        n: row.get::<_, Option<i64>>(2).unwrap_or(-1),
        status: row.get(3),
        output: row.get(4),
        class: row.get(5),
        ended: row.get(6),
    };
    Ok(rows.iter().map(execution).collect())
}

pub(super) async fn done(client: &Client) -> anyhow::Result<Done> {
    let sql = "SELECT execution, node, iteration, (extract(epoch FROM min(at)) * 1000000)::bigint, count(*)
                 FROM chaos_done GROUP BY execution, node, iteration";
    let rows = client.query(sql, &[]).await.context("read what was completed")?;
    let count = |row: &Row| usize::try_from(row.get::<_, i64>(4)).unwrap_or_default();
    Ok(rows.iter().map(|row| (node_row_key(row, 0), (row.get(3), count(row)))).collect())
}

pub(super) async fn wait_facts(client: &Client) -> anyhow::Result<Vec<WaitFact>> {
    let sql = "SELECT execution, node, iteration, (extract(epoch FROM at) * 1000000)::bigint, what = 'handed', kind = \
        'TASK', task,
                      attempt, claim FROM chaos_wait ORDER BY seq";
    let rows = client.query(sql, &[]).await.context("read what happened to the waits")?;
    let wait_fact = |row: &Row| WaitFact {
        at: row.get(3),
        step: if row.get(4) { Step::Handed } else { Step::Answered },
        is_task: row.get(5),
        task: row.get(6),
        node: node_row_key(row, 0),
        attempt: row.get(7),
        claim: row.get(8),
    };
    Ok(rows.iter().map(wait_fact).collect())
}

/// Waits that are still open although their execution has ended.
pub(super) async fn waits_left(client: &Client) -> anyhow::Result<i64> {
    let sql = "SELECT count(*) FROM workflow_execution_wait a JOIN workflow_execution e ON e.id = a.execution_id
                WHERE a.status IN ('OPEN', 'CLAIMED') AND e.completed_at IS NOT NULL";
    Ok(client.query_one(sql, &[]).await.context("count the open waits")?.get(0))
}

fn node_row_key(row: &Row, at: usize) -> NodeRowKey {
    NodeRowKey { execution: row.get(at), node: row.get(at + 1), iteration: row.get(at + 2) }
}
