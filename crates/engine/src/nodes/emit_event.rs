//! EMIT_EVENT: appends one domain event.
//!
//! Invariants
//! - The event's id is derived from execution, node and iteration, so a repeat after a crash finds the stored event.
//!   Outsiders cannot predict the id: the database derives it with a secret of its own (`store::event`).
//! - An unavailable database costs time, never an attempt. The node's timeout does not count that time; the execution's
//!   deadline does.
//!
//! What happens if this process dies: before the append commits, nothing has happened. After the commit, the next
//! attempt finds the event and returns the same output.

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

use super::NodeOutput;
use super::call::{Call, CallResources, Caller, PrepareError, PreparedCall};
use crate::backoff::retry_until_stored;
use crate::outbound::SentFlag;

/// An event to be appended for a node.
#[derive(Debug)]
pub(super) struct EmitEvent(NewEvent);

impl EmitEvent {
    /// The event of a node in a run. It is the same at every attempt, in any process.
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

    fn prepared(self, resources: &CallResources) -> PreparedCall {
        let (sent, resources) = (SentFlag::default(), resources.clone());
        PreparedCall::new(sent.clone(), async move {
            sent.set();
            append(&resources, self.0).await
        })
    }
}

impl Call for EmitEvent {
    fn prepare_now(self: Box<Self>, resources: &CallResources) -> Result<PreparedCall, Box<dyn Call>> {
        Ok(self.prepared(resources))
    }

    fn prepare<'a>(self: Box<Self>, resources: &'a CallResources) -> BoxFuture<'a, Result<PreparedCall, PrepareError>> {
        Box::pin(std::future::ready(Ok(self.prepared(resources))))
    }
}

/// The event's metadata: what caused the event, and which events belong together. The author's values take precedence.
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
    // The author cannot set the generation, because the limit of generations stops endless loops of events.
    all.insert(generation::IN_METADATA.to_owned(), json!(generation::of(&begun.trigger)));
    Value::Object(all)
}

async fn append(resources: &CallResources, event: NewEvent) -> Result<NodeOutput, Failure> {
    let append = || async {
        resources.liveness.wait_until_live().await;
        resources.store.append(std::slice::from_ref(&event)).await
    };
    let appended = retry_until_stored(append).await.map_err(|error| match error {
        Error::Conflict(why) => Failure::new(Class::ExecutionError, why),
        Error::Refused { .. } => {
            let message = "the database cannot store this event; check its data for NUL characters and its size";
            Failure::new(Class::ValidationError, message)
        }
        _ => Failure::new(Class::ExecutionError, "the event could not be appended; rerun the execution"),
    })?;
    let unanswered = || Failure::new(Class::ExecutionError, "the database did not confirm the append of the event");
    let appended = appended.first().ok_or_else(unanswered)?;
    let output = json!({ "event_id": appended.id, "stream_id": event.stream_id, "stream_version": appended.version });
    Ok(NodeOutput::new(output))
}
