//! Reads executions and their nodes, and requests cancellation.
//!
//! Not here: running them (`run`), accepting them (`queue::enqueue`).

pub mod list;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, NodeKey, ProcessId, VersionId, WorkspaceId};
use kernel::run::node;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::json::Json;
use crate::page::Paged;
use crate::run::{EndResult, end_result_of, uuids};
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// An execution for display.
#[derive(Clone, Debug)]
pub struct Execution {
    pub id: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub definition_name: Option<String>,
    pub version: VersionId,
    pub version_number: Option<i32>,
    pub status: execution::Status,
    pub engine: Option<String>,
    pub trigger: Value,
    pub input: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Value>,
    pub priority: i16,
    pub concurrency_key: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    pub deadline_at: Timestamp,
    pub cancel_requested_at: Option<Timestamp>,
    /// The execution that this one reruns.
    pub rerun_of: Option<ExecutionId>,
    /// The execution whose node made this one (None for a root), and the root of the tree (for a root, its own id).
    pub parent: Option<ExecutionId>,
    pub root: ExecutionId,
    pub parent_node: Option<String>,
    pub parent_iteration: Option<i32>,
    pub depth: i16,
    pub last_seq: i64,
}

/// A node of an execution for display.
#[derive(Clone, Debug)]
pub struct NodeRecord {
    pub node: String,
    pub iteration: i32,
    pub status: node::Status,
    pub attempt: i32,
    pub label: Option<String>,
    pub input: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Value>,
    pub earlier: Option<Value>,
    pub next_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    /// The earlier execution whose result a rerun kept for this node; None if the node ran in this execution.
    pub kept_from: Option<ExecutionId>,
}

/// What a node logged, and how its attempts failed.
#[derive(Clone, Debug)]
pub struct LogEntry {
    pub node: String,
    pub iteration: i32,
    pub attempt: i32,
    pub message: Option<Value>,
    pub error: Option<Value>,
    pub earlier: Option<Value>,
    pub at: Option<Timestamp>,
}

/// The result of a cancellation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canceled {
    /// The execution had not begun, so this call ended it.
    AtOnce(EndResult),
    /// The execution is running. Its owner, if it has one, has to stop it.
    Requested(Option<ProcessId>),
    /// The execution had already ended.
    AlreadyEnded,
}

impl Store {
    /// One execution, if this workspace (None: any) may see it.
    pub async fn execution(&self, id: ExecutionId, workspace: Option<WorkspaceId>) -> Result<Execution, Error> {
        let workspace = workspace.map(|workspace| workspace.0);
        execution_of(&self.one(sql!("workflow_execution/get"), &[&id.0, &workspace]).await?)
    }

