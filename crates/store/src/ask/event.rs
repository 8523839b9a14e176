//! Events that may be what a wait waits for: noted by whoever came second, judged in order, and forgotten.
//!
//! Invariants
//! - None is missed: an event notes itself with the waits that its writer sees, and a wait notes the events that it sees when it opens and
//!   once more when every transaction of that moment is over (`functions/ask.sql`).
//! - Judging may be repeated: a candidate is dropped after what it led to is stored.
//!
//! Not here: what must hold of an event (`kernel`), when to judge (`server`).

use kernel::event::Event;
use kernel::ids::ExecutionId;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{Place, Told, place_of};
use crate::sql::sql;
use crate::{Error, Store};

/// An event to be judged for a wait.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: i64,
    pub place: Place,
    /// What must hold of it; none: nothing.
    pub matches: Option<String>,
    pub event: Event,
}

impl Store {
    /// Looks for events once more for the waits that are due for it; answers for how many.
    pub async fn look_for_events(&self, limit: i32) -> Result<i64, Error> {
        Ok(self.one(sql!("workflow_execution_ask/look"), &[&limit]).await?.try_get("looked")?)
    }

    /// Events to be judged, in order. What belongs to no open wait is forgotten first.
    pub async fn candidates(&self, limit: i32) -> Result<Vec<Candidate>, Error> {
        self.query(sql!("workflow_execution_candidate/place"), &[&limit]).await?;
        let rows = self.query(sql!("workflow_execution_candidate/next"), &[&i64::from(limit)]).await?;
        rows.iter().map(candidate_of).collect()
    }

    /// The item that a loop's iteration is about.
    pub async fn item_of(&self, place: &Place) -> Result<Value, Error> {
        let Place { execution, node, iteration } = place;
        let rows = self.query(sql!("workflow_execution_node/item"), &[&execution.0, &node.as_str(), iteration]).await?;
        Ok(rows.first().map(|row| row.try_get::<_, Option<Value>>("item")).transpose()?.flatten().unwrap_or_default())
    }

    /// Answers an open wait with an event.
    pub async fn answer_with_event(&self, place: &Place, event: &Value) -> Result<Told, Error> {
        self.answer_with(place, None, None, event, ("event", true)).await
    }

    /// Forgets candidates that were judged.
    pub async fn drop_candidates(&self, ids: &[i64]) -> Result<u64, Error> {
        self.execute(sql!("workflow_execution_candidate/drop"), &[&ids]).await
    }
}

fn candidate_of(row: &Row) -> Result<Candidate, Error> {
    let execution = ExecutionId(row.try_get::<_, Uuid>("execution_id")?);
    let event = Event {
        id: row.try_get("id")?,
        kind: row.try_get("event_type")?,
        data: row.try_get("event_data")?,
        metadata: row.try_get("event_metadata")?,
        stream_id: row.try_get("stream_id")?,
        stream_type: row.try_get("stream_type")?,
        stream_version: Some(row.try_get("stream_version")?),
        created_at: row.try_get("created_at")?,
    };
    Ok(Candidate {
        id: row.try_get("candidate")?,
        place: place_of(row, execution)?,
        matches: row.try_get("match")?,
        event,
    })
}
