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

use std::sync::Arc;

use kernel::definition;
use kernel::event;
use kernel::execution::generation;
use kernel::kind::emit_event::Config;
use kernel::run::failure::{Class, Failure};
use kernel::signals::trace::TraceParent;
use serde_json::{Map, Value, json};
use store::event::NewEvent;
use store::queue::claim::Begun;
use store::{Error, Store};

use super::Done;
use crate::insist::insist;
use crate::pulse::Pulse;

/// An event to be appended for a node.
#[derive(Debug)]
pub struct Emit {
    event: NewEvent,
}

impl Emit {
    /// The event of a node in a run; it is the same at every attempt, whoever makes it.
    pub fn new(config: Config, spec: &definition::Node, begun: &Begun, iteration: i32, trace: TraceParent) -> Emit {
        let metadata = metadata(&config, spec, begun, trace);
        let event = NewEvent {
            id: event::id_of(begun.execution, &spec.key, u32::try_from(iteration).unwrap_or_default()),
            derived: true,
            workspace: Some(begun.workspace),
            stream_id: config.stream_id.unwrap_or(begun.execution.0),
            stream_type: config.stream_type,
            expected: None,
            event_type: config.event_type,
            data: config.data,
            metadata,
        };
        Emit { event }
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

/// Appends the event.
pub async fn perform(store: &Store, pulse: &Arc<Pulse>, emit: Emit) -> Result<Done, Failure> {
    let Emit { event } = emit;
    let append = || async {
        pulse.fresh().await;
        store.append(std::slice::from_ref(&event)).await
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
