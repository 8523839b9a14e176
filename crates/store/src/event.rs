//! Domain events: appended once, read in order, and folded. To fold an event is to make the job for its binding.
//!
//! Invariants
//! - An append is all or nothing, and repeatable by the events' ids. A crash before the commit leaves nothing. After
//!   the commit, a repeated call gets the same answer as the first.
//! - Ids and streams belong to one workspace. An append never sees or changes events of another workspace.
//! - Nobody can predict a derived id.
//! - The job of a bound event is made in the same commit (`functions/shared/event.sql`). A transient error in the fold
//!   rolls the append back and is `Unavailable`.
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

/// How often an append is tried if other writers change its stream at the same time.
const TRIES: usize = 5;

/// An event to append.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub id: Uuid,
    /// The service derived `id` from public values, so `id` is only a seed: the database derives the stored id from the
    /// seed and a secret.
    pub derived: bool,
    pub workspace: Option<WorkspaceId>,
    pub stream_id: Uuid,
    pub stream_type: String,
    /// The version that its stream must have; None: any.
    pub expected: Option<i32>,
    pub event_type: String,
    pub data: Value,
    pub metadata: Value,
}

/// The result of appending one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub id: Uuid,
    /// False: the same event was stored before.
    pub added: bool,
    pub sequence: i64,
    pub version: i32,
    pub created_at: Timestamp,
    /// A binding applied to the event, so the event makes a job. None: unknown, because an older build appended the
    /// event.
    pub bound: Option<bool>,
}

/// A stored event.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    pub workspace: Option<WorkspaceId>,
    pub sequence: i64,
    pub event: event::DomainEvent,
    /// A binding applied when the event was appended. None: unknown, or the event is a fact about a job.
    pub bound: Option<bool>,
    /// Why the event has no job although it is bound: the fold's error, and when the fold failed.
    pub failure: Option<(String, Timestamp)>,
}

/// Which events to list. A field that is None adds no condition.
#[derive(Clone, Debug, Default)]
pub struct EventFilter<'a> {
    pub workspace: Option<WorkspaceId>,
    pub event_type: Option<&'a str>,
    pub stream_id: Option<Uuid>,
    pub stream_type: Option<&'a str>,
    /// Only events whose fold failed.
    pub failed: bool,
    pub before: Option<i64>,
}

impl Store {
    /// Appends events in order. If a stream does not have the expected version, or an id was used with other content,
    /// the result is a `Conflict`.
    pub async fn append(&self, events: &[NewEvent]) -> Result<Vec<Appended>, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.append_once(events).await {
                // Another program appended to the same stream, or appended the same event, with plain SQL at this
                // moment.
                Err(error) if lost_a_write_race(&error) && tries < TRIES => {}
                Err(error) if lost_a_write_race(&error) => {
                    return Err(Error::Conflict(
                        "other writers are appending to the same stream; try again".to_owned(),
                    ));
                }
                Err(error) if error.refused_by("version_conflict") || error.refused_by("id_conflict") => {
                    return Err(Error::Conflict(error.database_message().unwrap_or_default()));
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
    pub async fn events(&self, filter: &EventFilter<'_>, limit: i64) -> Result<Paged<StoredEvent>, Error> {
        let before = filter.before.unwrap_or(i64::MAX);
        let EventFilter { event_type, stream_id, stream_type, failed, .. } = filter;
        let page: Params<'_> = &[&before, event_type, stream_id, stream_type, failed, &limit];
        let sql = match (filter.workspace, failed, event_type) {
            (None, ..) => return self.paged(sql!("domain_events/list"), page, stored).await,
            (_, true, _) => sql!("domain_events/list_failed_of"),
            (_, _, Some(_)) => sql!("domain_events/list_of_type"),
            _ => sql!("domain_events/list_of"),
        };
        let workspace = filter.workspace.map(|id| id.0);
        let of: Params<'_> = &[&workspace];
        self.paged(sql, &[page, of].concat(), stored).await
    }

    /// One event, if this workspace (none: any) may see it.
    pub async fn event(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<StoredEvent, Error> {
        let workspace = workspace.map(|id| id.0);
        match self.query(sql!("domain_events/get"), &[&id, &workspace]).await?.as_slice() {
            [] => Err(Error::NotFound),
            [one] => stored(one),
            _ => Err(Error::Conflict(
                "several workspaces have an event with this id: use a key of one workspace".to_owned(),
            )),
        }
    }

    /// Folds an event again if its fold failed, and returns whether the fold succeeded. An event without an error is a
    /// `Conflict`.
    pub async fn retry_event(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<bool, Error> {
        let sequence = self.event(id, workspace).await?.sequence;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let folded: Option<bool> =
            transaction.query_one(sql!("domain_events/retry"), &[&sequence]).await?.try_get(0)?;
        let folded = folded.ok_or_else(|| Error::Conflict("this event has no error to retry".to_owned()))?;
        audit(&transaction, workspace, actor, "event.retry", "event", id, &json!({ "folded": folded })).await?;
        transaction.commit().await?;
        Ok(folded)
    }

    /// Folds events again whose stored error is transient, at most `most`. Returns how many of them were settled.
    pub async fn fold_events(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("domain_events/fold"), &[&most]).await?.try_get(0)?)
    }

    /// Clears an event's error. An event without an error is a `Conflict`.
    pub async fn dismiss_event(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        let sequence = self.event(id, workspace).await?.sequence;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        if transaction.query_opt(sql!("domain_events/dismiss"), &[&sequence]).await?.is_none() {
            return Err(Error::Conflict("this event has no error to dismiss".to_owned()));
        }
        audit(&transaction, workspace, actor, "event.dismiss", "event", id, &json!({})).await?;
        Ok(transaction.commit().await?)
    }
}

fn lost_a_write_race(error: &Error) -> bool {
    error.refused_by("domain_events_stream") || error.refused_by("domain_events_id")
}

fn stored(row: &Row) -> Result<StoredEvent, Error> {
    let error: Option<String> = row.try_get("processing_error")?;
    let event = event_of(row, row.try_get("id")?)?;
    Ok(StoredEvent {
        workspace: row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId),
        sequence: row.try_get("sequence")?,
        event,
        bound: row.try_get("bound")?,
        failure: error.zip(row.try_get("processing_failed_at")?),
    })
}

/// An event, without its error and binding.
pub(crate) fn event_of(row: &Row, id: Uuid) -> Result<event::DomainEvent, tokio_postgres::Error> {
    Ok(event::DomainEvent {
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
