//! Candidates: events that may answer a wait. Candidate rows are added, evaluated in pages and in order, and deleted.
//!
//! Invariants
//! - No event is missed. Appending an event adds a candidate row if the writer sees an open wait for its type. Opening
//!   a wait adds a candidate row too. A second row is added once every transaction that was open at that time has ended
//!   (`functions/wait.sql`).
//! - A candidate is one row, however many pairs of event and wait it leads to; the pairs are read in pages
//!   (`functions/candidate.sql`).
//! - One process has the claim on a page for a limited time, and evaluating a page may be repeated. A page is marked as
//!   evaluated, whole or up to one pair, after its answers are stored.
//! - An event that cannot be read answers no wait, and does not block other events.
//!
//! Not here: the condition on an event (`kernel`), when to evaluate (`server`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kernel::event::DomainEvent;
use kernel::ids::{ExecutionId, WorkspaceId};
use serde_json::Value;
use uuid::Uuid;

use super::{AnswerOutcome, WaitKey, wait_key};
use crate::event::event_of;
use crate::sql::sql;
use crate::{Error, Store};

/// An event to evaluate for a wait.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub key: WaitKey,
    /// The condition on the event; None: any event.
    pub matches: Option<String>,
    pub event: Arc<DomainEvent>,
    /// Its position in the page: the candidate's row, and for a row of an event also the wait.
    row: (i64, Option<Uuid>),
}

/// A page of candidates for one process, in order.
#[derive(Clone, Debug)]
pub struct CandidatePage {
    /// The claim under which the page is marked as evaluated.
    pub claim: Uuid,
    pub workspace: WorkspaceId,
    pub candidates: Vec<Candidate>,
    /// Events that could not be read, and why. They are not among the candidates.
    pub unreadable: Vec<(Uuid, String)>,
}

impl Store {
    /// Checks events a second time for waits whose second check is due. Returns for how many waits.
    pub async fn recheck_events(&self, limit: i32) -> Result<i64, Error> {
        Ok(self.one(sql!("workflow_execution_wait/recheck"), &[&limit]).await?.try_get("rechecked")?)
    }

    /// Claims a page of candidates for `lease`, of the next workspace after `after`. None if there are no candidates.
    pub async fn claim_candidates(
        &self,
        after: Option<WorkspaceId>,
        limit: i32,
        lease: Duration,
    ) -> Result<Option<CandidatePage>, Error> {
        let after = after.map(|id| id.0);
        let rows =
            self.query(sql!("workflow_execution_candidate/claim"), &[&after, &limit, &lease.as_secs_f64()]).await?;
        let Some(last) = rows.last() else { return Ok(None) };
        let (claim, workspace) = (last.try_get("claim")?, WorkspaceId(last.try_get("workspace")?));
        let mut pairs = Vec::new();
        for row in &rows {
            if let Some(event) = row.try_get::<_, Option<Uuid>>("event")? {
                let key = wait_key(row, ExecutionId(row.try_get::<_, Uuid>("execution")?))?;
                let at = (row.try_get("candidate")?, row.try_get("wait")?);
                pairs.push((key, row.try_get("match")?, event, at));
            }
        }
        let (events, unreadable) = self.readable_events(workspace, pairs.iter().map(|pair| pair.2).collect()).await?;
        let candidates = pairs.into_iter().filter_map(|(key, matches, event, row)| {
            let event = Arc::clone(events.get(&event)?);
            Some(Candidate { key, matches, event, row })
        });
        Ok(Some(CandidatePage { claim, workspace, candidates: candidates.collect(), unreadable }))
    }

    /// Marks a page as evaluated. The caller has stored its answers.
    pub async fn finish_candidates(&self, claim: Uuid) -> Result<(), Error> {
        let (row, wait, event) = (None::<i64>, None::<Uuid>, None::<Uuid>);
        self.query(sql!("workflow_execution_candidate/finish"), &[&claim, &row, &wait, &event]).await.map(drop)
    }

    /// Marks a page as evaluated up to this candidate. The caller has stored those answers. The remaining candidates
    /// become available again.
    pub async fn finish_candidates_up_to(&self, claim: Uuid, last: &Candidate) -> Result<(), Error> {
        let (row, wait) = last.row;
        let sql = sql!("workflow_execution_candidate/finish");
        self.query(sql, &[&claim, &Some(row), &wait, &Some(last.event.id)]).await.map(drop)
    }

    /// The item of the list that a loop's iteration processes.
    pub async fn item_of(&self, key: &WaitKey) -> Result<Value, Error> {
        let WaitKey { execution, node, iteration } = key;
        let rows = self.query(sql!("workflow_execution_node/item"), &[&execution.0, &node.as_str(), iteration]).await?;
        Ok(rows.first().map(|row| row.try_get::<_, Option<Value>>("item")).transpose()?.flatten().unwrap_or_default())
    }

    /// Answers an open wait with an event.
    pub async fn answer_with_event(&self, key: &WaitKey, event: &Value) -> Result<AnswerOutcome, Error> {
        self.answer_with(key, None, None, event, ("event", true)).await
    }

    /// Events of a workspace by id, and separately those that cannot be read.
    async fn readable_events(
        &self,
        workspace: WorkspaceId,
        ids: BTreeSet<Uuid>,
    ) -> Result<(BTreeMap<Uuid, Arc<DomainEvent>>, Vec<(Uuid, String)>), Error> {
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
