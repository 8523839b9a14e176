//! Definitions: checking documents, storing them as immutable versions, publishing versions.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::definition::parse;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::run::failure::Profiles;
use kernel::workspace::check_name;
use serde::Deserialize;
use store::definition::{DefinitionRef, NewVersion, StoredVersion};
use utoipa::IntoParams;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::problem::{check_field, no_such};
use super::{Api, Code, Problem, offload, page};
use crate::wire::{
    AppliedDefinition, Definition, Page, PublishDefinition, SubmitDefinition, ValidatedDefinition, VersionDiff,
    VersionDocument, VersionListItem,
};

list_params! {
    pub(crate) struct ListDefinitionsParams {
        /// List only the definition with this exact name. With a root key it needs `workspaceId`.
        name: Option<String>,
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
    }
}

/// Checks a document without storing it.
#[utoipa::path(post, path = "/workflow/definitions/validate", tag = "definitions", request_body = SubmitDefinition,
    responses((status = 200, body = ValidatedDefinition)))]
pub(crate) async fn validate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<SubmitDefinition>,
) -> Result<Reply<ValidatedDefinition>, Problem> {
    let profiles = api.settings.retry.profiles();
    let work = move || {
        let (definition, plan) = check(&body, &profiles)?;
        Ok(ValidatedDefinition {
            valid: true,
            nodes: plan.nodes().len(),
            edges: definition.edges.len(),
            content_hash: parse::content_hash(&definition),
        })
    };
    offload::run(caller.workspace, work).await?.map(Reply)
}

/// Creates a definition as a draft. It accepts starts after it is published.
#[utoipa::path(post, path = "/workflow/definitions", tag = "definitions", request_body = SubmitDefinition,
    responses((status = 201, body = AppliedDefinition)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<SubmitDefinition>,
) -> Result<impl IntoResponse, Problem> {
    let workspace = existing_workspace(&api, &caller, body.workspace_id).await?;
    let (name, version) = read(&api, workspace, body).await?;
    let (id, stored) = api.store.create_definition(workspace, &name, &version, &caller.actor).await?;
    let applied = answer(&api, workspace, id, stored).await?;
    Ok((StatusCode::CREATED, Reply(applied)))
}

/// Creates a definition, or adds a version to the definition of that name, and publishes it.
#[utoipa::path(post, path = "/workflow/definitions/apply", tag = "definitions", request_body = SubmitDefinition,
    responses((status = 200, body = AppliedDefinition)))]
pub(crate) async fn apply(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<SubmitDefinition>,
) -> Result<Reply<AppliedDefinition>, Problem> {
    let workspace = existing_workspace(&api, &caller, body.workspace_id).await?;
    let (name, version) = read(&api, workspace, body).await?;
    let (id, stored) = match api.store.definition(DefinitionRef::Name(&name), Some(workspace)).await {
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

/// Adds a version to a definition without publishing it.
#[utoipa::path(post, path = "/workflow/definitions/{id}/versions", tag = "definitions",
    params(("id" = DefinitionId, Path)),
    request_body = SubmitDefinition,
    responses((status = 201, body = AppliedDefinition),
    (status = 200, body = AppliedDefinition, description = "The latest version already has this content; no version \
         was added.")))]
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

/// Publishes the latest version. New executions run it; running ones keep their version.
#[utoipa::path(post, path = "/workflow/definitions/{id}/publish", tag = "definitions",
    params(("id" = DefinitionId, Path)),
    request_body = PublishDefinition, responses((status = 200, body = AppliedDefinition)))]
pub(crate) async fn publish(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Json(PublishDefinition {}): Json<PublishDefinition>,
) -> Result<Reply<AppliedDefinition>, Problem> {
    let known = find(&api, &caller, id).await?;
    let (stored, graph) = api.store.latest_version(id).await?;
    let checked = offload::check_stored(Some(known.workspace), graph).await?;
    let (definition, _) = checked.map_err(|problems| invalid(&problems))?;
    let limits = new_version(api.settings.dispatch.max_attempts, &definition, None)?;
    api.store.publish(known.workspace, id, stored.id, &limits, &caller.actor).await?;
    Ok(Reply(answer(&api, known.workspace, id, stored).await?))
}

/// Reads a definition.
#[utoipa::path(get, path = "/workflow/definitions/{id}", tag = "definitions", params(("id" = DefinitionId, Path)),
    responses((status = 200, body = Definition)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
) -> Result<Reply<Definition>, Problem> {
    Ok(Reply(wire(find(&api, &caller, id).await?)))
}

/// Lists definitions, ordered by workspace and name.
#[utoipa::path(get, path = "/workflow/definitions", tag = "definitions", params(ListDefinitionsParams),
    responses((status = 200, body = Page<Definition>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListDefinitionsParams>,
) -> Result<Reply<Page<Definition>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Definitions, |bytes| {
        let (id, name) = bytes.split_at_checked(16)?;
        Some((WorkspaceId(page::uuid_of(id)?), page::text_of(name)?))
    })?;
    if let Some(name) = params.name {
        let workspace = caller.workspace(params.workspace_id)?;
        let items = match api.store.definition(DefinitionRef::Name(&name), Some(workspace)).await {
            Ok(definition) => vec![wire(definition)],
            Err(store::Error::NotFound) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        return Ok(Reply(Page { items, next_cursor: None }));
    }
    let workspace = caller.listed_workspace(params.workspace_id)?;
    let after = after.as_ref().map(|(workspace, name)| (*workspace, name.as_str()));
    let rows = api.store.definitions(workspace, after, limit + 1).await?;
    let cursor = |row: &store::definition::Definition| {
        page::write(page::ListKind::Definitions, &[row.workspace.0.as_bytes(), row.name.as_bytes()].concat())
    };
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Lists the versions of a definition, the newest first.
#[utoipa::path(get, path = "/workflow/definitions/{id}/versions", tag = "definitions",
    params(("id" = DefinitionId, Path), page::PageParams), responses((status = 200, body = Page<VersionListItem>)))]
