//! One node: taken by its row, performed, and told of.
//!
//! Invariants
//! - Nothing is sent before the row says RUNNING, and a settled node is never performed again.
//! - The row counts the attempts: a worker that dies costs none. The kernel says whether there is another and when;
//!   Temporal only keeps the time.
//! - What may be performed at most once is never performed by whoever finds that somebody began it: its end is UNKNOWN.
//!
//! What happens if this process dies: before the taking, nothing has happened; after it, the node is taken again
//! under the same attempt and called with the same token; after telling, the row answers for it.
//!
//! Not here: calling out (`calls`), how an attempt ends (`told`), loops (`loops`), children (`children`), what somebody
//! else does (`asks`).

use std::time::Duration;

use engine::nodes::call::{Caller, Make};
use engine::nodes::{self, Work};
use engine::{trace, vault};
use jiff::Timestamp;
use kernel::definition::plan::NodeIx;
use kernel::definition::{self, Delivery, Kind};
use kernel::expression::Scope;
use kernel::kind::delay;
use kernel::run::each;
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use kernel::signals::spans;
use serde_json::Value;
use store::run::attempt::{Hold, Taken};
use store::run::{NodeFact, StoredNode};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tracing::Instrument as _;

use super::calls::Called;
use super::runs::Held;
use super::told::Attempt;
use super::{Kit, again, later, settled, whole_ms};
use crate::message::{Call, Closed, Ended};

/// An attempt that is due within this is waited for here.
const NEARLY: Duration = Duration::from_secs(2);

/// How soon a call is tried again whose secrets this worker has no key for: another worker may have it, or this one
/// after a restart.
const KEYLESS: Duration = Duration::from_secs(10);

/// What a taking found.
pub(super) struct Found {
    /// A wait that was noted before has so long to go.
    wait: Option<Duration>,
    /// Somebody had begun a call that may be made at most once, and did not tell of it.
    begun: bool,
}

impl Kit {
    pub(super) async fn perform(&self, context: &ActivityContext, call: Call) -> Result<Ended, ActivityError> {
        let hold = call.hold;
        let Some(held) = self.held(hold).await? else { return Ok(Ended::Lost) };
        let Some(spec) = held.spec(call.node, call.iteration) else {
            return Err(later("FAULT", "no such node", NEARLY));
        };
        if spec.kind == Kind::ForEach {
            return self.begin_loop(hold, &held, call.node).await;
        }
        if let (Some(closed), Delivery::AtMostOnce) = (call.closed, spec.delivery) {
            return self.broken_off(hold, &spec, call.iteration, closed).await;
        }
        if call.attends == Some(Closed::Stopped) && !self.is_begun(hold, &spec, call.iteration).await? {
            return Ok(Ended::Stopped);
        }
        let scope = self.scope_at(hold, &held, call.node, call.iteration).await?;
        let ready = nodes::ready_apart(held.begun.workspace, &spec, &scope).await;
        let input = ready.as_ref().ok().map(|(input, _)| input);
        let (attempt, found) = match self.take(hold, &spec, call.iteration, input).await? {
            Ok(taken) => taken,
            Err(ended) => return Ok(ended),
        };
        if found.begun {
            return self.unknown(&attempt).await;
        }
        let (input, work) = match ready {
            Ok(ready) => ready,
            Err(failure) => return self.ended(&attempt, Err(failure)).await,
        };
        match work {
            Work::Done(done) => self.ended(&attempt, nodes::storable(done)).await,
            Work::Delay(config) => self.delay(&attempt, found.wait, config).await,
            // The step before this saw it hold, by the same stored values.
            Work::Skip => {
                let failure = Failure::new(Class::ExecutionError, "its condition held, and does not any more");
                self.ended(&attempt, Err(failure)).await
            }
            Work::Task(config) if config.activity.is_some() => self.hand_out(&attempt, config).await,
            Work::Wait(_) | Work::Task(_) => self.wait_for(&attempt, &held, (work, &input)).await,
            Work::Workflow(config) => self.child(context, &attempt, &held, &config, (call.closed, call.attends)).await,
            Work::Call(make) => self.call_out(context, &attempt, &held, (make, &scope)).await,
            // Loops are begun apart.
            Work::ForEach(_) => {
                let failure = Failure::new(Class::ExecutionError, "another kind's configuration");
                self.ended(&attempt, Err(failure)).await
            }
        }
    }

