//! Domain events: appended once, read in order, and what became of folding them into jobs.
//!
//! Invariants
//! - An append is all or nothing, and repeatable by the events' ids. Dying before the commit leaves nothing; after it,
//!   the same call again is answered as the first was.
//! - Ids and streams are a workspace's: none of another's is met, taken or moved on. A derived id is known to nobody
//!   beforehand.
//! - The job of a bound event is there when the append is: the fold is part of it (`functions/shared/event.sql`). A
//!   transient error of the fold undoes the append, and is `Unavailable`.
//!
//! Not here: which events make jobs (`binding`), the jobs themselves (`job`).

pub mod binding;

use jiff::Timestamp;
use kernel::event;
use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::json::Json;
use crate::page::Paged;
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Params, Store};

/// How often an append that met another writer of its stream is tried again.
const TRIES: usize = 5;

/// An event to be appended.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub id: Uuid,
    /// The service derived `id` from what others may know: it is the seed of the stored id, which the database makes of
    /// it.
    pub derived: bool,
    pub workspace: Option<WorkspaceId>,
    pub stream_id: Uuid,
    pub stream_type: String,
    /// The version its stream must be at; none: whatever it is at.
    pub expected: Option<i32>,
    pub event_type: String,
    pub data: Value,
    pub metadata: Value,
}

/// An event that is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub id: Uuid,
    /// It was not there before.
    pub added: bool,
    pub sequence: i64,
    pub version: i32,
    pub created_at: Timestamp,
    /// A binding held for it, so it makes a job; none: not known of events that older builds appended.
    pub bound: Option<bool>,
}

/// An event as stored.
#[derive(Clone, Debug)]
pub struct Stored {
    pub workspace: Option<WorkspaceId>,
    pub sequence: i64,
    pub event: event::Event,
    /// A binding held for it when it was appended; none: not known, or a fact of the queue's own.
    pub bound: Option<bool>,
    /// Why it has no job although it is bound, and since when.
    pub trouble: Option<(String, Timestamp)>,
}

/// Which events. What is not said is not asked for.
#[derive(Clone, Debug, Default)]
pub struct Which<'a> {
    pub workspace: Option<WorkspaceId>,
    pub event_type: Option<&'a str>,
    pub stream_id: Option<Uuid>,
    pub stream_type: Option<&'a str>,
    /// Only those whose handling failed.
    pub failed: bool,
    pub before: Option<i64>,
}

