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
//! Not here: how an attempt ends (`told`), loops (`loops`), children (`children`), what somebody else does (`asks`).

use std::time::{Duration, Instant};

use engine::nodes::{self, Done, Work};
use engine::trace;
use jiff::Timestamp;
use kernel::definition::{self, Delivery, Kind};
use kernel::each;
use kernel::expression::Scope;
use kernel::failure::{Class, Failure};
use kernel::kind::delay;
use kernel::node::Status;
use kernel::plan::NodeIx;
use kernel::signals::{metrics, spans};
use kernel::trace::TraceParent;
use serde_json::Value;
use store::admission::Begun;
use store::run::NodeFact;
use store::taken::{Hold, Taken};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tracing::Instrument as _;

use super::runs::Held;
use super::told::Attempt;
use super::{Kit, again, later, settled, whole_ms};
use crate::message::{Call, Closed, Ended};

/// An attempt that is due within this is waited for here.
const NEARLY: Duration = Duration::from_secs(2);

/// What a taking found.
pub(super) struct Found {
    /// A wait that was noted before has so long to go.
    wait: Option<Duration>,
    /// Somebody had begun this attempt and did not tell of it.
    again: bool,
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
        let scope = self.scope_at(hold, &held, call.node, call.iteration).await?;
        let ready = nodes::ready(&spec, &scope);
        let input = ready.as_ref().ok().map(|(input, _)| input);
        let (attempt, found) = match self.take(hold, &spec, call.iteration, input).await? {
            Ok(taken) => taken,
            Err(ended) => return Ok(ended),
        };
        if found.again && spec.delivery == Delivery::AtMostOnce {
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
            Work::Wait(config) => self.ask_for_an_answer(&attempt, &held, config, input).await,
            Work::Task(config) => self.hand_out(&attempt, &held, config).await,
            Work::Workflow(config) => self.child(context, &attempt, &held, &config, call.closed).await,
            work => {
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
                let work = self.outgoing(work, &attempt, &scope, &held.begun, trace);
                match self.call(context, &spec, work).instrument(span).await {
                    Some(result) => self.ended(&attempt, result.and_then(nodes::storable)).await,
                    None if spec.delivery == Delivery::AtMostOnce => self.unknown(&attempt).await,
                    None => Err(ActivityError::cancelled()),
                }
            }
        }
    }

    /// How a node stands that may be performed at most once, and of which its activity told nothing: it is never performed here.
    async fn broken_off(
        &self,
        hold: Hold,
        spec: &definition::Node,
        iteration: i32,
        closed: Closed,
    ) -> Result<Ended, ActivityError> {
        let rows = self.store.placed_nodes(hold.execution, &[(&spec.key, iteration)]).await.map_err(again)?;
        if rows.is_empty() && closed == Closed::Stopped {
            return Ok(Ended::Stopped);
        }
        let (attempt, found) = match self.take(hold, spec, iteration, None).await? {
            Ok(taken) => taken,
            Err(ended) => return Ok(ended),
        };
        if found.again {
            return self.unknown(&attempt).await;
        }
        let failure = Failure::new(Class::ExecutionError, "Temporal could not have it performed");
        self.ended(&attempt, Err(failure)).await
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
            let once = spec.delivery == Delivery::AtMostOnce;
            match self.store.take_node(hold, &spec.key, iteration, input, once).await.map_err(again)? {
                Taken::Lost => return Ok(Err(Ended::Lost)),
                Taken::Settled { status, label, error } => {
                    return Ok(Err(settled(status, label, error.map(|error| error.class))));
                }
                Taken::Early(wait) if wait > NEARLY => return Err(later("EARLY", "its next attempt is not due", wait)),
                Taken::Early(wait) => tokio::time::sleep(wait).await,
                Taken::Go { attempt, fence, wait, again } => {
                    return Ok(Ok((Attempt { hold, spec, iteration, attempt, fence }, Found { wait, again })));
                }
            }
        }
    }

    /// What a node does beyond this process.
    async fn outgoing(
        &self,
        work: Work,
        attempt: &Attempt<'_>,
        scope: &Scope,
        begun: &Begun,
        trace: TraceParent,
    ) -> Result<Done, Failure> {
        let Attempt { spec, iteration, .. } = attempt;
        match work {
            Work::HttpRequest(config) => {
                let call = nodes::Call::new(config, spec, scope, begun, *iteration, trace);
                nodes::http_request(&self.outbound, &self.vault, &self.pulse, call).await
            }
            Work::EmitEvent(config) => {
                let emit = nodes::Emit::new(config, spec, begun, *iteration, trace);
                nodes::emit_event(&self.store, &self.pulse, emit).await
            }
            _ => Err(Failure::new(Class::ExecutionError, "a node that does not call out was made to")),
        }
    }

    /// Calls out, telling Temporal that it is at it; none if it is to stop.
    async fn call(
        &self,
        context: &ActivityContext,
        spec: &definition::Node,
        work: impl Future<Output = Result<Done, Failure>>,
    ) -> Option<Result<Done, Failure>> {
        let since = Instant::now();
        // Not at once: the start itself counts as a beat, and a call that is soon over costs Temporal none.
        let every = self.heartbeat / 4;
        let mut beat = tokio::time::interval_at((since + every).into(), every);
        let mut calling = std::pin::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut calling => break Some(result),
                () = context.cancelled() => break None,
                // That nothing can be told of a heartbeat is no reason to stop: a missing one is noticed.
                _ = beat.tick() => drop(context.record_heartbeat(()).await),
            }
        };
        let outcome = match &result {
            Some(Ok(_)) => "completed",
            Some(Err(_)) => "failed",
            None => "canceled",
        };
        ::metrics::histogram!(metrics::NODE_DURATION.name, "kind" => spec.kind.name(), "outcome" => outcome)
            .record(since.elapsed());
        result
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