    /// Calls out for a node, and tells what came of it.
    async fn call_out(
        &self,
        context: &ActivityContext,
        attempt: &Attempt<'_>,
        held: &Held,
        (make, scope): (Make, &Scope),
    ) -> Result<Ended, ActivityError> {
        let Attempt { hold, spec, .. } = attempt;
        let span = tracing::info_span!(
            parent: None,
            spans::RUN_NODE.name,
            execution_id = %hold.execution,
            node = %spec.key,
            kind = spec.kind.name(),
            attempt = attempt.attempt,
        );
        trace::put_below(&span, held.begun.trace);
        let trace = trace::of(&span).unwrap_or(held.begun.trace);
        let caller = Caller { spec, scope, begun: &held.begun, iteration: attempt.iteration, trace };
        match self.call(context, attempt, make.call(&caller)).instrument(span).await {
            Called::Ended(result) => self.ended(attempt, result.and_then(nodes::storable)).await,
            Called::Overtaken => self.stands(attempt).await,
            Called::NotNow(vault::Error::Store(error)) => Err(again(error)),
            Called::NotNow(error) => {
                tracing::warn!(execution_id = %hold.execution, node = %spec.key, %error,
                    "A call waits: its secrets cannot be opened");
                Err(later("SECRETS", &error.to_string(), KEYLESS))
            }
            Called::Stopped { begun: true } if spec.delivery == Delivery::AtMostOnce => self.unknown(attempt).await,
            Called::Stopped { .. } => Err(ActivityError::cancelled()),
        }
    }

    /// How a node stands that may be performed at most once, and of which its activity told nothing: it is never
    /// performed here.
    async fn broken_off(
        &self,
        hold: Hold,
        spec: &definition::Node,
        iteration: i32,
        closed: Closed,
    ) -> Result<Ended, ActivityError> {
        if closed == Closed::Stopped && !self.is_begun(hold, spec, iteration).await? {
            return Ok(Ended::Stopped);
        }
        let (attempt, found) = match self.take(hold, spec, iteration, None).await? {
            Ok(taken) => taken,
            Err(ended) => return Ok(ended),
        };
        if found.begun {
            return self.unknown(&attempt).await;
        }
        if closed == Closed::Stopped {
            return Ok(Ended::Stopped);
        }
        let failure = Failure::new(Class::ExecutionError, "Temporal could not run the activity");
        self.ended(&attempt, Err(failure)).await
    }

    /// Is a node in an attempt, or settled? One that waits for its next attempt, or for its first, is not.
    async fn is_begun(&self, hold: Hold, spec: &definition::Node, iteration: i32) -> Result<bool, ActivityError> {
        let rows = self.store.placed_nodes(hold.execution, &[(&spec.key, iteration)]).await.map_err(again)?;
        let begun = |row: &StoredNode| !matches!(row.status, Status::Pending | Status::Retrying);
        Ok(rows.first().is_some_and(|(_, row)| begun(row)))
    }

    /// What a node, or an item of a loop, may look at.
    pub(super) async fn scope_at(
        &self,
        hold: Hold,
        held: &Held,
        node: NodeIx,
        iteration: i32,
    ) -> Result<Scope, ActivityError> {
        let mut scope = engine::scope::scope(&held.begun, &held.version);
        let looked_at: Vec<_> = held.version.looked_at_by(node).into_iter().collect();
        self.look_at(hold, &looked_at, &mut scope).await?;
        let scope = held.version.view(node, &scope).into_owned();
        match each::index(iteration) {
            None => Ok(scope),
            Some(index) => self.with_item(hold, held, node, index, scope).await,
        }
    }

    /// Takes the node, waiting for its time if that is near. `Err`: how it stands instead.
    pub(super) async fn take<'a>(
        &self,
        hold: Hold,
        spec: &'a definition::Node,
        iteration: i32,
        input: Option<&Value>,
    ) -> Result<Result<(Attempt<'a>, Found), Ended>, ActivityError> {
        loop {
            match self.store.take_node(hold, &spec.key, iteration, input).await.map_err(again)? {
                Taken::Lost => return Ok(Err(Ended::Lost)),
                Taken::Settled { status, label, error } => {
                    return Ok(Err(settled(status, label, error.map(|error| error.class))));
                }
                Taken::Early(wait) if wait > NEARLY => return Err(later("EARLY", "its next attempt is not due", wait)),
                Taken::Early(wait) => tokio::time::sleep(wait).await,
                Taken::Go { attempt, fence, wait, begun } => {
                    return Ok(Ok((Attempt { hold, spec, iteration, attempt, fence }, Found { wait, begun })));
                }
            }
        }
    }

    /// A delay is a time on the node's row: one that stands there already stays.
    async fn delay(
        &self,
        attempt: &Attempt<'_>,
        noted: Option<Duration>,
        config: delay::Config,
    ) -> Result<Ended, ActivityError> {
        if let Some(wait) = noted {
            return Ok(Ended::Waiting { ms: whole_ms(wait) });
        }
        let now = Timestamp::now();
        let due = match config.due_at(now) {
            Ok(due) => due,
            Err(failure) => return self.ended(attempt, Err(failure)).await,
        };
        let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
        let fact = NodeFact { next_in: Some(wait), ..attempt.fact(Status::Running) };
        match self.tell(attempt, &fact).await? {
            Some(ended) => Ok(ended),
            None => Ok(Ended::Waiting { ms: whole_ms(wait) }),
        }
    }
}
