//! Bindings: which events make a job, and what runs it.
//!
//! Invariants
//! - A workspace's key binds its own events to its own definitions; only a root key binds for the whole platform.
//!
//! Not here: what a definition binds by itself (`on: event`, at publishing).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::event::binding::{self, Rule};
use kernel::ids::{DefinitionId, WorkspaceId};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::workspaces::not_found;
use super::{Api, Code, Problem, absent, page};
use crate::wire::{Binding, ChangeBinding, CreateBinding, Page};

/// Binds a type of events, of a workspace or with a root key of the whole platform.
#[utoipa::path(post, path = "/bindings", tag = "bindings", request_body = CreateBinding,
    responses((status = 201, body = Binding)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateBinding>,
) -> Result<impl IntoResponse, Problem> {
    let workspace = caller.sees(body.workspace_id)?;
    if let Some(workspace) = workspace {
        api.store.workspace(workspace).await.map_err(not_found)?;
    }
    let event_type = body.event_type.clone();
    let (definition, rule) = read(&api, &caller, workspace, event_type, body.into()).await?;
    let id = api.store.bind(workspace, definition, &rule, &caller.actor).await?;
    Ok((StatusCode::CREATED, Reply(wire(api.store.binding(id, caller.workspace).await?))))
}

/// Bindings; with a root key of all workspaces and of the platform.
#[utoipa::path(get, path = "/bindings", tag = "bindings", params(page::OfWorkspace),
    responses((status = 200, body = Page<Binding>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::OfWorkspace>,
) -> Result<Reply<Page<Binding>>, Problem> {
    let (limit, after) = params.page(page::List::Bindings, page::uuid_of)?;
    let rows = api.store.bindings(caller.sees(params.workspace_id)?, after, limit + 1).await?;
    let cursor = |row: &store::event::binding::Binding| page::write(page::List::Bindings, row.id.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// One binding.
#[utoipa::path(get, path = "/bindings/{id}", tag = "bindings", params(("id" = Uuid, Path)),
    responses((status = 200, body = Binding)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Binding>, Problem> {
    Ok(Reply(wire(api.store.binding(id, caller.workspace).await.map_err(unknown)?)))
}

/// Changes what becomes of a type's jobs; those that wait go the new way.
#[utoipa::path(put, path = "/bindings/{id}", tag = "bindings", params(("id" = Uuid, Path)),
    request_body = ChangeBinding,
    responses((status = 200, body = Binding)))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<ChangeBinding>,
) -> Result<Reply<Binding>, Problem> {
    let known = api.store.binding(id, caller.workspace).await.map_err(unknown)?;
    let (definition, rule) = read(&api, &caller, known.workspace, known.rule.event_type, body).await?;
    api.store.rebind(id, caller.workspace, definition, &rule, &caller.actor).await.map_err(unknown)?;
    api.wakes.jobs.notify_one();
    Ok(Reply(wire(api.store.binding(id, caller.workspace).await.map_err(unknown)?)))
}

/// Takes a binding away. Jobs that it made stay.
#[utoipa::path(delete, path = "/bindings/{id}", tag = "bindings", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.unbind(id, caller.workspace, &caller.actor).await.map_err(unknown)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn read(
    api: &Api,
    caller: &Caller,
    workspace: Option<WorkspaceId>,
    event_type: String,
    body: ChangeBinding,
) -> Result<(Option<DefinitionId>, Rule), Problem> {
    let rule = Rule {
        event_type,
        filter: body.filter,
        input: body.input,
        workflow_id: body.workflow_id,
        lease_s: body.lease_seconds,
    };
    let problems: Vec<_> = binding::check(&rule).into_iter().map(named).collect();
    if let Some(first) = problems.first() {
        let problem = Problem::new(Code::ValidationFailed, first.to_string());
        return Err(Problem { problems, ..problem });
    }
    let Some(id) = body.workflow_definition_id else {
        if rule.filter.is_some() || rule.input.is_some() || rule.workflow_id.is_some() {
            let detail = "workflowDefinitionId: without one nothing of ours looks at filter, input and workflowId";
            return Err(Problem::new(Code::ValidationFailed, detail));
        }
        return Ok((None, rule));
    };
    // A binding of the platform may lead to any workspace's definition; it runs there.
    let known = absent::definition(api, caller, workspace, id).await?;
    Ok((Some(known.id), rule))
}

/// A problem of a rule, at the name that its field has on the wire.
fn named(problem: kernel::definition::parse::Problem) -> kernel::definition::parse::Problem {
    let pointer = match problem.pointer.as_str() {
        "/type" => "/eventType".to_owned(),
        "/workflow_id" => "/workflowId".to_owned(),
        "/lease_s" => "/leaseSeconds".to_owned(),
        other => other.to_owned(),
    };
    kernel::definition::parse::Problem::new(problem.code, pointer, problem.message)
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("binding"),
        other => other.into(),
    }
}

fn wire(binding: store::event::binding::Binding) -> Binding {
    Binding {
        id: binding.id,
        workspace_id: binding.workspace,
        event_type: binding.rule.event_type,
        workflow_definition_id: binding.definition,
        workflow_name: binding.definition_name,
        built_in: binding.built_in,
        by_definition: binding.by_definition,
        filter: binding.rule.filter,
        input: binding.rule.input,
        workflow_id: binding.rule.workflow_id,
        lease_seconds: binding.rule.lease_s.unwrap_or_default(),
        created_at: binding.created_at,
        updated_at: binding.updated_at,
    }
}
