//! EMIT_EVENT: one append to the domain events.
//!
//! Invariants
//! - The event's id follows from execution, node and iteration: performed again after any crash, it is there already.
//!   Whoever knows these cannot tell the id: the database derives it with a secret of its own (`store::event`).
//! - A database that is away costs time, never an attempt: the node's timeout does not count it. The execution's
//!   deadline does.
//!
//! What happens if this process dies: before the append's commit, nothing has happened; after it, the next attempt
//! finds the event and ends as this one would have.

use futures_util::future::BoxFuture;
use kernel::definition;
use kernel::event;
use kernel::execution::generation;
use kernel::kind::emit_event::Config;
use kernel::run::failure::{Class, Failure};
use kernel::signals::trace::TraceParent;
use serde_json::{Map, Value, json};
use store::Error;
use store::event::NewEvent;
use store::queue::claim::Begun;

use super::Done;
use super::call::{Call, Caller, Means, Prepared, Unprepared};
use crate::insist::insist;
use crate::outbound::Sent;

/// An event to be appended for a node.
#[derive(Debug)]
pub(super) struct EmitEvent(NewEvent);

impl EmitEvent {
    /// The event of a node in a run; it is the same at every attempt, whoever makes it.
    pub(super) fn new(config: Config, caller: &Caller<'_>) -> EmitEvent {
        let Caller { spec, begun, iteration, trace, .. } = *caller;
        let metadata = metadata(&config, spec, begun, trace);
        EmitEvent(NewEvent {
            id: event::id_of(begun.execution, &spec.key, u32::try_from(iteration).unwrap_or_default()),
            derived: true,
            workspace: Some(begun.workspace),
            stream_id: config.stream_id.unwrap_or(begun.execution.0),
            stream_type: config.stream_type,
            expected: None,
            event_type: config.event_type,
            data: config.data,
            metadata,
        })
    }

    fn prepared(self, means: &Means) -> Prepared {
        let (sent, means) = (Sent::default(), means.clone());
        Prepared::new(sent.clone(), async move {
            sent.set();
            append(&means, self.0).await
        })
    }
}

impl Call for EmitEvent {
    fn prepare_now(self: Box<Self>, means: &Means) -> Result<Prepared, Box<dyn Call>> {
        Ok(self.prepared(means))
    }

    fn prepare<'a>(self: Box<Self>, means: &'a Means) -> BoxFuture<'a, Result<Prepared, Unprepared>> {
        Box::pin(std::future::ready(Ok(self.prepared(means))))
    }
}

/// Where the event comes from: what caused it, and what it belongs to. The author's own words win.
fn metadata(config: &Config, spec: &definition::Node, begun: &Begun, trace: TraceParent) -> Value {
    let cause = begun.trigger.pointer("/event/id").cloned().unwrap_or_else(|| json!(begun.execution));
    let whole = begun.trigger.pointer("/event/metadata/correlation_id").cloned().unwrap_or_else(|| cause.clone());
    let mut all = Map::from_iter([
        ("causation_id".to_owned(), cause),
        ("correlation_id".to_owned(), whole),
        ("execution_id".to_owned(), json!(begun.execution)),
        ("node".to_owned(), json!(spec.key)),
        ("traceparent".to_owned(), json!(trace.to_string())),
    ]);
    all.extend(config.metadata.clone().unwrap_or_default());
    // Not the author's to say: it ends loops.
    all.insert(generation::IN_METADATA.to_owned(), json!(generation::of(&begun.trigger)));
    Value::Object(all)
}

async fn append(means: &Means, event: NewEvent) -> Result<Done, Failure> {
    let append = || async {
        means.pulse.fresh().await;
        means.store.append(std::slice::from_ref(&event)).await
    };
    let appended = insist(append).await.map_err(|error| match error {
        Error::Conflict(why) => Failure::new(Class::ExecutionError, why),
        Error::Refused { .. } => Failure::new(Class::ValidationError, "the database cannot hold this event"),
        _ => Failure::new(Class::ExecutionError, "the event could not be appended"),
    })?;
    let unanswered = || Failure::new(Class::ExecutionError, "the append of the event was not answered");
    let appended = appended.first().ok_or_else(unanswered)?;
    let output = json!({ "event_id": appended.id, "stream_id": event.stream_id, "stream_version": appended.version });
    Ok(Done::plain(output))
}
