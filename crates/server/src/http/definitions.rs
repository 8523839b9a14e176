//! Definitions: checked whole, stored as immutable versions, published.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::definition::parse;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::run::failure::Profiles;
use serde::Deserialize;
use store::definition::{NewVersion, StoredVersion, Which};
use utoipa::IntoParams;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::workspaces::check_name;
use super::{Api, Code, Problem, apart, page};
use crate::wire::{Applied, Definition, Diff, Page, Publish, SubmitDefinition, Validated, Version, WholeVersion};

list_params! {
    pub(crate) struct List {
        /// Exactly this name; with a root key it needs `workspaceId`.
        name: Option<String>,
        /// With a root key, only those of this workspace.
        workspace_id: Option<WorkspaceId>,
    }
}

/// Checks a document and stores nothing.
#[utoipa::path(post, path = "/workflow/definitions/validate", tag = "definitions", request_body = SubmitDefinition,
    responses((status = 200, body = Validated)))]
pub(crate) async fn validate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<SubmitDefinition>,
) -> Result<Reply<Validated>, Problem> {
    let profiles = api.settings.retry.profiles();
    let work = move || {
        let (definition, plan) = check(&body, &profiles)?;
        Ok(Validated {
            valid: true,
            nodes: plan.nodes().len(),
            edges: definition.edges.len(),
            content_hash: parse::content_hash(&definition),
        })
    };
    apart::run(caller.workspace, work).await?.map(Reply)
}

/// A new definition, a draft.
#[utoipa::path(post, path = "/workflow/definitions", tag = "definitions", request_body = SubmitDefinition,
    responses((status = 201, body = Applied)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<SubmitDefinition>,
) -> Result<impl IntoResponse, Problem> {
    let workspace = living(&api, &caller, body.workspace_id).await?;
    let (name, version) = read(&api, workspace, body).await?;
    let (id, stored) = api.store.create_definition(workspace, &name, &version, &caller.actor).await?;
    let applied = answer(&api, workspace, id, stored).await?;
    Ok((StatusCode::CREATED, Reply(applied)))
}

/// Creates a definition, or adds a version to the one of that name, and publishes it.
#[utoipa::path(post, path = "/workflow/definitions/apply", tag = "definitions", request_body = SubmitDefinition,
    responses((status = 200, body = Applied)))]
pub(crate) async fn apply(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<SubmitDefinition>,
) -> Result<Reply<Applied>, Problem> {
    let workspace = living(&api, &caller, body.workspace_id).await?;
    let (name, version) = read(&api, workspace, body).await?;
    let (id, stored) = match api.store.definition(Which::Name(&name), Some(workspace)).await {
        Ok(known) => {
            let stored = api.store.add_version(workspace, known.id, &version, &caller.actor).await?;
            if stored.unchanged && known.published_version == Some(stored.id) {
                return Ok(Reply(answer(&api, workspace, known.id, stored).await?));
            }
            (known.id, stored)
        }
        Err(store::Error::NotFound) => api.store.create_definition(workspace, &name, &version, &caller.actor).await?,
        Err(error) => return Err(error.into()),
    };
    api.store.publish(workspace, id, stored.id, &version, &caller.actor).await?;
    Ok(Reply(answer(&api, workspace, id, stored).await?))
}

/// A new version of a definition, not yet published.
#[utoipa::path(post, path = "/workflow/definitions/{id}/versions", tag = "definitions",
    params(("id" = DefinitionId, Path)),
    request_body = SubmitDefinition,
    responses((status = 201, body = Applied),
    (status = 200, body = Applied, description = "The same content is the latest version.")))]
pub(crate) async fn add_version(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Json(body): Json<SubmitDefinition>,
) -> Result<impl IntoResponse, Problem> {
    let known = find(&api, &caller, id).await?;
    caller.workspace(Some(body.workspace_id.unwrap_or(known.workspace)))?;
    let body = SubmitDefinition { name: Some(known.name.clone()), ..body };
    let (_, version) = read(&api, known.workspace, body).await?;
    let stored = api.store.add_version(known.workspace, id, &version, &caller.actor).await?;
    let status = if stored.unchanged { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Reply(answer(&api, known.workspace, id, stored).await?)))
}

/// Publishes the latest version: new executions pin it.
#[utoipa::path(post, path = "/workflow/definitions/{id}/publish", tag = "definitions",
    params(("id" = DefinitionId, Path)),
    request_body = Publish, responses((status = 200, body = Applied)))]
pub(crate) async fn publish(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Json(Publish {}): Json<Publish>,
) -> Result<Reply<Applied>, Problem> {
    let known = find(&api, &caller, id).await?;
    let (stored, graph) = api.store.latest_version(id).await?;
    let checked = apart::check_stored(Some(known.workspace), graph).await?;
    let (definition, _) = checked.map_err(|problems| invalid(&problems))?;
    let limits = new_version(api.settings.dispatch.max_attempts, &definition, None)?;
    api.store.publish(known.workspace, id, stored.id, &limits, &caller.actor).await?;
    Ok(Reply(answer(&api, known.workspace, id, stored).await?))
}

