//! The audit log: who did what to what, when.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use store::activity::{Entry, Filter};
use uuid::Uuid;

use super::auth::Caller;
use super::body::Params;
use super::page::list_params;
use super::{Api, Problem, page};
use crate::wire::{Activity, Page};

list_params! {
    pub(crate) struct List {
        /// With a root key, only what belongs to this workspace.
        workspace_id: Option<WorkspaceId>,
        /// The id of what it was done to.
        subject: Option<Uuid>,
        /// Who did it, exactly: `root`, `key:ID`, `sql:ROLE`.
        actor: Option<String>,
        /// At this time or later.
        after: Option<Timestamp>,
        /// Before this time.
        before: Option<Timestamp>,
    }
}

/// What was done, newest first.
///
/// A page that looks for an actor looks at 2,000 entries at most: it may hold fewer items than asked for, or none,
/// while `nextCursor` says that there is more to look at.
#[utoipa::path(get, path = "/activity", tag = "activity", params(List),
    responses((status = 200, body = Page<Activity>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<Activity>>, Problem> {
    let place = |bytes: &[u8]| page::place_of(bytes, i64::from_be_bytes);
    let (limit, after) = params.page(page::List::Activity, place)?;
    let filter = Filter {
        workspace: caller.sees(params.workspace_id)?,
        subject: params.subject,
        actor: params.actor,
        from: params.after,
        until: params.before,
        after,
        limit,
    };
    let (entries, next) = api.store.activity(&filter).await?;
    let next_cursor =
        next.map(|place| page::write(page::List::Activity, &page::timed(place.at, place.id.to_be_bytes())));
    Ok(Reply(Page { items: entries.into_iter().map(wire).collect(), next_cursor }))
}

fn wire(entry: Entry) -> Activity {
    Activity {
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
