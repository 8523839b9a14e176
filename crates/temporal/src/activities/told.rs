//! How an attempt ended: told under its fence, and what the workflow hears of it.
//!
//! Invariants
//! - What an attempt came to is told until it is stored or refused by a fence: no transient error of the database
//!   throws it away.
//! - An attempt that was overtaken by its successor tells nothing: the node's fence refuses it, and the row answers for
//!   it.
//! - Whether there is another attempt, and when, is the kernel's to say. Who waits for it differs: Temporal for a call,
//!   the workflow for what it may have to give up meanwhile.

use std::time::Duration;

use engine::attempt;
use engine::insist::insist;
use engine::nodes::Done;
use kernel::definition::{self, Manner};
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use store::run::attempt::{Hold, Told};
use store::run::{NodeFact, StoredNode};
use temporalio_sdk::activities::ActivityError;

use super::{Kit, SOON, again, later, settled, whole_ms};
use crate::message::Ended;

/// A node, or an item of a loop, that was taken.
pub(super) struct Attempt<'a> {
    pub(super) hold: Hold,
    pub(super) spec: &'a definition::Node,
    pub(super) iteration: i32,
    pub(super) attempt: u32,
    pub(super) fence: i32,
}

impl Kit {
    /// Tells how the attempt ended, and says how the node stands then.
    pub(super) async fn ended(
        &self,
        attempt: &Attempt<'_>,
        result: Result<Done, Failure>,
    ) -> Result<Ended, ActivityError> {
        let Attempt { hold, spec, attempt: number, iteration, .. } = attempt;
        let failure = match result {
            Ok(Done { output, took, stored }) => {
                let label = took.clone();
                let output = (!stored).then_some(output);
                let fact = NodeFact { output, label: took, ..attempt.fact(Status::Completed) };
                let told = self.tell(attempt, &fact).await?;
                return Ok(told.unwrap_or_else(|| settled(Status::Completed, label, None)));
            }
            Err(failure) => failure,
        };
        let item = u32::try_from(*iteration).unwrap_or_default();
        let wait = spec.retry.wait_after_item(&failure, *number, hold.execution, &spec.key, item);
        let (class, message, leaves) = (failure.class, failure.message.clone(), failure.leaves());
        let error = Some(failure.at(spec.key.clone()));
        let fact = match wait {
            Some(_) => NodeFact { attempt: number + 1, next_in: wait, error, ..attempt.fact(Status::Retrying) },
            None => NodeFact { error, ..attempt.fact(leaves) },
        };
        match (self.tell(attempt, &fact).await?, wait) {
            (Some(ended), _) => Ok(ended),
            (None, Some(wait)) if attempt.is_waited_for_by_the_workflow() => {
                Ok(Ended::Again { attempt: number + 1, ms: whole_ms(wait) })
            }
            (None, Some(wait)) => Err(later(class.name(), &message, wait)),
            (None, None) => Ok(settled(leaves, None, Some(class))),
        }
    }

    /// Nobody knows whether it took effect, and it may be performed at most once.
    pub(super) async fn unknown(&self, attempt: &Attempt<'_>) -> Result<Ended, ActivityError> {
        let failure = Failure::unknown();
        let class = Some(failure.class);
        let error = Some(failure.at(attempt.spec.key.clone()));
        let told = self.tell(attempt, &NodeFact { error, ..attempt.fact(Status::Unknown) }).await?;
        Ok(told.unwrap_or_else(|| settled(Status::Unknown, None, class)))
    }

    /// Stores a fact of an attempt, however long the database takes to answer: the attempt is over, and only this
    /// worker knows how. Some if the node came to another end meanwhile.
    pub(super) async fn tell(&self, attempt: &Attempt<'_>, fact: &NodeFact) -> Result<Option<Ended>, ActivityError> {
        let Attempt { hold, spec, fence, .. } = attempt;
        match insist(|| self.store.tell_node(*hold, *fence, fact)).await {
            Ok(Told::Stored) => Ok(None),
            Ok(Told::Lost) => Ok(Some(Ended::Lost)),
            Ok(Told::Overtaken) => self.stands(attempt).await.map(Some),
            Err(error @ store::Error::Refused { .. }) => {
                tracing::warn!(execution_id = %hold.execution, node = %spec.key, error = %error,
                    "A result cannot be stored");
                let reason = "the database cannot hold what this node produced";
                let failure = Failure::new(Class::UnstorableOutput, reason);
                let failed = NodeFact { error: Some(failure.at(spec.key.clone())), ..attempt.fact(Status::Failed) };
                match insist(|| self.store.tell_node(*hold, *fence, &failed)).await.map_err(again)? {
                    Told::Stored => {
                        let class = Some(Class::UnstorableOutput);
                        Ok(Some(settled(Status::Failed, None, class)))
                    }
                    Told::Lost => Ok(Some(Ended::Lost)),
                    Told::Overtaken => self.stands(attempt).await.map(Some),
                }
            }
            Err(error) => Err(again(error)),
        }
    }

    /// How the row stands after another attempt, or an answer of this one that was lost, changed it.
    pub(super) async fn stands(&self, attempt: &Attempt<'_>) -> Result<Ended, ActivityError> {
        let place = [(&attempt.spec.key, attempt.iteration)];
        let rows = self.store.placed_nodes(attempt.hold.execution, &place).await.map_err(again)?;
        match rows.into_iter().next().and_then(|(_, row)| over(row)) {
            Some(ended @ Ended::Settled { .. }) => Ok(ended),
            Some(ended) if attempt.is_waited_for_by_the_workflow() => Ok(ended),
            _ => Err(later("OVERTAKEN", "another attempt took the node over", SOON)),
        }
    }
}

/// What the workflow hears of a row that is in no attempt; none if it is in one.
pub(super) fn over(row: StoredNode) -> Option<Ended> {
    match row.status {
        Status::Pending | Status::Running => None,
        Status::Retrying => {
            Some(Ended::Again { attempt: row.attempt, ms: whole_ms(row.next_in.unwrap_or(Duration::ZERO)) })
        }
        status => Some(settled(status, row.label, row.error.map(|error| error.class))),
    }
}

impl Attempt<'_> {
    pub(super) fn fact(&self, status: Status) -> NodeFact {
        attempt::fact(&self.spec.key, self.iteration, status, self.attempt)
    }

    /// An item may be given up while it waits, and what somebody else does is asked for by the workflow.
    fn is_waited_for_by_the_workflow(&self) -> bool {
        self.iteration > 0 || matches!(self.spec.kind.manner(), Manner::Asks | Manner::Spawns)
    }
}
