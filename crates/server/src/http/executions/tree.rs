//! What belongs to an execution: the child executions that its nodes created, and the iterations of its loops.
//!
//! Invariants
//! - Child executions and iterations are listed in pages, in a fixed order, the oldest first. So a loop with ten
//!   thousand iterations never makes a response of that size.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::ids::{ExecutionId, NodeKey};
use store::execution::{Execution, NodeRecord};
use store::run::child::TreeMember;

use super::{find, node_of};
use crate::http::auth::Caller;
use crate::http::body::{Id, Params};
use crate::http::{Api, Code, Problem, page};
use crate::wire::{self, ExecutionTree, Page, TreeExecution};

/// Lists the child executions of an execution, the oldest first.
#[utoipa::path(get, path = "/workflow/executions/{id}/children", tag = "executions",
    params(("id" = ExecutionId, Path), page::PageParams),
    responses((status = 200, body = Page<TreeExecution>)))]
pub(crate) async fn children(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<page::PageParams>,
) -> Result<Reply<Page<TreeExecution>>, Problem> {
    find(&api, &caller, id).await?;
    let (limit, after) = params.page(page::ListKind::Children, page::uuid_of)?;
    let after = after.map(ExecutionId);
    let rows = api.store.children(id, after, limit + 1).await?;
    let cursor = |row: &TreeMember| page::write(page::ListKind::Children, row.execution.0.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, item)))
}

/// The largest number of executions below a root that are shown.
const MOST: usize = 1_000;

/// The tree of an execution: its root, and all executions below the root, at most 1,000.
#[utoipa::path(get, path = "/workflow/executions/{id}/tree", tag = "executions", params(("id" = ExecutionId, Path)),
    responses((status = 200, body = ExecutionTree)))]
pub(crate) async fn tree(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<Reply<ExecutionTree>, Problem> {
    let root = find(&api, &caller, id).await?.root;
    let mut members = api.store.tree(root, i64::try_from(MOST + 1).unwrap_or(i64::MAX)).await?;
    let more = members.len() > MOST + 1;
    members.truncate(MOST + 1);
    Ok(Reply(ExecutionTree { root_execution_id: root, items: members.into_iter().map(item).collect(), more }))
}

/// The iterations of a loop, in their order.
pub(super) async fn iterations(
    api: &Api,
    execution: &Execution,
    node: Option<&str>,
    (limit, cursor): (Option<i64>, Option<&str>),
    payloads: bool,
) -> Result<wire::ExecutionNodes, Problem> {
    let node = node.map(NodeKey::new).transpose();
    let node = node.map_err(|bad| Problem::new(Code::ValidationFailed, format!("node: {bad}")))?;
    let node =
        node.ok_or_else(|| Problem::new(Code::ValidationFailed, "node: required with iterations=true; name the loop"))?;
    let limit = page::limit(limit)?;
    let after =
        page::read(page::ListKind::Iterations, cursor, |bytes| Some(i32::from_be_bytes(bytes.try_into().ok()?)))?;
    let after = after.unwrap_or(0);
    let kind = super::item_kind(api, execution, &node).await?;
    let found = api.store.iteration_records(execution.id, &node, after, limit + 1, payloads).await?;
    let cursor = |row: &NodeRecord| page::write(page::ListKind::Iterations, &row.iteration.to_be_bytes());
    let Page { items, next_cursor } = page::cut(found, limit, cursor, |row| node_of(kind.clone(), row));
    Ok(wire::ExecutionNodes { items, next_cursor })
}

fn item(member: TreeMember) -> TreeExecution {
    let parent = member.parent.as_ref();
    TreeExecution {
        execution_id: member.execution,
        parent_execution_id: parent.map(|parent| parent.execution),
        node: parent.map(|parent| parent.node.to_string()),
        iteration: parent.map(|parent| parent.iteration),
        attempt: parent.map(|parent| parent.attempt),
        depth: member.depth,
        workflow_definition_id: member.definition,
        workflow_name: member.definition_name,
        status: member.status,
        error: member.error,
        created_at: member.created_at,
        started_at: member.started_at,
        completed_at: member.completed_at,
        duration_ms: member.duration_ms,
    }
}
