//! The rules for outbound calls that a workspace has beside the service's.
//!
//! Invariants
//! - Only a root key sets them: an entry of `allow` opens a host that is not public.
//! - What the service denies (`outbound.deny`) stays denied, whatever is set here.
//!
//! Not here: what an entry means, and where it is checked (`engine::outbound`).

use axum::extract::State;
use axum::{Extension, Json as Reply};
use engine::outbound::Rules;
use kernel::ids::WorkspaceId;

use super::auth::Caller;
use super::body::{Id, Json};
use super::workspaces::{not_found, visible};
use super::{Api, Code, Problem};
use crate::wire::OutboundRules;

/// The most entries of one list.
const MOST: usize = 100;

/// The hosts that are opened to a workspace, and those it may not call, beside what the service allows and denies.
#[utoipa::path(get, path = "/workspaces/{id}/outbound", tag = "workspaces", operation_id = "outbound_get",
    params(("id" = WorkspaceId, Path)), responses((status = 200, body = OutboundRules)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<OutboundRules>, Problem> {
    visible(&caller, id)?;
    let store::access::outbound::Outbound { allow, deny } =
        api.store.workspace_outbound(id).await.map_err(not_found)?;
    Ok(Reply(OutboundRules { allow, deny }))
}

/// Replaces them; omitted lists are emptied. Needs a root key. Calls obey within five seconds.
#[utoipa::path(put, path = "/workspaces/{id}/outbound", tag = "workspaces", operation_id = "outbound_set",
    params(("id" = WorkspaceId, Path)), request_body = OutboundRules, responses((status = 200, body = OutboundRules)))]
pub(crate) async fn set(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Json(body): Json<OutboundRules>,
) -> Result<Reply<OutboundRules>, Problem> {
    visible(&caller, id)?;
    caller.root()?;
    if body.allow.len() > MOST || body.deny.len() > MOST {
        return Err(Problem::new(Code::ValidationFailed, format!("allow, deny: at most {MOST} entries each")));
    }
    let rules = Rules::parse(&body.allow, &body.deny);
    let rules = rules.map_err(|bad| Problem::new(Code::ValidationFailed, bad.to_string()))?;
    // As they are read, so that the same entry is stored in one way.
    let stored = store::access::outbound::Outbound {
        allow: rules.allow.iter().map(ToString::to_string).collect(),
        deny: rules.deny.iter().map(ToString::to_string).collect(),
    };
    api.store.set_workspace_outbound(id, &stored, &caller.actor).await.map_err(not_found)?;
    Ok(Reply(OutboundRules { allow: stored.allow, deny: stored.deny }))
}

/// Why a workspace may never call this URL, where the URL alone tells.
pub(crate) async fn refusal(api: &Api, workspace: WorkspaceId, url: &str) -> Result<Option<String>, Problem> {
    let stored = api.store.workspace_outbound(workspace).await.map_err(not_found)?;
    let own = Rules::parse(&stored.allow, &stored.deny).unwrap_or_default();
    let settings = &api.settings.outbound;
    let service = Rules { allow: settings.allow.clone(), deny: settings.deny.clone() };
    Ok(engine::outbound::refusal(&service, settings.allow_loopback, &own, url))
}
