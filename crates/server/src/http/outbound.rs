//! The rules for outbound calls of a workspace, in addition to those of the service.
//!
//! Invariants
//! - Only a root key sets the rules of a workspace, because an entry of `allow` permits calls to a private address.
//! - A host that the service denies (`outbound.deny`) stays denied.
//!
//! Not here: what an entry matches, and the check of a call (`engine::outbound`).

use axum::extract::State;
use axum::{Extension, Json as Reply};
use engine::outbound::HostRules;
use kernel::ids::WorkspaceId;

use super::auth::Caller;
use super::body::{Id, Json};
use super::problem::no_such;
use super::workspaces::visible;
use super::{Api, Code, Problem};
use crate::wire::OutboundRules;

/// The largest number of entries of one list.
const MOST: usize = 100;

/// Reads the outbound rules of a workspace: hosts that it may or may not call, in addition to the rules of the service.
#[utoipa::path(get, path = "/workspaces/{id}/outbound", tag = "workspaces", operation_id = "outbound_get",
    params(("id" = WorkspaceId, Path)), responses((status = 200, body = OutboundRules)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<OutboundRules>, Problem> {
    visible(&caller, id)?;
    let store::access::outbound::Outbound { allow, deny } =
        api.store.workspace_outbound(id).await.map_err(no_such("workspace"))?;
    Ok(Reply(OutboundRules { allow, deny }))
}

/// Replaces the outbound rules of a workspace. Needs a root key.
///
/// An omitted list becomes empty. The rules apply within five seconds.
#[utoipa::path(put, path = "/workspaces/{id}/outbound", tag = "workspaces", operation_id = "outbound_set",
    params(("id" = WorkspaceId, Path)), request_body = OutboundRules, responses((status = 200, body = OutboundRules)))]
pub(crate) async fn set(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Json(body): Json<OutboundRules>,
) -> Result<Reply<OutboundRules>, Problem> {
    visible(&caller, id)?;
    caller.require_root()?;
    if body.allow.len() > MOST || body.deny.len() > MOST {
        return Err(Problem::new(
            Code::ValidationFailed,
            format!("allow, deny: must have at most {MOST} entries each"),
        ));
    }
    let rules = HostRules::parse(&body.allow, &body.deny);
    let rules = rules.map_err(|bad| Problem::new(Code::ValidationFailed, bad.to_string()))?;
    // Entries are stored in their normal form.
    let stored = store::access::outbound::Outbound {
        allow: rules.allow.iter().map(ToString::to_string).collect(),
        deny: rules.deny.iter().map(ToString::to_string).collect(),
    };
    api.store.set_workspace_outbound(id, &stored, &caller.actor).await.map_err(no_such("workspace"))?;
    Ok(Reply(OutboundRules { allow: stored.allow, deny: stored.deny }))
}

/// Why a workspace may not call this URL. None: the URL is allowed; the addresses of its host are checked at each call.
pub(crate) async fn refusal(api: &Api, workspace: WorkspaceId, url: &str) -> Result<Option<String>, Problem> {
    let stored = api.store.workspace_outbound(workspace).await.map_err(no_such("workspace"))?;
    let own = HostRules::parse(&stored.allow, &stored.deny).unwrap_or_default();
    let settings = &api.settings.outbound;
    let service = HostRules { allow: settings.allow.clone(), deny: settings.deny.clone() };
    Ok(engine::outbound::refusal(&service, settings.allow_loopback, &own, url))
}
