//! What is below an execution: the children that its nodes made, and the iterations of its loops.
//!
//! Invariants
//! - Both are pages in a fixed order, oldest first: a loop of ten thousand is never one answer.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::ids::{ExecutionId, NodeKey};
use serde::Deserialize;
use store::execution::{Execution, NodeRecord};
use utoipa::IntoParams;

use super::{find, node_of};
use crate::http::auth::Caller;
use crate::http::body::{Id, Params};
use crate::http::{Api, Code, Problem, page};
use crate::wire::{self, Page};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Children {
    /// How many items.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// The executions that the nodes of this one made, oldest first.
#[utoipa::path(get, path = "/workflow/executions/{id}/children", tag = "executions", params(("id" = ExecutionId, Path), Children),
    responses((status = 200, body = Page<wire::Child>)))]
pub(crate) async fn children(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<Children>,
) -> Result<Reply<Page<wire::Child>>, Problem> {
    find(&api, &caller, id).await?;
    let limit = page::limit(params.limit)?;
    let after = page::read(page::List::Children, params.cursor.as_deref(), page::uuid_of)?.map(ExecutionId);
    let rows = api.store.children(id, after, limit + 1).await?;
    let cursor = |row: &store::child::Child| page::write(page::List::Children, row.execution.0.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, child_of)))
}

/// The iterations of a loop, in order.
pub(super) async fn iterations(
    api: &Api,
    execution: &Execution,
    node: Option<&str>,
    (limit, cursor): (Option<i64>, Option<&str>),
    payloads: bool,
) -> Result<wire::Nodes, Problem> {
    let node = node.map(NodeKey::new).transpose();
    let node = node.map_err(|bad| Problem::new(Code::ValidationFailed, format!("node: {bad}")))?;
    let node = node.ok_or_else(|| Problem::new(Code::ValidationFailed, "node: which loop's iterations"))?;
    let limit = page::limit(limit)?;
    let after = page::read(page::List::Iterations, cursor, |bytes| Some(i32::from_be_bytes(bytes.try_into().ok()?)))?;
    let after = after.unwrap_or(0);
    let rows = api.store.iteration_records(execution.id, &node, after, limit + 1, payloads).await?;
    let kind = super::item_kind(api, execution, &node).await?;
    let cursor = |row: &NodeRecord| page::write(page::List::Iterations, &row.iteration.to_be_bytes());
    let Page { items, next_cursor } = page::page(rows, limit, cursor, |row| node_of(kind.clone(), row));
    Ok(wire::Nodes { items, next_cursor })
}

fn child_of(child: store::child::Child) -> wire::Child {
    wire::Child {
        execution_id: child.execution,
        node: child.node,
        iteration: child.iteration,
        attempt: child.attempt,
        workflow_definition_id: child.definition,
        workflow_name: child.definition_name,
        status: child.status,
        error: child.error,
        depth: child.depth,
        created_at: child.created_at,
        started_at: child.started_at,
        completed_at: child.completed_at,
        duration_ms: child.duration_ms,
    }
}
