//! Workspaces: the tenants, and their limits.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::ids::WorkspaceId;
use kernel::workspace::{check_backlog, check_limit, check_name, check_weight};
use store::workspace::{MAX_COUNTED, NewWorkspace, WorkspaceChange};

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::problem::{check_field, no_such};
use super::{Api, Code, Problem, page};
use crate::wire::{BoundedCount, Capacity, ChangeWorkspace, CreateWorkspace, Page, WaitingCounts, Workspace};

const DEFAULT_TIER: &str = "FREE";
const DEFAULT_WEIGHT: i16 = 1;

list_params! {
    pub(crate) struct ListWorkspacesParams {
        /// List only the workspace with this exact name.
        name: Option<String>,
    }
}

/// Creates a workspace. Needs a root key.
#[utoipa::path(post, path = "/workspaces", tag = "workspaces", request_body = CreateWorkspace,
    responses((status = 201, body = Workspace)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateWorkspace>,
) -> Result<impl IntoResponse, Problem> {
    caller.require_root()?;
    check_field("name", Some(body.name.as_str()), check_name)?;
    check_numbers(body.limit, body.weight, body.max_backlog)?;
    let new = NewWorkspace {
        id: WorkspaceId(store::new_id()),
        name: body.name,
        tier: body.tier.unwrap_or_else(|| DEFAULT_TIER.to_owned()),
        limit_override: body.limit,
        weight: body.weight.unwrap_or(DEFAULT_WEIGHT),
        max_backlog: body.max_backlog,
    };
    api.store.create_workspace(&new, &caller.actor).await.map_err(|error| unknown_tier(error, Some(&new.tier)))?;
    let workspace = api.store.workspace(new.id).await?;
    Ok((StatusCode::CREATED, Reply(wire(workspace))))
}

/// Lists workspaces by name. A key of a workspace sees only its own.
#[utoipa::path(get, path = "/workspaces", tag = "workspaces", params(ListWorkspacesParams),
    responses((status = 200, body = Page<Workspace>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListWorkspacesParams>,
) -> Result<Reply<Page<Workspace>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Workspaces, page::text_of)?;
    if let Some(own) = caller.workspace {
        let workspace = wire(api.store.workspace(own).await?);
        let items = if params.name.is_none_or(|name| name == workspace.name) { vec![workspace] } else { Vec::new() };
        return Ok(Reply(Page { items, next_cursor: None }));
    }
    if let Some(name) = params.name {
        let items = match api.store.workspace_named(&name).await {
            Ok(id) => vec![wire(api.store.workspace(id).await?)],
            Err(store::Error::NotFound) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        return Ok(Reply(Page { items, next_cursor: None }));
    }
    let rows = api.store.workspaces(after.as_deref().unwrap_or_default(), limit + 1).await?;
    let cursor = |row: &store::workspace::Workspace| page::write(page::ListKind::Workspaces, row.name.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Reads a workspace, with its current usage.
#[utoipa::path(get, path = "/workspaces/{id}", tag = "workspaces", params(("id" = WorkspaceId, Path)),
    responses((status = 200, body = Workspace)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<Workspace>, Problem> {
    visible(&caller, id)?;
    Ok(Reply(wire(api.store.workspace(id).await.map_err(no_such("workspace"))?)))
}

/// The capacity of a workspace: its slots, and its waiting executions. Counts stop at 1,000.
#[utoipa::path(get, path = "/workspaces/{id}/capacity", tag = "workspaces", params(("id" = WorkspaceId, Path)),
    responses((status = 200, body = Capacity)))]
pub(crate) async fn capacity(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<Capacity>, Problem> {
    visible(&caller, id)?;
    let found = api.store.capacity(id).await.map_err(no_such("workspace"))?;
    let counted = |count: i64| BoundedCount { count: count.min(MAX_COUNTED), more: count > MAX_COUNTED };
    Ok(Reply(Capacity {
        workspace_id: id,
        limit: found.limit,
        running: counted(found.running),
        free: (i64::from(found.limit) - found.running).max(0),
        paused: found.paused,
        waiting: WaitingCounts {
            ready: counted(found.ready),
            delayed: counted(found.delayed),
            key: counted(found.waits_for_key),
            definition: counted(found.waits_for_definition),
        },
        oldest_waiting_seconds: found.oldest_s.map(|age| age.max(0.0)),
        failed: counted(found.failed),
    }))
}

/// Changes the tier and the limits of a workspace. Needs a root key.
///
/// An omitted field keeps its value; null resets it.
#[utoipa::path(patch, path = "/workspaces/{id}", tag = "workspaces", params(("id" = WorkspaceId, Path)),
    request_body = ChangeWorkspace, responses((status = 200, body = Workspace)))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Json(body): Json<ChangeWorkspace>,
) -> Result<Reply<Workspace>, Problem> {
    visible(&caller, id)?;
    caller.require_root()?;
    let ChangeWorkspace { tier, limit, weight, max_backlog } = body;
    check_numbers(limit.flatten(), weight.flatten(), max_backlog.flatten())?;
    let change = WorkspaceChange {
        tier: tier.map(|tier| tier.unwrap_or_else(|| DEFAULT_TIER.to_owned())),
        limit_override: limit,
        weight: weight.map(|weight| weight.unwrap_or(DEFAULT_WEIGHT)),
        max_backlog,
    };
    let changed = api.store.change_workspace(id, &change, &caller.actor).await;
    changed.map_err(|error| match error {
        store::Error::NotFound => no_such("workspace")(error),
        other => unknown_tier(other, change.tier.as_deref()),
    })?;
    // A higher limit lets waiting executions start.
    api.notifier.notify_ready(id);
    Ok(Reply(wire(api.store.workspace(id).await?)))
}

/// Refuses a workspace that this key may not see, as if it did not exist.
pub(crate) fn visible(caller: &Caller, id: WorkspaceId) -> Result<(), Problem> {
    match caller.workspace {
        Some(own) if own != id => Err(Problem::not_found("workspace")),
        _ => Ok(()),
    }
}

fn unknown_tier(error: store::Error, tier: Option<&str>) -> Problem {
    if error.refused_by("workspace_tier_fkey") {
        let tier = tier.unwrap_or_default();
        return Problem::new(
            Code::ValidationFailed,
            format!("tier: unknown tier {tier:?}; use FREE, PRO or ENTERPRISE"),
        );
    }
    error.into()
}

fn check_numbers(limit: Option<i32>, weight: Option<i16>, max_backlog: Option<i32>) -> Result<(), Problem> {
    check_field("maxBacklog", max_backlog, check_backlog)?;
    check_field("limit", limit, check_limit)?;
    check_field("weight", weight, check_weight)
}

pub(crate) fn wire(workspace: store::workspace::Workspace) -> Workspace {
    Workspace {
        id: workspace.id,
        name: workspace.name,
        tier: workspace.tier,
        limit: workspace.limit,
        limit_override: workspace.limit_override,
        weight: workspace.weight,
        max_backlog: workspace.max_backlog,
        paused: workspace.paused,
        running: workspace.running,
        ready: workspace.ready,
        created_at: workspace.created_at,
    }
}