/// One definition.
#[utoipa::path(get, path = "/workflow/definitions/{id}", tag = "definitions", params(("id" = DefinitionId, Path)),
    responses((status = 200, body = Definition)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
) -> Result<Reply<Definition>, Problem> {
    Ok(Reply(wire(find(&api, &caller, id).await?)))
}

/// Definitions by workspace and name.
#[utoipa::path(get, path = "/workflow/definitions", tag = "definitions", params(List),
    responses((status = 200, body = Page<Definition>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<Definition>>, Problem> {
    let (limit, after) = params.page(page::List::Definitions, |bytes| {
        let (id, name) = bytes.split_at_checked(16)?;
        Some((WorkspaceId(page::uuid_of(id)?), page::text_of(name)?))
    })?;
    if let Some(name) = params.name {
        let workspace = caller.workspace(params.workspace_id)?;
        let items = match api.store.definition(Which::Name(&name), Some(workspace)).await {
            Ok(definition) => vec![wire(definition)],
            Err(store::Error::NotFound) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        return Ok(Reply(Page { items, next_cursor: None }));
    }
    let workspace = caller.sees(params.workspace_id)?;
    let after = after.as_ref().map(|(workspace, name)| (*workspace, name.as_str()));
    let rows = api.store.definitions(workspace, after, limit + 1).await?;
    let cursor = |row: &store::definition::Definition| {
        page::write(page::List::Definitions, &[row.workspace.0.as_bytes(), row.name.as_bytes()].concat())
    };
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// The versions of a definition, newest first.
#[utoipa::path(get, path = "/workflow/definitions/{id}/versions", tag = "definitions",
    params(("id" = DefinitionId, Path), page::Paging), responses((status = 200, body = Page<Version>)))]
pub(crate) async fn versions(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Params(params): Params<page::Paging>,
) -> Result<Reply<Page<Version>>, Problem> {
    let (limit, before) =
        params.page(page::List::Versions, |bytes| Some(i32::from_be_bytes(bytes.try_into().ok()?)))?;
    find(&api, &caller, id).await?;
    let rows = api.store.versions(id, before, limit + 1).await?;
    let cursor = |row: &store::definition::Version| page::write(page::List::Versions, &row.number.to_be_bytes());
    Ok(Reply(page::page(rows, limit, cursor, version)))
}

/// What differs between a version and another; `to` is the published one, or the latest of a draft, if not said.
#[utoipa::path(get, path = "/workflow/definitions/{id}/versions/{number}/diff", tag = "definitions",
    operation_id = "diff",
    params(("id" = DefinitionId, Path), ("number" = i32, Path, minimum = 1), DiffParams),
    responses((status = 200, body = Diff)))]
pub(crate) async fn diff(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((id, number)): Path<(String, String)>,
    Params(params): Params<DiffParams>,
) -> Result<Reply<Diff>, Problem> {
    let (known, from) = numbered(&api, &caller, &id, &number).await?;
    let to = match params.to.or(known.published_number) {
        Some(to) => to,
        None => api.store.latest_version(known.id).await?.0.number,
    };
    let (old, new) = (graph(&api, &known, from).await?, graph(&api, &known, to).await?);
    let changes = apart::run(Some(known.workspace), move || kernel::definition::diff::diff(&old, &new)).await?;
    Ok(Reply(Diff { from, to, changes }))
}

/// One version whole: its graph, and the text it was read from.
#[utoipa::path(get, path = "/workflow/definitions/{id}/versions/{number}", tag = "definitions",
    operation_id = "version",
    params(("id" = DefinitionId, Path), ("number" = i32, Path, minimum = 1)),
    responses((status = 200, body = WholeVersion)))]
pub(crate) async fn whole_version(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((id, number)): Path<(String, String)>,
) -> Result<Reply<WholeVersion>, Problem> {
    let (known, number) = numbered(&api, &caller, &id, &number).await?;
    let (graph, source) = api.store.numbered_source(known.id, number).await.map_err(no_version)?;
    Ok(Reply(WholeVersion { version: number, graph, source }))
}

/// A definition that the caller sees, and a number in a path.
async fn numbered(
    api: &Api,
    caller: &Caller,
    id: &str,
    number: &str,
) -> Result<(store::definition::Definition, i32), Problem> {
    let id = id.parse().map(DefinitionId).map_err(|_| Problem::not_found("definition"))?;
    let number = number.parse().map_err(|_| Problem::not_found("version"))?;
    Ok((find(api, caller, id).await?, number))
}

