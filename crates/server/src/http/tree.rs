//! Trees: an execution with those that its nodes made.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::ids::ExecutionId;
use store::child::Member;

use super::auth::Caller;
use super::body::Id;
use super::{Api, Problem, executions};
use crate::wire::{Tree, TreeItem};

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
    let root = executions::find(&api, &caller, id).await?.root;
    let mut members = api.store.tree(root, i64::try_from(MOST + 1).unwrap_or(i64::MAX)).await?;
    let more = members.len() > MOST + 1;
    members.truncate(MOST + 1);
    Ok(Reply(Tree { root_id: root, items: members.into_iter().map(item).collect(), more }))
}

fn item(member: Member) -> TreeItem {
    let place = member.place.as_ref();
    TreeItem {
        execution_id: member.execution,
        parent_id: place.map(|place| place.parent),
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