pub(crate) async fn versions(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Params(params): Params<page::PageParams>,
) -> Result<Reply<Page<VersionListItem>>, Problem> {
    let (limit, before) =
        params.page(page::ListKind::Versions, |bytes| Some(i32::from_be_bytes(bytes.try_into().ok()?)))?;
    find(&api, &caller, id).await?;
    let rows = api.store.versions(id, before, limit + 1).await?;
    let cursor =
        |row: &store::definition::VersionSummary| page::write(page::ListKind::Versions, &row.number.to_be_bytes());
    Ok(Reply(page::page(rows, limit, cursor, version)))
}

/// Compares two versions of a definition.
#[utoipa::path(get, path = "/workflow/definitions/{id}/versions/{number}/diff", tag = "definitions",
    operation_id = "diff",
    params(("id" = DefinitionId, Path), ("number" = i32, Path, minimum = 1), DiffParams),
    responses((status = 200, body = VersionDiff)))]
pub(crate) async fn diff(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((id, number)): Path<(String, String)>,
    Params(params): Params<DiffParams>,
) -> Result<Reply<VersionDiff>, Problem> {
    let (known, from) = definition_and_number(&api, &caller, &id, &number).await?;
    let to = match params.to.or(known.published_number) {
        Some(to) => to,
        None => api.store.latest_version(known.id).await?.0.number,
    };
    let (old, new) = (graph(&api, &known, from).await?, graph(&api, &known, to).await?);
    let changes = offload::run(Some(known.workspace), move || kernel::definition::diff::diff(&old, &new)).await?;
    Ok(Reply(VersionDiff { from, to, changes }))
}

/// Reads a version: its graph, and the text that it was made from.
#[utoipa::path(get, path = "/workflow/definitions/{id}/versions/{number}", tag = "definitions",
    operation_id = "version",
    params(("id" = DefinitionId, Path), ("number" = i32, Path, minimum = 1)),
    responses((status = 200, body = VersionDocument)))]
pub(crate) async fn get_version(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((id, number)): Path<(String, String)>,
) -> Result<Reply<VersionDocument>, Problem> {
    let (known, number) = definition_and_number(&api, &caller, &id, &number).await?;
    let (graph, source) = api.store.numbered_source(known.id, number).await.map_err(no_such("version"))?;
    Ok(Reply(VersionDocument { version: number, graph, source }))
}

/// The path parameters of a version: the id of the definition, and the number of the version.
async fn definition_and_number(
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
    let graph = api.store.numbered_version(known.id, number).await.map_err(no_such("version"))?;
    let checked = offload::check_stored(Some(known.workspace), graph).await?;
    checked.map(|(definition, _)| definition).map_err(|problems| invalid(&problems))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiffParams {
    /// The version to compare with. Default: the published version, or the latest one of a draft.
    #[param(minimum = 1)]
    to: Option<i32>,
}

fn version(row: store::definition::VersionSummary) -> VersionListItem {
    VersionListItem {
        id: row.id,
        version: row.number,
        published: row.published,
        content_hash: row.content_hash,
        timeout_ms: row.timeout_ms,
        created_at: row.created_at,
    }
}

async fn existing_workspace(api: &Api, caller: &Caller, named: Option<WorkspaceId>) -> Result<WorkspaceId, Problem> {
    let workspace = caller.workspace(named)?;
    api.store.workspace(workspace).await.map_err(no_such("workspace"))?;
    Ok(workspace)
}

pub(crate) async fn find(
    api: &Api,
    caller: &Caller,
    id: DefinitionId,
) -> Result<store::definition::Definition, Problem> {
    api.store.definition(DefinitionRef::Id(id), caller.workspace).await.map_err(no_such("definition"))
}

fn check(
    body: &SubmitDefinition,
    profiles: &Profiles,
) -> Result<(kernel::definition::Definition, kernel::definition::plan::Plan), Problem> {
    let checked = match (&body.document, &body.source) {
        (Some(document), _) => parse::check_by(document, profiles),
        (None, Some(source)) => parse::check_text_by(source, profiles),
        (None, None) => {
            let detail = "the request has no definition: send it as document (JSON) or as source (YAML or JSON text)";
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
    offload::run(Some(workspace), move || checked(&body, max_attempts, &profiles)).await?
}

fn checked(body: &SubmitDefinition, max_attempts: u32, profiles: &Profiles) -> Result<(String, NewVersion), Problem> {
    let (definition, _) = check(body, profiles)?;
    let name = definition.name.clone().or_else(|| body.name.clone()).ok_or_else(|| {
        Problem::new(Code::ValidationFailed, "the definition has no name: add `name:` at the top of the document")
    })?;
    check_field("name", Some(name.as_str()), check_name)?;
    Ok((name, new_version(max_attempts, &definition, body.source.clone())?))
}

/// A version to store. Its `max_attempts` is the author's value, or else the value of the setting.
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
) -> Result<AppliedDefinition, Problem> {
    let definition = wire(api.store.definition(DefinitionRef::Id(id), Some(workspace)).await?);
    Ok(AppliedDefinition { definition, version: stored.number, version_id: stored.id, unchanged: stored.unchanged })
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
