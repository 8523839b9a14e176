//! Bindings: which events create a job, and which workflow runs the job.
//!
//! Invariants
//! - A key of a workspace binds events of its workspace to definitions of its workspace. Only a root key binds events
//!   of the platform, which belong to no workspace.
//!
//! Not here: bindings that a definition declares with `on: event` (publishing the definition creates them).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::event::binding::{self, Rule};
use kernel::ids::{DefinitionId, WorkspaceId};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::problem::{no_such, renamed};
use super::{Api, Code, Problem, definition_lookup, page};
use crate::wire::{Binding, BindingFields, ChangeBinding, CreateBinding, Page};

/// Creates a binding: each event of this type creates a job.
///
/// Without `workspaceId`, a root key binds the events of the platform, which belong to no workspace.
#[utoipa::path(post, path = "/bindings", tag = "bindings", request_body = CreateBinding,
    responses((status = 201, body = Binding)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateBinding>,
) -> Result<impl IntoResponse, Problem> {
    let workspace = caller.listed_workspace(body.workspace_id)?;
    if let Some(workspace) = workspace {
        api.store.workspace(workspace).await.map_err(no_such("workspace"))?;
    }
    let event_type = body.event_type.clone();
    let (definition, rule) = read(&api, &caller, workspace, event_type, body.into()).await?;
    let id = api.store.bind(workspace, definition, &rule, &caller.actor).await?;
    Ok((StatusCode::CREATED, Reply(wire(api.store.binding(id, caller.workspace).await?))))
}

/// Lists bindings. A root key sees those of all workspaces and of the platform.
#[utoipa::path(get, path = "/bindings", tag = "bindings", params(page::WorkspaceListParams),
    responses((status = 200, body = Page<Binding>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::WorkspaceListParams>,
) -> Result<Reply<Page<Binding>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Bindings, page::uuid_of)?;
    let rows = api.store.bindings(caller.listed_workspace(params.workspace_id)?, after, limit + 1).await?;
    let cursor = |row: &store::event::binding::Binding| page::write(page::ListKind::Bindings, row.id.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Reads a binding.
#[utoipa::path(get, path = "/bindings/{id}", tag = "bindings", params(("id" = Uuid, Path)),
    responses((status = 200, body = Binding)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Binding>, Problem> {
    Ok(Reply(wire(api.store.binding(id, caller.workspace).await.map_err(no_such("binding"))?)))
}

/// Changes the given fields of a binding.
///
/// An omitted field keeps its value; null resets it. Pending jobs follow the changed binding.
#[utoipa::path(patch, path = "/bindings/{id}", tag = "bindings", params(("id" = Uuid, Path)),
    request_body = ChangeBinding,
    responses((status = 200, body = Binding)))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<ChangeBinding>,
) -> Result<Reply<Binding>, Problem> {
    let known = api.store.binding(id, caller.workspace).await.map_err(no_such("binding"))?;
    let fields = body.apply(fields(&known));
    let (definition, rule) = read(&api, &caller, known.workspace, known.rule.event_type.clone(), fields).await?;
    api.store
        .change_binding(&known, caller.workspace, definition, &rule, &caller.actor)
        .await
        .map_err(no_such("binding"))?;
    api.wakeups.jobs.notify_one();
    Ok(Reply(wire(api.store.binding(id, caller.workspace).await.map_err(no_such("binding"))?)))
}

/// Deletes a binding. Jobs that it created stay.
#[utoipa::path(delete, path = "/bindings/{id}", tag = "bindings", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.unbind(id, caller.workspace, &caller.actor).await.map_err(no_such("binding"))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn read(
    api: &Api,
    caller: &Caller,
    workspace: Option<WorkspaceId>,
    event_type: String,
    body: BindingFields,
) -> Result<(Option<DefinitionId>, Rule), Problem> {
    let rule = Rule {
        event_type,
        filter: body.filter,
        input: body.input,
        workflow_id: body.workflow_id,
        lease_s: body.lease_seconds,
    };
    let problems: Vec<_> = binding::check(&rule).into_iter().map(|problem| renamed(problem, &NAMES)).collect();
    if let Some(first) = problems.first() {
        let problem = Problem::new(Code::ValidationFailed, first.to_string());
        return Err(Problem { problems, ..problem });
    }
    let Some(id) = body.workflow_definition_id else {
        if rule.filter.is_some() || rule.input.is_some() || rule.workflow_id.is_some() {
            let detail = "filter, input and workflowId need a workflowDefinitionId: without a workflow, \
                external workers run the jobs";
            return Err(Problem::new(Code::ValidationFailed, detail));
        }
        return Ok((None, rule));
    };
    // A binding of the platform may name a definition of any workspace. The job runs in that workspace.
    let known = definition_lookup::find(api, caller, workspace, id).await?;
    Ok((Some(known.id), rule))
}

/// The fields of a stored binding that a change may name.
fn fields(binding: &store::event::binding::Binding) -> BindingFields {
    let rule = &binding.rule;
    BindingFields {
        workflow_definition_id: binding.definition,
        filter: rule.filter.clone(),
        input: rule.input.clone(),
        workflow_id: rule.workflow_id.clone(),
        lease_seconds: rule.lease_s,
    }
}

/// The fields whose name in the API is not the name in a definition.
const NAMES: [(&str, &str); 3] =
    [("/type", "/eventType"), ("/workflow_id", "/workflowId"), ("/lease_s", "/leaseSeconds")];

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