async fn graph(
    api: &Api,
    known: &store::definition::Definition,
    number: i32,
) -> Result<kernel::definition::Definition, Problem> {
    let graph = api.store.numbered_version(known.id, number).await.map_err(no_version)?;
    let checked = apart::check_stored(Some(known.workspace), graph).await?;
    checked.map(|(definition, _)| definition).map_err(|problems| invalid(&problems))
}

fn no_version(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("version"),
        other => other.into(),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffParams {
    /// The other version's number.
    #[param(minimum = 1)]
    to: Option<i32>,
}

fn version(row: store::definition::Version) -> Version {
    Version {
        id: row.id,
        version: row.number,
        published: row.published,
        content_hash: row.content_hash,
        timeout_ms: row.timeout_ms,
        created_at: row.created_at,
    }
}

async fn living(api: &Api, caller: &Caller, named: Option<WorkspaceId>) -> Result<WorkspaceId, Problem> {
    let workspace = caller.workspace(named)?;
    api.store.workspace(workspace).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("workspace"),
        other => other.into(),
    })?;
    Ok(workspace)
}

pub(crate) async fn find(
    api: &Api,
    caller: &Caller,
    id: DefinitionId,
) -> Result<store::definition::Definition, Problem> {
    api.store.definition(Which::Id(id), caller.workspace).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("definition"),
        other => other.into(),
    })
}

fn check(
    body: &SubmitDefinition,
    profiles: &Profiles,
) -> Result<(kernel::definition::Definition, kernel::definition::plan::Plan), Problem> {
    let checked = match (&body.document, &body.source) {
        (Some(document), _) => parse::check_by(document, profiles),
        (None, Some(source)) => parse::check_text_by(source, profiles),
        (None, None) => {
            let detail = "give the definition as document (JSON), or as source (text, YAML or JSON)";
            return Err(Problem::new(Code::ValidationFailed, detail));
        }
    };
    checked.map_err(|problems| invalid(&problems))
}

pub(crate) fn invalid(problems: &[parse::Problem]) -> Problem {
    let detail = match problems {
        [only] => only.to_string(),
        many => format!("the definition has {} problems", many.len()),
    };
    Problem { problems: problems.to_vec(), ..Problem::new(Code::DefinitionInvalid, detail) }
}

async fn read(api: &Api, workspace: WorkspaceId, body: SubmitDefinition) -> Result<(String, NewVersion), Problem> {
    let (max_attempts, profiles) = (api.settings.dispatch.max_attempts, api.settings.retry.profiles());
    apart::run(Some(workspace), move || checked(&body, max_attempts, &profiles)).await?
}

fn checked(body: &SubmitDefinition, max_attempts: u32, profiles: &Profiles) -> Result<(String, NewVersion), Problem> {
    let (definition, _) = check(body, profiles)?;
    let name = definition.name.clone().or_else(|| body.name.clone()).ok_or_else(|| {
        Problem::new(Code::ValidationFailed, "the definition has no name: put `name:` at the top of the document")
    })?;
    check_name(&name)?;
    Ok((name, new_version(max_attempts, &definition, body.source.clone())?))
}

/// How often an engine may refuse its items is noted too; where the author does not say, the setting stands.
fn new_version(
    most: u32,
    definition: &kernel::definition::Definition,
    source: Option<String>,
) -> Result<NewVersion, Problem> {
    let small = |number: Option<u32>| number.and_then(|number| i32::try_from(number).ok());
    Ok(NewVersion {
        graph: serde_json::to_value(definition).map_err(|_| Problem::of(Code::Internal))?,
        content_hash: parse::content_hash(definition),
        source,
        timeout_ms: definition.timeout_ms.and_then(|timeout| i64::try_from(timeout).ok()),
        concurrency: small(definition.concurrency),
        key_concurrency: small(definition.key_concurrency),
        max_attempts: small(Some(definition.max_attempts.unwrap_or(most))),
    })
}

async fn answer(
    api: &Api,
    workspace: WorkspaceId,
    id: DefinitionId,
    stored: StoredVersion,
) -> Result<Applied, Problem> {
    let definition = wire(api.store.definition(Which::Id(id), Some(workspace)).await?);
    Ok(Applied { definition, version: stored.number, version_id: stored.id, unchanged: stored.unchanged })
}

pub(crate) fn wire(definition: store::definition::Definition) -> Definition {
    Definition {
        id: definition.id,
        workspace_id: definition.workspace,
        name: definition.name,
        status: definition.status,
        published_version: definition.published_number,
        published_version_id: definition.published_version,
        concurrency: definition.concurrency,
        key_concurrency: definition.key_concurrency,
        max_attempts: definition.max_attempts,
        created_at: definition.created_at,
        updated_at: definition.updated_at,
    }
}