impl Store {
    /// Appends events in order. A version that is not met is a conflict; so is an id that was used with other content.
    pub async fn append(&self, events: &[NewEvent]) -> Result<Vec<Appended>, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.append_once(events).await {
                // Somebody else wrote the same stream, or the same event, by plain SQL at this moment.
                Err(error) if met_a_writer(&error) && tries < TRIES => {}
                Err(error) if met_a_writer(&error) => {
                    return Err(Error::Conflict("others write the same stream at this moment".to_owned()));
                }
                Err(error) if error.refused_by("version_conflict") || error.refused_by("id_conflict") => {
                    return Err(Error::Conflict(error.told().unwrap_or_default()));
                }
                other => return other,
            }
        }
    }

    async fn append_once(&self, events: &[NewEvent]) -> Result<Vec<Appended>, Error> {
        let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
        let derived: Vec<bool> = events.iter().map(|event| event.derived).collect();
        let workspaces: Vec<Option<Uuid>> = events.iter().map(|event| event.workspace.map(|id| id.0)).collect();
        let streams: Vec<Uuid> = events.iter().map(|event| event.stream_id).collect();
        let stream_types: Vec<&str> = events.iter().map(|event| event.stream_type.as_str()).collect();
        let expected: Vec<Option<i32>> = events.iter().map(|event| event.expected).collect();
        let types: Vec<&str> = events.iter().map(|event| event.event_type.as_str()).collect();
        let data: Vec<&Value> = events.iter().map(|event| &event.data).collect();
        let metadata: Vec<&Value> = events.iter().map(|event| &event.metadata).collect();
        let rows = self
            .query(
                sql!("domain_events/append"),
                &[&ids, &derived, &workspaces, &streams, &stream_types, &expected, &types, &data, &metadata],
            )
            .await?;
        let appended = |row: &Row| {
            Ok(Appended {
                id: row.try_get("id")?,
                added: row.try_get("added")?,
                sequence: row.try_get("sequence")?,
                version: row.try_get("version")?,
                created_at: row.try_get("created")?,
                bound: row.try_get("bound")?,
            })
        };
        rows.iter().map(appended).collect()
    }

    /// Events, the newest first.
    pub async fn events(&self, which: &Which<'_>, limit: i64) -> Result<Paged<Stored>, Error> {
        let before = which.before.unwrap_or(i64::MAX);
        let Which { event_type, stream_id, stream_type, failed, .. } = which;
        let page: Params<'_> = &[&before, event_type, stream_id, stream_type, failed, &limit];
        let sql = match (which.workspace, failed, event_type) {
            (None, ..) => return self.paged(sql!("domain_events/list"), page, stored).await,
            (_, true, _) => sql!("domain_events/list_failed_of"),
            (_, _, Some(_)) => sql!("domain_events/list_of_type"),
            _ => sql!("domain_events/list_of"),
        };
        let workspace = which.workspace.map(|id| id.0);
        let of: Params<'_> = &[&workspace];
        self.paged(sql, &[page, of].concat(), stored).await
    }

    /// One event, if this workspace (none: any) may see it.
    pub async fn event(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Stored, Error> {
        let workspace = workspace.map(|id| id.0);
        match self.query(sql!("domain_events/get"), &[&id, &workspace]).await?.as_slice() {
            [] => Err(Error::NotFound),
            [one] => stored(one),
            _ => Err(Error::Conflict(
                "several workspaces have an event with this id: use a workspace's own key".to_owned(),
            )),
        }
    }

    /// Folds an event again whose handling failed; answers whether that went well. One that had not failed is a
    /// conflict.
    pub async fn retry_event(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<bool, Error> {
        let sequence = self.event(id, workspace).await?.sequence;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let folded: Option<bool> =
            transaction.query_one(sql!("domain_events/retry"), &[&sequence]).await?.try_get(0)?;
        let folded = folded.ok_or_else(|| Error::Conflict("the handling of this event did not fail".to_owned()))?;
        audit(&transaction, workspace, actor, "event.retry", "event", id, &json!({ "folded": folded })).await?;
        transaction.commit().await?;
        Ok(folded)
    }

    /// Folds again events whose stored error is transient, at most `most`; answers how many were settled.
    pub async fn fold_events(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("domain_events/fold"), &[&most]).await?.try_get(0)?)
    }

    /// Lets go of an event's error. One that has none is a conflict.
    pub async fn dismiss_event(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        let sequence = self.event(id, workspace).await?.sequence;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        if transaction.query_opt(sql!("domain_events/dismiss"), &[&sequence]).await?.is_none() {
            return Err(Error::Conflict("the handling of this event did not fail".to_owned()));
        }
        audit(&transaction, workspace, actor, "event.dismiss", "event", id, &json!({})).await?;
        Ok(transaction.commit().await?)
    }
}

fn met_a_writer(error: &Error) -> bool {
    error.refused_by("domain_events_stream") || error.refused_by("domain_events_id")
}

fn stored(row: &Row) -> Result<Stored, Error> {
    let error: Option<String> = row.try_get("processing_error")?;
    let event = event_of(row, row.try_get("id")?)?;
    Ok(Stored {
        workspace: row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId),
        sequence: row.try_get("sequence")?,
        event,
        bound: row.try_get("bound")?,
        trouble: error.zip(row.try_get("processing_failed_at")?),
    })
}

/// An event, without what was noted of it.
pub(crate) fn event_of(row: &Row, id: Uuid) -> Result<event::Event, tokio_postgres::Error> {
    Ok(event::Event {
        id,
        kind: row.try_get("event_type")?,
        data: row.try_get::<_, Json>("event_data")?.0,
        metadata: row.try_get::<_, Json>("event_metadata")?.0,
        stream_id: row.try_get("stream_id")?,
        stream_type: row.try_get("stream_type")?,
        stream_version: Some(row.try_get("stream_version")?),
        created_at: row.try_get("created_at")?,
    })
}
