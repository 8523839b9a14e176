//! Workspaces: who the tenants are, and what each may use.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::ids::WorkspaceId;
use serde::Deserialize;
use store::workspace::{Change, NewWorkspace};

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::{Api, Code, Problem};
use crate::wire::{ChangeWorkspace, CreateWorkspace, Page, Workspace};

/// The most items of one page.
const PAGE: i64 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    name: Option<String>,
    after: Option<WorkspaceId>,
    limit: Option<i64>,
}

pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateWorkspace>,
) -> Result<impl IntoResponse, Problem> {
    caller.root()?;
    check_name(&body.name)?;
    check_numbers(body.limit, body.weight, body.max_backlog)?;
    let new = NewWorkspace {
        id: WorkspaceId(store::new_id()),
        name: body.name,
        tier: body.tier.unwrap_or_else(|| "FREE".to_owned()),
        limit_override: body.limit,
        weight: body.weight.unwrap_or(1),
        max_backlog: body.max_backlog,
    };
    api.store.create_workspace(&new, &caller.actor).await.map_err(|error| unknown_tier(error, Some(&new.tier)))?;
    let workspace = api.store.workspace(new.id).await?;
    Ok((StatusCode::CREATED, Reply(wire(workspace))))
}

pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<Workspace>>, Problem> {
    if let Some(own) = caller.workspace {
        let workspace = wire(api.store.workspace(own).await?);
        let items = if params.name.is_none_or(|name| name == workspace.name) { vec![workspace] } else { Vec::new() };
        return Ok(Reply(Page { items, next: None }));
    }
    if let Some(name) = params.name {
        let items = match api.store.workspace_named(&name).await {
            Ok(id) => vec![wire(api.store.workspace(id).await?)],
            Err(store::Error::NotFound) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        return Ok(Reply(Page { items, next: None }));
    }
    let limit = params.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let items: Vec<Workspace> = api.store.workspaces(params.after, limit).await?.into_iter().map(wire).collect();
    let full = i64::try_from(items.len()).is_ok_and(|count| count == limit);
    let next = items.last().filter(|_| full).map(|last| last.id.to_string());
    Ok(Reply(Page { items, next }))
}

pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<Workspace>, Problem> {
    visible(&caller, id)?;
    Ok(Reply(wire(api.store.workspace(id).await.map_err(not_found)?)))
}

pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Json(body): Json<ChangeWorkspace>,
) -> Result<Reply<Workspace>, Problem> {
    visible(&caller, id)?;
    caller.root()?;
    check_numbers(body.limit.flatten(), body.weight, body.max_backlog.flatten())?;
    let ChangeWorkspace { tier, limit, weight, max_backlog } = body;
    let change = Change { tier, limit_override: limit, weight, max_backlog };
    let changed = api.store.change_workspace(id, &change, &caller.actor).await;
    changed.map_err(|error| match error {
        store::Error::NotFound => not_found(error),
        other => unknown_tier(other, change.tier.as_deref()),
    })?;
    // A raised limit has room for what waits.
    api.hints.ready(id);
    Ok(Reply(wire(api.store.workspace(id).await?)))
}

/// Another workspace's existence is nobody's business.
pub(crate) fn visible(caller: &Caller, id: WorkspaceId) -> Result<(), Problem> {
    match caller.workspace {
        Some(own) if own != id => Err(Problem::not_found("workspace")),
        _ => Ok(()),
    }
}

pub(crate) fn not_found(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("workspace"),
        other => other.into(),
    }
}

fn unknown_tier(error: store::Error, tier: Option<&str>) -> Problem {
    if error.refused_by("workspace_tier_fkey") {
        let tier = tier.unwrap_or_default();
        return Problem::new(Code::ValidationFailed, format!("there is no tier {tier:?}: use FREE, PRO or ENTERPRISE"));
    }
    error.into()
}

pub(crate) fn check_name(name: &str) -> Result<(), Problem> {
    let fine = (1..=200).contains(&name.chars().count()) && !name.chars().any(char::is_control) && name.trim() == name;
    if fine {
        Ok(())
    } else {
        let detail = "name: 1 to 200 characters, no control characters, no space at either end";
        Err(Problem::new(Code::ValidationFailed, detail))
    }
}

fn check_numbers(limit: Option<i32>, weight: Option<i16>, max_backlog: Option<i32>) -> Result<(), Problem> {
    if max_backlog.is_some_and(|most| most < 0) {
        return Err(Problem::new(Code::ValidationFailed, "maxBacklog: 0 or more"));
    }
    if limit.is_some_and(|limit| !(0..=100_000).contains(&limit)) {
        return Err(Problem::new(Code::ValidationFailed, "limit: 0 to 100000"));
    }
    if weight.is_some_and(|weight| !(1..=100).contains(&weight)) {
        return Err(Problem::new(Code::ValidationFailed, "weight: 1 to 100"));
    }
    Ok(())
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
