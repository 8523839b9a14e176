//! EMIT_EVENT: appends one domain event.
//!
//! Invariants
//! - The event's id follows from the node, so that however often the node is performed there is one event.
//! - The queue's own stream and types cannot be written.
//!
//! Not here: appending (`store::event`), what the event starts (its bindings).

use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::registry::Spec;
use super::schema::{any, late, object};
use crate::definition::Manner;
use crate::definition::fields::{Fields, Problem};
use crate::event::binding::MAX_TYPE_LEN;
use crate::job::FACTS;
use crate::run::failure::Failure;

/// What to append.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    #[serde(rename = "type")]
    pub event_type: String,
    pub data: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The execution's own if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<Uuid>,
    pub stream_type: String,
}

/// The stream of a node that does not say another.
const STREAM_TYPE: &str = "execution";
const FIELDS: &[&str] = &["type", "data", "metadata", "stream_id", "stream_type"];

/// What the kind says of itself.
pub(super) const SPEC: Spec =
    Spec::new("EMIT_EVENT", Manner::Calls, "Appends one domain event, once however often it is tried.", schema, check);

/// What `with` must look like.
pub fn schema() -> Value {
    let word = || json!({ "type": "string", "minLength": 1, "maxLength": MAX_TYPE_LEN });
    object(
        &["type"],
        &[
            ("type", late("The event's type, such as order.paid.", word())),
            ("data", any("What the event says; an empty object if absent.")),
            ("metadata", late("What is said of the event.", json!({ "type": "object" }))),
            (
                "stream_id",
                late(
                    "Of what it tells: a UUID; the execution's own if absent.",
                    json!({ "type": "string", "format": "uuid" }),
                ),
            ),
            ("stream_type", late("The sort of stream; execution if absent.", word())),
        ],
    )
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    fields.require("type");
    let event_type = name(fields, "type");
    let stream_type = match fields.get("stream_type") {
        None => Some(STREAM_TYPE.to_owned()),
        Some(_) => name(fields, "stream_type"),
    };
    if stream_type.as_deref() == Some(FACTS) {
        fields.wrong("stream_type", format!("{FACTS} is the queue's own: choose another"));
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
