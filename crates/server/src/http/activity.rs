//! The activity log: who did what, to which resource, and when.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use store::activity::{ActivityCursor, ActivityFilter};
use uuid::Uuid;

use super::auth::Caller;
use super::body::Params;
use super::page::list_params;
use super::{Api, Problem, page};
use crate::wire::{ActivityEntry, Page};

list_params! {
    /// What to list of the activity log.
    pub(crate) struct ListActivityParams {
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
        /// List only entries about the resource with this id.
        subject: Option<Uuid>,
        /// List only entries of exactly this actor: `root`, `key:ID` or `sql:ROLE`.
        actor: Option<String>,
        /// List only entries at this time or later.
        after: Option<Timestamp>,
        /// List only entries before this time.
        before: Option<Timestamp>,
    }
}

/// Lists the activity log, the newest entry first.
///
/// With `actor`, a page searches at most 2,000 entries. It may have fewer items than `limit`, or none, and still have a
/// `nextCursor`: follow it to search on.
#[utoipa::path(get, path = "/activity", tag = "activity", params(ListActivityParams),
    responses((status = 200, body = Page<ActivityEntry>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListActivityParams>,
) -> Result<Reply<Page<ActivityEntry>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Activity, cursor_of)?;
    let filter = ActivityFilter {
        workspace: caller.listed_workspace(params.workspace_id)?,
        subject: params.subject,
        actor: params.actor,
        from: params.after,
        until: params.before,
        after,
        limit,
    };
    let (entries, next) = api.store.activity(&filter).await?;
    let next_cursor = next.map(|next| {
        let mut bytes = page::timed(next.at, next.id.to_be_bytes());
        bytes.extend_from_slice(next.execution.as_bytes());
        page::write(page::ListKind::Activity, &bytes)
    });
    Ok(Reply(Page { items: entries.into_iter().map(wire).collect(), next_cursor }))
}

fn cursor_of(bytes: &[u8]) -> Option<ActivityCursor> {
    let (place, execution) = bytes.split_at_checked(16)?;
    let place = page::time_cursor_of(place, i64::from_be_bytes)?;
    Some(ActivityCursor { at: place.at, id: place.id, execution: page::uuid_of(execution)? })
}

fn wire(entry: store::activity::ActivityEntry) -> ActivityEntry {
    ActivityEntry {
        id: entry.id,
        at: entry.at,
        workspace_id: entry.workspace,
        actor: entry.actor,
        action: entry.action,
        subject_type: entry.subject_type,
        subject_id: entry.subject,
        detail: entry.detail,
    }
}
