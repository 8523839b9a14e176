//! Drawings of graphs: the graph of a version, and that of an execution with the statuses of its nodes.
//!
//! Invariants
//! - All formats have the same content. The parameter `format` chooses the format, else the `Accept` header does, else
//!   the format is JSON.
//! - A picture runs no script and loads nothing, wherever it is opened: its content security policy allows only the
//!   style sheet inside it.
//! - The layout is computed on another thread, so that a large graph does not delay other requests.
//!
//! Not here: layout and drawing (`kernel::draw`).

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use kernel::definition::parse;
use kernel::draw::{Drawing, Format, NodeState, NodeStates, STYLE_HASH};
use kernel::ids::{DefinitionId, ExecutionId, Label, NodeKey, WorkspaceId};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::auth::Caller;
use super::body::{Id, Params};
use super::problem::no_such;
use super::{Api, Problem, definitions, executions, offload};
use crate::wire;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefinitionGraphParams {
    /// The format. Default: that of the `Accept` header, else JSON.
    #[param(inline)]
    format: Option<Format>,
    /// The number of the version. Default: the published version, or the latest one of a draft.
    #[param(minimum = 1)]
    version: Option<i32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecutionGraphParams {
    /// The format. Default: that of the `Accept` header, else JSON.
    #[param(inline)]
    format: Option<Format>,
}

/// Draws the graph of a definition: as data, or as a picture.
#[utoipa::path(get, path = "/workflow/definitions/{id}/graph", operation_id = "graph", tag = "definitions",
    params(("id" = DefinitionId, Path), DefinitionGraphParams),
    responses((status = 200, content(
        (wire::Graph = "application/json"),
        (String = "image/svg+xml",
            example = json!("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"forebay-graph\">…</svg>")),
        (String = "text/vnd.graphviz", example = json!("digraph \"order\" {…}")),
        (String = "text/plain", example = json!("●  check_stock  HTTP_REQUEST")),
    ))))]
pub(crate) async fn definition_graph(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
    Params(params): Params<DefinitionGraphParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = definitions::find(&api, &caller, id).await?;
    let graph = match params.version.or(known.published_number) {
        Some(number) => api.store.numbered_version(id, number).await.map_err(no_such("version"))?,
        None => api.store.latest_version(id).await?.1,
    };
    draw(known.workspace, graph, known.name, None, choose_format(params.format, &headers)).await
}

/// Draws the graph of an execution, with the statuses of its nodes and the edges that it took.
#[utoipa::path(get, path = "/workflow/executions/{id}/graph", operation_id = "graph", tag = "executions",
    params(("id" = ExecutionId, Path), ExecutionGraphParams),
    responses((status = 200, content(
        (wire::Graph = "application/json"),
        (String = "image/svg+xml",
            example = json!("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"forebay-graph\">…</svg>")),
        (String = "text/vnd.graphviz", example = json!("digraph \"order\" {…}")),
        (String = "text/plain", example = json!("✓  check_stock  HTTP_REQUEST  COMPLETED")),
    ))))]
pub(crate) async fn execution_graph(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<ExecutionGraphParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let graph = api.store.graphs(&[execution.version]).await?.pop().map(|(_, graph)| graph).unwrap_or_default();
    let nodes = executions::all_nodes(&api, &execution, false).await?;
    let standings = nodes.into_iter().filter_map(standing).collect();
    let name = execution.definition_name.unwrap_or_default();
    draw(execution.workspace, graph, name, Some(standings), choose_format(params.format, &headers)).await
}

fn standing(node: wire::ExecutionNode) -> Option<(NodeKey, NodeState)> {
    let took = node.label.as_deref().and_then(|label| Label::new(label).ok());
    let attempt = u32::try_from(node.attempt).unwrap_or_default();
    Some((NodeKey::new(&node.node).ok()?, NodeState { status: node.status, attempt, took }))
}

async fn draw(
    workspace: WorkspaceId,
    graph: Value,
    name: String,
    standings: Option<NodeStates>,
    format: Format,
) -> Result<Response, Problem> {
    let work = move || -> Result<String, Problem> {
        let (mut definition, plan) = parse::check_stored(&graph).map_err(|problems| definitions::invalid(&problems))?;
        definition.name = Some(name).filter(|name| !name.is_empty()).or(definition.name);
        Ok(Drawing::new(&definition, &plan, standings.as_ref()).render(format))
    };
    let drawn = offload::run(Some(workspace), work).await??;
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

/// The format of the response: that of the parameter, else the first known format in `Accept`, else JSON.
fn choose_format(format: Option<Format>, headers: &HeaderMap) -> Format {
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
            assert_eq!(choose_format(format, &headers), expected, "{accept}");
        }
        assert_eq!(choose_format(None, &HeaderMap::new()), Format::Json);
    }
}
