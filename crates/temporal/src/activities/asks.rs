//! What nodes have somebody outside do: answers that are waited for, tasks for workers, activities of the user's own.
//!
//! Invariants
//! - Asking is fenced and repeatable: whoever performs the node again hears how its ask stands. Whether it was answered
//!   or its time is up is the store's to say.
//! - A look says what the rows say: what an earlier look stored and could not tell is told by the next.
//! - What an activity of the user's own is given and answers is bounded: it crosses Temporal as it is.
//!
//! What happens if this process dies: before the ask's commit nobody was asked; after it the node is performed again
//! and asks again; after an answer was seen and before its node is settled, the next look finds it
//! (`store::run::attempt::unheard`).
//!
//! Not here: keeping asks and answers (`store::wait`), what an answer makes of its node (`kernel::kind`).

use engine::attempt::wait::{Awaited, wait};
use engine::nodes::{self, Done, Work};
use kernel::definition::Kind;
use kernel::ids::NodeKey;
use kernel::kind::{self, Config, task};
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use store::wait::Standing;
use temporalio_sdk::activities::ActivityError;

use super::runs::Held;
use super::told::{Attempt, over};
use super::{Kit, again, whole_ms};
use crate::message::{Ended, Handed, Look, Looked, Report};

/// The most answers of one look.
const MOST: i64 = 100;
/// The most bytes that an activity of the user's own is given: Temporal takes two megabytes of anything.
const MOST_BYTES: usize = 1 << 20;

impl Kit {
    /// A task that is an activity of the user's own is handed out.
    pub(super) async fn hand_out(&self, attempt: &Attempt<'_>, config: task::Config) -> Result<Ended, ActivityError> {
        if nodes::size(&config.input) > MOST_BYTES {
            let message = format!("the input of an activity may have {} MiB at most", MOST_BYTES >> 20);
            return self.ended(attempt, Err(Failure::new(Class::ValidationError, message))).await;
        }
        // Only a lease that was asked for: an activity that sends no heartbeats is not to be lost.
        let lease_ms = attempt.spec.with.get("lease").map(|_| whole_ms(config.lease));
        let Attempt { attempt: number, fence, spec, .. } = attempt;
        let handed =
            Handed { input: config.input, attempt: *number, fence: *fence, limit_ms: spec.timeout_ms, lease_ms };
        Ok(Ended::Handed(Box::new(handed)))
    }

    /// Stores what a node waits for, and says how that stands.
    pub(super) async fn wait_for(
        &self,
        attempt: &Attempt<'_>,
        held: &Held,
        (work, input): (Work, &Value),
    ) -> Result<Ended, ActivityError> {
        let place = (attempt.iteration, attempt.attempt);
        let (ask, awaited) = match wait(work, attempt.spec, input, &held.begun, place) {
            Ok(wait) => wait,
            Err(failure) => return self.ended(attempt, Err(failure)).await,
        };
        match self.store.ask(attempt.hold, &ask).await {
            Ok(None) => Ok(Ended::Lost),
            Ok(Some(Standing::Open { expires_in })) => Ok(Ended::Asked { expires_ms: expires_in.map(whole_ms) }),
            Ok(Some(standing)) => self.ended(attempt, awaited.over(standing).and_then(nodes::storable)).await,
            Err(store::Error::Refused { .. }) => {
                let message = "the database cannot hold what is asked";
                self.ended(attempt, Err(Failure::new(Class::ValidationError, message))).await
            }
            Err(store::Error::Conflict(_)) => self.stands(attempt).await,
            Err(error) => Err(again(error)),
        }
    }

    /// Settles nodes whose asks are over, and says how those that asked stand.
    pub(super) async fn look_for_answers(&self, look: Look) -> Result<Looked, ActivityError> {
        let Look { hold, asked } = look;
        let Some(held) = self.held(hold).await? else { return Ok(Looked::Lost) };
        if self.store.answers(hold).await.map_err(again)?.is_none() {
            return Ok(Looked::Lost);
        }
        let unheard = self.store.unheard(hold.execution, MOST).await.map_err(again)?;
        let more = i64::try_from(unheard.len()).is_ok_and(|found| found >= MOST);
        for one in unheard {
            let node = held.version.plan.index_of(&one.node);
            let Some(spec) = node.and_then(|node| held.spec(node, one.iteration)) else { continue };
            let asked = match one.input.map(|input| kind::prepare(spec.kind, input)) {
                Some(Ok(Config::WaitForEvent(config))) => Awaited::Answer(config),
                _ => Awaited::Task,
            };
            let (attempt, fence, iteration) = (one.attempt, one.fence, one.iteration);
            let attempt = Attempt { hold, spec: &spec, iteration, attempt, fence };
            self.ended(&attempt, asked.over(one.standing).and_then(nodes::storable)).await?;
        }
        let key = |node: usize| held.version.definition.nodes.get(node).map(|node| &node.key);
        let places: Vec<(&NodeKey, i32)> =
            asked.iter().filter_map(|(node, iteration)| Some((key(*node)?, *iteration))).collect();
        let rows = self.store.placed_nodes(hold.execution, &places).await.map_err(again)?;
        let ended = rows.into_iter().filter_map(|(iteration, row)| {
            let node = held.version.plan.index_of(&row.node)?;
            Some((node, iteration, over(row)?))
        });
        Ok(Looked::Done { ended: ended.collect(), more })
    }

    /// Settles a task that an activity of the user's own did, or failed to.
    pub(super) async fn take_report(&self, report: Report) -> Result<Ended, ActivityError> {
        let Report { hold, node, iteration, attempt, fence, result } = report;
        let Some(held) = self.held(hold).await? else { return Ok(Ended::Lost) };
        let Some(spec) = held.spec(node, iteration).filter(|spec| spec.kind == Kind::Task) else {
            return Ok(Ended::Lost);
        };
        let attempt = Attempt { hold, spec: &spec, iteration, attempt, fence };
        self.ended(&attempt, result.map(Done::plain).and_then(nodes::storable)).await
    }
}