    /// The executions with these ids, of any workspace; unknown ids are left out.
    pub async fn some_executions(&self, ids: &[ExecutionId]) -> Result<Vec<Execution>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.query(sql!("workflow_execution/some"), &[&uuids(ids)]).await?;
        rows.iter().map(execution_of).collect()
    }

    /// The status of an execution.
    pub async fn execution_status(
        &self,
        id: ExecutionId,
        workspace: Option<WorkspaceId>,
    ) -> Result<execution::Status, Error> {
        let workspace = workspace.map(|workspace| workspace.0);
        let row = self.one(sql!("workflow_execution/status"), &[&id.0, &workspace]).await?;
        parsed(&row, "status", execution::Status::parse)
    }

    /// The status of some executions; unknown ids are left out.
    pub async fn execution_statuses(
        &self,
        ids: &[ExecutionId],
    ) -> Result<BTreeMap<ExecutionId, execution::Status>, Error> {
        let rows = self.query(sql!("workflow_execution/statuses"), &[&uuids(ids)]).await?;
        let status = |row: &Row| Ok((ExecutionId(row.try_get(0)?), parsed(row, "status", execution::Status::parse)?));
        rows.iter().map(status).collect()
    }

    /// The nodes of an execution that have begun or settled, with input and output. Loops come without their
    /// iterations.
    pub async fn nodes(&self, id: ExecutionId) -> Result<Vec<NodeRecord>, Error> {
        self.list_nodes(id, true).await
    }

    /// The nodes of an execution that have begun or settled, with inputs and outputs only if `payloads` is set.
    pub async fn list_nodes(&self, id: ExecutionId, payloads: bool) -> Result<Vec<NodeRecord>, Error> {
        let rows = self.query(sql!("workflow_execution_node/list"), &[&id.0, &payloads, &None::<&str>, &0_i64]).await?;
        rows.iter().map(node_of).collect()
    }

    /// A page of nodes after the first `skip`; if `node` is given, only that node.
    pub async fn nodes_page(
        &self,
        id: ExecutionId,
        payloads: bool,
        node: Option<&str>,
        skip: i64,
    ) -> Result<Paged<NodeRecord>, Error> {
        self.paged(sql!("workflow_execution_node/list"), &[&id.0, &payloads, &node, &skip], node_of).await
    }

    /// The iterations of a loop after a given one, in order.
    pub async fn iteration_records(
        &self,
        id: ExecutionId,
        node: &NodeKey,
        after: i32,
        limit: i64,
        payloads: bool,
    ) -> Result<Paged<NodeRecord>, Error> {
        let sql = sql!("workflow_execution_node/list_iterations");
        self.paged(sql, &[&id.0, &node.as_str(), &after, &limit, &payloads], node_of).await
    }

    /// A page of logs after the first `skip`: messages of nodes that log, and all errors.
    pub async fn logs(
        &self,
        id: ExecutionId,
        (logging, loops): (&[&str], &[&str]),
        skip: i64,
        limit: i64,
    ) -> Result<Paged<LogEntry>, Error> {
        let entry = |row: &Row| {
            Ok(LogEntry {
                node: row.try_get("node")?,
                iteration: row.try_get("iteration")?,
                attempt: row.try_get("attempt")?,
                message: row.try_get("message")?,
                error: row.try_get("error")?,
                earlier: row.try_get("earlier")?,
                at: row.try_get("at")?,
            })
        };
        self.paged(sql!("workflow_execution_node/logs"), &[&id.0, &logging, &loops, &skip, &limit], entry).await
    }

    /// Ends an execution of this workspace that has not begun, or requests the cancellation of a running one. The audit
    /// row is written in the same commit. Repeatable. The row is locked, so the execution cannot begin between the
    /// check and the change.
    pub async fn cancel(&self, id: ExecutionId, workspace: WorkspaceId, actor: &str) -> Result<Canceled, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let root = transaction.query_opt(sql!("workflow_execution/lock_root"), &[&id.0, &workspace.0]).await?;
        let row = transaction.query_opt(sql!("workflow_execution/lock"), &[&id.0, &workspace.0]).await?;
        let canceled = match parsed(&row.ok_or(Error::NotFound)?, "status", execution::Status::parse)? {
            execution::Status::Pending => {
                let (from, outcome) = (execution::Status::Pending.name(), execution::Status::Canceled.name());
                let nothing = vec![None::<Value>];
                let row = transaction
                    .query_one(
                        sql!("workflow_execution/complete"),
                        &[&vec![id.0], &vec![outcome], &nothing, &nothing, &vec![None::<Uuid>], &from, &actor],
                    )
                    .await?;
                Canceled::AtOnce(end_result_of(&row)?)
            }
            execution::Status::Running => {
                let sql = sql!("workflow_execution/request_cancel");
                let row = transaction.query_one(sql, &[&id.0, &workspace.0]).await?;
                let mut owner: Option<Uuid> = row.try_get(0)?;
                if let Some(root) = root {
                    let root: Uuid = root.try_get(0)?;
                    let woken = transaction.query_opt(sql!("workflow_execution/wake_root"), &[&root]).await?;
                    owner = owner.or(woken.map(|row| row.try_get(0)).transpose()?.flatten());
                }
                Canceled::Requested(owner.map(ProcessId))
            }
            _ => return Ok(Canceled::AlreadyEnded),
        };
        let detail = None::<Value>;
        transaction
            .execute(sql!("activity/add"), &[&workspace.0, &actor, &"execution.cancel", &"execution", &id.0, &detail])
            .await?;
        transaction.commit().await?;
        Ok(canceled)
    }

    /// Appends to the audit log.
    pub async fn add_activity(
        &self,
        workspace: Option<WorkspaceId>,
        actor: &str,
        action: &str,
        subject_type: &str,
        subject: Uuid,
        detail: Option<&Value>,
    ) -> Result<(), Error> {
        let workspace = workspace.map(|workspace| workspace.0);
        self.execute(sql!("activity/add"), &[&workspace, &actor, &action, &subject_type, &subject, &detail])
            .await
            .map(drop)
    }
}

fn execution_of(row: &Row) -> Result<Execution, Error> {
    Ok(Execution {
        id: ExecutionId(row.try_get("id")?),
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        definition_name: row.try_get("definition_name")?,
        version: VersionId(row.try_get("version_id")?),
        version_number: row.try_get("version_number")?,
        status: parsed(row, "status", execution::Status::parse)?,
        engine: row.try_get("engine")?,
        trigger: row.try_get::<_, Json>("trigger")?.0,
        input: row.try_get::<_, Option<Json>>("input")?.map(|input| input.0),
        output: row.try_get("output")?,
        error: row.try_get("error")?,
        priority: row.try_get("priority")?,
        concurrency_key: row.try_get("concurrency_key")?,
        created_at: row.try_get("created_at")?,
        started_at: row.try_get("started_at")?,
        completed_at: row.try_get("completed_at")?,
        duration_ms: row.try_get("duration_ms")?,
        deadline_at: row.try_get("deadline_at")?,
        cancel_requested_at: row.try_get("cancel_requested_at")?,
        rerun_of: row.try_get::<_, Option<Uuid>>("rerun_of")?.map(ExecutionId),
        parent: row.try_get::<_, Option<Uuid>>("parent")?.map(ExecutionId),
        root: ExecutionId(row.try_get("root")?),
        parent_node: row.try_get("parent_node")?,
        parent_iteration: row.try_get("parent_iteration")?,
        depth: row.try_get("depth")?,
        last_seq: row.try_get("last_seq")?,
    })
}

fn node_of(row: &Row) -> Result<NodeRecord, Error> {
    Ok(NodeRecord {
        node: row.try_get("node")?,
        iteration: row.try_get("iteration")?,
        status: parsed(row, "status", node::Status::parse)?,
        attempt: row.try_get("attempt")?,
        label: row.try_get("label")?,
        input: row.try_get("input")?,
        output: row.try_get("output")?,
        error: row.try_get("error")?,
        earlier: row.try_get("earlier")?,
        next_at: row.try_get("next_at")?,
        started_at: row.try_get("started_at")?,
        completed_at: row.try_get("completed_at")?,
        duration_ms: row.try_get("duration_ms")?,
        kept_from: row.try_get::<_, Option<Uuid>>("kept_from")?.map(ExecutionId),
    })
}
