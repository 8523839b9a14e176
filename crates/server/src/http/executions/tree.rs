//! What is below an execution: the children that its nodes made, and the iterations of its loops.
//!
//! Invariants
//! - Both are pages in a fixed order, oldest first: a loop of ten thousand is never one answer.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::ids::{ExecutionId, NodeKey};
use store::execution::{Execution, NodeRecord};
use store::run::child::Member;

use super::{find, node_of};
use crate::http::auth::Caller;
use crate::http::body::{Id, Params};
use crate::http::{Api, Code, Problem, page};
use crate::wire::{self, Page, Tree, TreeItem};

/// The executions that the nodes of this one made, oldest first.
#[utoipa::path(get, path = "/workflow/executions/{id}/children", tag = "executions",
    params(("id" = ExecutionId, Path), page::Paging),
    responses((status = 200, body = Page<TreeItem>)))]
pub(crate) async fn children(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<page::Paging>,
) -> Result<Reply<Page<TreeItem>>, Problem> {
    find(&api, &caller, id).await?;
    let (limit, after) = params.page(page::List::Children, page::uuid_of)?;
    let after = after.map(ExecutionId);
    let rows = api.store.children(id, after, limit + 1).await?;
    let cursor = |row: &Member| page::write(page::List::Children, row.execution.0.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, item)))
}

/// The most executions below a root that are shown.
const MOST: usize = 1_000;

/// The tree that it belongs to: its root, and what was made below that.
#[utoipa::path(get, path = "/workflow/executions/{id}/tree", tag = "executions", params(("id" = ExecutionId, Path)),
    responses((status = 200, body = Tree)))]
pub(crate) async fn tree(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<Reply<Tree>, Problem> {
    let root = find(&api, &caller, id).await?.root;
    let mut members = api.store.tree(root, i64::try_from(MOST + 1).unwrap_or(i64::MAX)).await?;
    let more = members.len() > MOST + 1;
    members.truncate(MOST + 1);
    Ok(Reply(Tree { root_execution_id: root, items: members.into_iter().map(item).collect(), more }))
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
    let kind = super::item_kind(api, execution, &node).await?;
    let found = api.store.iteration_records(execution.id, &node, after, limit + 1, payloads).await?;
    let cursor = |row: &NodeRecord| page::write(page::List::Iterations, &row.iteration.to_be_bytes());
    let Page { items, next_cursor } = page::cut(found, limit, cursor, |row| node_of(kind.clone(), row));
    Ok(wire::Nodes { items, next_cursor })
}

fn item(member: Member) -> TreeItem {
    let place = member.place.as_ref();
    TreeItem {
        execution_id: member.execution,
        parent_execution_id: place.map(|place| place.parent),
        node: place.map(|place| place.node.to_string()),
        iteration: place.map(|place| place.iteration),
        attempt: place.map(|place| place.attempt),
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
