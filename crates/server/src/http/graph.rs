//! Graphs drawn: of a definition's version, and of an execution with how its nodes stand.
//!
//! Invariants
//! - Every form says the same; which one is the parameter's choice, then the `Accept` header's, then JSON.
//! - A picture runs nothing and loads nothing wherever it is opened: its policy allows its one style sheet.
//! - A large graph is laid out beside the threads that answer requests.
//!
//! Not here: how anything is drawn (`kernel::draw`).

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use kernel::definition::parse;
use kernel::draw::{Drawing, Format, STYLE_HASH, Standing, Standings};
use kernel::ids::{DefinitionId, ExecutionId, Label, NodeKey, WorkspaceId};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::auth::Caller;
use super::body::{Id, Params};
use super::{Api, Problem, apart, definitions, executions};
use crate::wire;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfDefinition {
    /// How to draw it; if not said, as the `Accept` header asks, else as JSON.
    #[param(inline)]
    format: Option<Format>,
    /// The number of the version; if not said, the published one, or the latest of a draft.
    #[param(minimum = 1)]
    version: Option<i32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfExecution {
    /// How to draw it; if not said, as the `Accept` header asks, else as JSON.
    #[param(inline)]
    format: Option<Format>,
}

/// A definition's graph, laid out: as data, or as a picture.
#[utoipa::path(get, path = "/workflow/definitions/{id}/graph", operation_id = "graph", tag = "definitions",
    params(("id" = DefinitionId, Path), OfDefinition),
    responses((status = 200, content(
        (wire::Graph = "application/json"),
        (String = "image/svg+xml",
            example = json!("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"forebay-graph\">…</svg>")),
        (String = "text/vnd.graphviz", example = json!("digraph \"order\" {…}")),
        (String = "text/plain", example = json!("●  check_stock  HTTP_REQUEST")),
    ))))]
pub(crate) async fn of_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Params(params): Params<OfDefinition>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = definitions::find(&api, &caller, id).await?;
    let graph = match params.version.or(known.published_number) {
        Some(number) => api.store.numbered_version(id, number).await.map_err(unknown)?,
        None => api.store.latest_version(id).await?.1,
    };
    draw(known.workspace, graph, known.name, None, chosen(params.format, &headers)).await
}

/// The graph that an execution runs, laid out, with how its nodes stand and which edges were taken.
#[utoipa::path(get, path = "/workflow/executions/{id}/graph", operation_id = "graph", tag = "executions",
    params(("id" = ExecutionId, Path), OfExecution),
    responses((status = 200, content(
        (wire::Graph = "application/json"),
        (String = "image/svg+xml",
            example = json!("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"forebay-graph\">…</svg>")),
        (String = "text/vnd.graphviz", example = json!("digraph \"order\" {…}")),
        (String = "text/plain", example = json!("✓  check_stock  HTTP_REQUEST  COMPLETED")),
    ))))]
pub(crate) async fn of_execution(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<OfExecution>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let graph = api.store.graphs(&[execution.version]).await?.pop().map(|(_, graph)| graph).unwrap_or_default();
    let nodes = executions::all_nodes(&api, &execution, false).await?;
    let standings = nodes.into_iter().filter_map(standing).collect();
    let name = execution.definition_name.unwrap_or_default();
    draw(execution.workspace, graph, name, Some(standings), chosen(params.format, &headers)).await
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("version"),
        other => other.into(),
    }
}

fn standing(node: wire::Node) -> Option<(NodeKey, Standing)> {
    let took = node.label.as_deref().and_then(|label| Label::new(label).ok());
    let attempt = u32::try_from(node.attempt).unwrap_or_default();
    Some((NodeKey::new(&node.node).ok()?, Standing { status: node.status, attempt, took }))
}

async fn draw(
    workspace: WorkspaceId,
    graph: Value,
    name: String,
    standings: Option<Standings>,
    format: Format,
) -> Result<Response, Problem> {
    let work = move || -> Result<String, Problem> {
        let (mut definition, plan) = parse::check_stored(&graph).map_err(|problems| definitions::invalid(&problems))?;
        definition.name = Some(name).filter(|name| !name.is_empty()).or(definition.name);
        Ok(Drawing::new(&definition, &plan, standings.as_ref()).render(format))
    };
    let drawn = apart::run(Some(workspace), work).await??;
    Ok(answer(drawn, format))
}

fn answer(drawn: String, format: Format) -> Response {
    let kind = match format {
        Format::Json => "application/json",
        Format::Svg => "image/svg+xml",
        Format::Dot => "text/vnd.graphviz; charset=utf-8",
        Format::Mermaid | Format::Text => "text/plain; charset=utf-8",
    };
    let policy = format!(
        "default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         sandbox"
    );
    let headers: [(HeaderName, String); 2] =
        [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, drawn).into_response()
}

/// The form that is asked for: the first that `Accept` names and there is, if no parameter says it.
fn chosen(format: Option<Format>, headers: &HeaderMap) -> Format {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut essences =
        accepted.flat_map(|value| value.split(',')).map(|one| one.split(';').next().unwrap_or_default().trim());
    let named = |essence: &str| match essence.to_ascii_lowercase().as_str() {
        "application/json" => Some(Format::Json),
        "image/svg+xml" => Some(Format::Svg),
        "text/vnd.graphviz" => Some(Format::Dot),
        "text/plain" => Some(Format::Text),
        _ => None,
    };
    format.or_else(|| essences.find_map(named)).unwrap_or(Format::Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_parameter_chooses_then_the_header() {
        let table = [
            (None, "", Format::Json),
            (None, "*/*", Format::Json),
            (None, "text/html, image/SVG+xml;q=0.9, application/json", Format::Svg),
            (None, "text/vnd.graphviz", Format::Dot),
            (None, "text/plain; charset=utf-8", Format::Text),
            (Some(Format::Mermaid), "image/svg+xml", Format::Mermaid),
        ];
        for (format, accept, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(chosen(format, &headers), expected, "{accept}");
        }
        assert_eq!(chosen(None, &HeaderMap::new()), Format::Json);
    }
}
