//! EMIT_EVENT: appends one domain event.
//!
//! Invariants
//! - The event's id is derived from the node, so one event is appended even if the node is performed several times.
//! - A node cannot write to the streams that Forebay uses for its own jobs.
//!
//! Not here: appending (`store::event`), what the event starts (`event::binding`).

use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::registry::Spec;
use super::schema::{any, late, line, object};
use crate::definition::Manner;
use crate::definition::fields::Fields;
use crate::event::binding::MAX_TYPE_LEN;
use crate::job::FACTS;

/// The event to append.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    #[serde(rename = "type")]
    pub event_type: String,
    pub data: Value,
    pub metadata: Option<Map<String, Value>>,
    /// `None` stands for the execution's own stream.
    pub stream_id: Option<Uuid>,
    pub stream_type: String,
}

/// The stream type if the node sets no `stream_type`.
const STREAM_TYPE: &str = "execution";
pub(super) const FIELDS: &[&str] = &["type", "data", "metadata", "stream_id", "stream_type"];

/// The description of this kind.
pub(super) const SPEC: Spec =
    Spec::new("EMIT_EVENT", Manner::Calls, "Appends one domain event, exactly once however often it is attempted.");

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let uuid = json!({ "type": "string", "format": "uuid" });
    object(
        &["type"],
        &[
            late("type", "The event's type, such as order.paid.", line(MAX_TYPE_LEN)),
            any("data", "The data of the event; an empty object if absent."),
            late("metadata", "The metadata of the event.", json!({ "type": "object" })),
            late("stream_id", "The stream of the event, a UUID; the execution's id if absent.", uuid),
            late("stream_type", "The type of the stream; execution if absent.", line(MAX_TYPE_LEN)),
        ],
    )
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    fields.require("type");
    let event_type = name(fields, "type");
    let stream_type = match fields.get("stream_type") {
        None => Some(STREAM_TYPE.to_owned()),
        Some(_) => name(fields, "stream_type"),
    };
    if stream_type.as_deref() == Some(FACTS) {
        fields.wrong("stream_type", format!("{FACTS} is reserved for the queue: choose another"));
    }
    let stream_id = match fields.text("stream_id").map(Uuid::parse_str) {
        None => None,
        Some(Ok(id)) => Some(id),
        Some(Err(_)) => {
            fields.wrong("stream_id", "must be a UUID");
            None
        }
    };
    let metadata = fields.object("metadata").cloned();
    let data = fields.get("data").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    Some(Config { event_type: event_type?, data, metadata, stream_id, stream_type: stream_type? })
}

fn name(fields: &mut Fields<'_, '_>, field: &str) -> Option<String> {
    let text = fields.text(field)?;
    if text.is_empty() || text.len() > MAX_TYPE_LEN || text.chars().any(char::is_control) {
        fields.wrong(field, format!("must be one line of 1 to {MAX_TYPE_LEN} bytes"));
        return None;
    }
    Some(text.to_owned())
}
