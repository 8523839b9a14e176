//! Events that may be what a wait waits for: noted by whoever came second, judged in pages and in order, and forgotten.
//!
//! Invariants
//! - None is missed: an event notes itself if its writer sees a wait for its type, and a wait notes that events are to
//!   be looked at when it opens and once more when every transaction of that moment is over (`functions/ask.sql`).
//! - A note is one row, however many events or waits it leads to: they are read in pages (`functions/candidate.sql`).
//! - A page is one judge's for a while, and judging may be repeated: it counts as judged after what it led to is
//!   stored, whole or up to one of its candidates.
//! - An event that cannot be read is nobody's answer, and keeps nobody from theirs.
//!
//! Not here: what must hold of an event (`kernel`), when to judge (`server`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kernel::event::Event;
use kernel::ids::{ExecutionId, WorkspaceId};
use serde_json::Value;
use uuid::Uuid;

use super::{Place, Told, place_of};
use crate::event::event_of;
use crate::sql::sql;
use crate::{Error, Store};

/// An event to be judged for a wait.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub place: Place,
    /// What must hold of it; none: nothing.
    pub matches: Option<String>,
    pub event: Arc<Event>,
    /// Where it is in its page: the row that led to it, and of an event's row the wait.
    row: (i64, Option<Uuid>),
}

/// What one judge has to judge, in order.
#[derive(Clone, Debug)]
pub struct Page {
    /// Under which it is said to be judged.
    pub claim: Uuid,
    pub workspace: WorkspaceId,
    pub candidates: Vec<Candidate>,
    /// Events that could not be read, and why; no candidate is of one.
    pub unreadable: Vec<(Uuid, String)>,
}

impl Store {
    /// Looks for events once more for the waits that are due for it; answers for how many.
    pub async fn look_for_events(&self, limit: i32) -> Result<i64, Error> {
        Ok(self.one(sql!("workflow_execution_ask/look"), &[&limit]).await?.try_get("looked")?)
    }

    /// Takes what is to be judged of the workspace whose turn it is behind `after`, for `lease`; none if nothing is.
    pub async fn take_candidates(
        &self,
        after: Option<WorkspaceId>,
        limit: i32,
        lease: Duration,
    ) -> Result<Option<Page>, Error> {
        let after = after.map(|id| id.0);
        let rows =
            self.query(sql!("workflow_execution_candidate/take"), &[&after, &limit, &lease.as_secs_f64()]).await?;
        let Some(last) = rows.last() else { return Ok(None) };
        let (claim, workspace) = (last.try_get("claim")?, WorkspaceId(last.try_get("workspace")?));
        let mut pairs = Vec::new();
        for row in &rows {
            if let Some(event) = row.try_get::<_, Option<Uuid>>("event")? {
                let place = place_of(row, ExecutionId(row.try_get::<_, Uuid>("execution")?))?;
                let at = (row.try_get("candidate")?, row.try_get("wait")?);
                pairs.push((place, row.try_get("match")?, event, at));
            }
        }
        let (events, unreadable) = self.readable_events(workspace, pairs.iter().map(|pair| pair.2).collect()).await?;
        let candidates = pairs.into_iter().filter_map(|(place, matches, event, row)| {
            let event = Arc::clone(events.get(&event)?);
            Some(Candidate { place, matches, event, row })
        });
        Ok(Some(Page { claim, workspace, candidates: candidates.collect(), unreadable }))
    }

    /// A page was judged, and what it led to is stored.
    pub async fn judged(&self, claim: Uuid) -> Result<(), Error> {
        let (row, wait, event) = (None::<i64>, None::<Uuid>, None::<Uuid>);
        self.query(sql!("workflow_execution_candidate/judged"), &[&claim, &row, &wait, &event]).await.map(drop)
    }

    /// A page was judged up to this candidate, and what it led to is stored. What is behind it is given back.
    pub async fn judged_up_to(&self, claim: Uuid, last: &Candidate) -> Result<(), Error> {
        let (row, wait) = last.row;
        let sql = sql!("workflow_execution_candidate/judged");
        self.query(sql, &[&claim, &Some(row), &wait, &Some(last.event.id)]).await.map(drop)
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

    /// Events of a workspace by id, and those that are there and cannot be read.
    async fn readable_events(
        &self,
        workspace: WorkspaceId,
        ids: BTreeSet<Uuid>,
    ) -> Result<(BTreeMap<Uuid, Arc<Event>>, Vec<(Uuid, String)>), Error> {
        let (mut events, mut unreadable) = (BTreeMap::new(), Vec::new());
        if ids.is_empty() {
            return Ok((events, unreadable));
        }
        let (ids, limit) = (ids.iter().collect::<Vec<_>>(), i64::try_from(ids.len()).unwrap_or(i64::MAX));
        for row in &self.query(sql!("domain_events/some"), &[&ids, &workspace.0, &limit]).await? {
            let id: Uuid = row.try_get("id")?;
            match event_of(row, id) {
                Ok(event) => drop(events.insert(id, Arc::new(event))),
                Err(error) => unreadable.push((id, error.to_string())),
            }
        }
        Ok((events, unreadable))
    }
}
