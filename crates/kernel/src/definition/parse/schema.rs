//! The JSON Schema of a document. Editors use it to complete and check a document while its author types.
//!
//! Invariants
//! - The schema accepts every document that `parse` accepts. It also accepts some documents that `parse` refuses,
//!   because it cannot check rules across fields.
//! - The schema has every field that `parse` reads, and no other field.
//!
//! Not here: the rules themselves (`parse::read`, `kind`, `inputs`).

use serde_json::{Value, json};

use super::read::{MAX_CONCURRENCY, MAX_DESCRIPTION_LEN, MAX_DISPATCH_ATTEMPTS, MAX_NAME_LEN, retry::MAX_FACTOR};
use crate::definition::inputs;
use crate::definition::{Kind, MAX_EDGES, MAX_NODES};
use crate::kind;
use crate::kind::schema::{Field, any, boolean, condition, count, duration, early, object, one_of, text};
use crate::run::failure::Policy;
use crate::schedule::calendar::MAX_CRON_LEN;
use crate::schedule::{CatchUp, MAX_IN_DOCUMENT, Overlap};
use crate::trigger;

/// The address of the published schema, which is also its name.
pub const ID: &str = "urn:forebay:workflow:1";

/// A node's key, or a label.
const NAME: &str = "^[A-Za-z_][A-Za-z0-9_-]{0,63}$";
/// An entry of `needs`: a node, or one branch of a node.
const NEED: &str = "^[A-Za-z_][A-Za-z0-9_-]{0,63}(\\.[A-Za-z_][A-Za-z0-9_-]{0,63})?$";

/// The schema of a whole document, in either form.
pub fn workflow() -> Value {
    let mut schema = object(&["nodes"], &fields());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["$id"] = json!(ID);
    schema["title"] = json!("A Forebay workflow");
    schema["$defs"] =
        json!({ "node": node(false), "listed_node": node(true), "retry": retry(), "input": inputs::schema() });
    schema
}

fn fields() -> Vec<Field> {
    let nodes = json!({
        "description": "The nodes: a map of nodes, or a list of nodes with keys.",
        "anyOf": [
            { "type": "object", "propertyNames": { "pattern": NAME }, "maxProperties": MAX_NODES,
            "additionalProperties": { "$ref": "#/$defs/node" } },
            { "type": "array", "maxItems": MAX_NODES, "items": { "$ref": "#/$defs/listed_node" } },
            { "type": "null" },
        ],
    });
    let inputs = json!({ "type": "object", "propertyNames": { "pattern": NAME },
        "additionalProperties": { "$ref": "#/$defs/input" } });
    let edges = json!({ "type": "array", "maxItems": MAX_EDGES, "items": edge() });
    let defaults = object(&[], &[retry_ref(), timeout(), milliseconds("timeout_ms")]);
    vec![
        early("version", "The version of the document format: 1.", json!({ "const": 1 })),
        early("name", "The name of the workflow; the name of the file if absent.", at_most(MAX_NAME_LEN)),
        early("description", "A description for people.", at_most(MAX_DESCRIPTION_LEN)),
        early("inputs", "The inputs of a start, each declared with a subset of JSON Schema.", inputs),
        early("additional_inputs", "Whether a start may have inputs that are not declared; true if absent.", boolean()),
        on(),
        early("vars", "Constants for expressions.", json!({ "type": "object" })),
        early("defaults", "Defaults for all nodes.", defaults),
        ("nodes", nodes),
        early("edges", "Edges between nodes, in addition to `needs`.", edges),
        any("outputs", "The output of the execution, with templates in any text."),
        timeout(),
        milliseconds("timeout_ms"),
        early("concurrency", "How many executions may run at once.", count(MAX_CONCURRENCY)),
        early(
            "key_concurrency",
            "How many executions with the same concurrency key may run at once.",
            count(MAX_CONCURRENCY),
        ),
        early(
            "max_attempts",
            "How often an engine may refuse a start before the execution fails.",
            count(MAX_DISPATCH_ATTEMPTS),
        ),
    ]
}

/// The events, requests and schedules that start a workflow.
fn on() -> Field {
    let pattern = "A pattern for the job's workflow_id; {field} stands for a field of the event's data.";
    let event = object(
        &["type"],
        &[
            (
                "type",
                json!({ "description": "An event type, or a prefix with .* (such as order.*).", "type": "string" }),
            ),
            early("filter", "An expression; if it is false, the job is skipped.", text()),
            any("input", "The input of the execution, with templates in any text."),
            early("workflow_id", pattern, text()),
            early("lease", "The lease of a job: how long a worker keeps it without a heartbeat.", duration()),
            early("lease_s", "The lease in seconds.", json!({ "type": "integer", "minimum": 1 })),
        ],
    );
    let schedules = json!({ "type": "array", "maxItems": MAX_IN_DOCUMENT, "items": schedule() });
    let on = object(
        &[],
        &[
            early("event", "A domain event.", event),
            early("schedule", "Schedules, each a cron expression in a time zone.", schedules),
            early("http", "A POST to the workflow's own secret address, /triggers/TOKEN.", on_http()),
        ],
    );
    early("on", "The events, requests and schedules that start the workflow.", on)
}

/// The trigger rule `on: http`.
fn on_http() -> Value {
    let scheme = "standard_webhooks, or own (the default): then the other fields define the signature.";
    let idempotency = "Requests with the same value of this header start one execution; Idempotency-Key if absent.";
    let signed = "How requests are signed with HMAC-SHA256; unsigned requests are accepted if absent.";
    let signature = object(
        &["secret"],
        &[
            one_of("scheme", scheme, &["own", "standard_webhooks"]),
            early("header", "The header with the signature; webhook-signature for standard_webhooks.", text()),
            ("secret", json!({ "description": "The name of a secret of the workspace.", "type": "string" })),
            one_of("encoding", "How the signature is encoded: hex (the default) or base64.", &["hex", "base64"]),
            early("prefix", "The text before the signature, such as sha256=.", text()),
            early(
                "timestamp_header",
                "The header with the time of the request, which may be off by five minutes.",
                text(),
            ),
            early("id_header", "The header with the message's id, by which a replay is recognised.", text()),
            early("signed", "The signed text, a pattern with {timestamp}, {id} and {body}.", text()),
        ],
    );
    let names = json!({ "type": "array", "items": { "type": "string" } });
    object(
        &[],
        &[
            early("idempotency_header", idempotency, text()),
            early("headers", "Headers that the workflow sees as trigger.headers.", names),
            early("max_body_bytes", "The largest body, in bytes.", count(trigger::MOST_BODY_BYTES)),
            early("rate_per_minute", "How many requests a minute are accepted.", count(trigger::MOST_RATE)),
            early("signature", signed, signature),
            any("input", "The input of the execution, with templates in any text; the body if absent."),
        ],
    )
}

/// One schedule that starts a workflow.
fn schedule() -> Value {
    let overlap = "What a tick does while an earlier execution of the schedule has not ended; skip if absent.";
    let cron = json!({
        "description": "A cron expression: minute hour day month weekday, or six fields that begin with seconds.",
        "type": "string", "minLength": 1, "maxLength": MAX_CRON_LEN,
    });
    object(
        &["cron"],
        &[
            ("cron", cron),
            early("timezone", "A time zone of the IANA database; UTC if absent.", text()),
            any("input", "The input of the execution."),
            early("priority", "1 goes first, 3 is the default, 5 goes last.", count(5)),
            early("concurrency_key", "Executions with the same key run one at a time.", at_most(200)),
            one_of("overlap", overlap, &Overlap::ALL.map(Overlap::name)),
            one_of("catch_up", "Which missed ticks are run; the last if absent.", &CatchUp::ALL.map(CatchUp::name)),
        ],
    )
}

fn node(is_listed: bool) -> Value {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    let need = json!({ "type": "string", "pattern": NEED });
    let needs = json!({ "anyOf": [need, { "type": "array", "items": need }] });
    let joins = ["all_success", "any_success", "all_done"];
    let delivery = "What happens to a call that a crash interrupts: it is repeated, or the node ends UNKNOWN.";
    let mut fields = vec![
        ("kind", json!({ "description": "The kind of the node.", "enum": kinds })),
        early("needs", "The nodes that must settle first: node, or node.branch.", needs),
        early("if", "An expression; if it is not true, the node is skipped.", condition()),
        any("with", "The configuration for the kind."),
        one_of("when", "When a node with several incoming edges may start.", &joins),
        one_of("on_error", "What a failure of the node does to the execution.", &["fail", "continue"]),
        retry_ref(),
        timeout(),
        milliseconds("timeout_ms"),
        one_of("delivery", delivery, &["at_least_once", "at_most_once"]),
        early("description", "A description for people.", at_most(MAX_DESCRIPTION_LEN)),
    ];
    if is_listed {
        fields.extend(["key", "id"].map(|name| early(name, "The key of the node.", self::name())));
    }
    let mut node = object(&["kind"], &fields);
    node["allOf"] = Kind::ALL.iter().map(|kind| with(*kind)).collect();
    node
}

/// The `with` of a node must match the schema of its kind.
fn with(kind: Kind) -> Value {
    let schema = kind::schema(kind);
    let needed = schema.get("required").or(schema.get("oneOf")).is_some();
    let mut then = json!({ "properties": { "with": schema } });
    if needed {
        then["required"] = json!(["with"]);
    }
    json!({ "if": { "properties": { "kind": { "const": kind.name() } }, "required": ["kind"] }, "then": then })
}

fn edge() -> Value {
    let label = json!({ "anyOf": [name(), { "type": "boolean" }] });
    object(
        &["from", "to"],
        &[("from", name()), ("to", name()), early("label", "The branch that the edge belongs to.", label)],
    )
}

fn retry() -> Value {
    object(
        &[],
        &[
            early("max_attempts", "How often the node is attempted in all.", count(Policy::MOST_ATTEMPTS)),
            early("initial", "The wait before the second attempt.", duration()),
            milliseconds("initial_ms"),
            early("factor", "The factor by which each wait grows.", count(MAX_FACTOR)),
            one_of("backoff", "exponential is factor 2, fixed is factor 1.", &["exponential", "fixed"]),
            early("max", "The longest wait.", duration()),
            milliseconds("max_ms"),
        ],
    )
}

fn retry_ref() -> Field {
    early("retry", "How a failed node is retried.", json!({ "$ref": "#/$defs/retry" }))
}

fn timeout() -> Field {
    early("timeout", "The time limit, such as 30s or 1h.", duration())
}

fn milliseconds(name: &'static str) -> Field {
    early(name, "The time limit in milliseconds.", json!({ "type": "integer", "minimum": 0 }))
}

fn name() -> Value {
    json!({ "type": "string", "pattern": NAME })
}

fn at_most(longest: usize) -> Value {
    json!({ "type": "string", "maxLength": longest })
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn names(schema: &Value) -> Vec<&str> {
        let fields = schema["properties"].as_object().expect("fields");
        let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn every_field_that_is_read_is_in_the_schema() {
        let sorted = |fields: &[&'static str]| {
            let mut fields = fields.to_vec();
            fields.sort_unstable();
            fields
        };
        let schema = workflow();
        assert_eq!(names(&schema), sorted(read::FIELDS));
        assert_eq!(names(&schema["$defs"]["node"]), sorted(read::node::FIELDS));
        assert_eq!(names(&schema["$defs"]["listed_node"]), sorted(&[read::node::OWN_KEY, read::node::FIELDS].concat()));
        assert_eq!(names(&schema["$defs"]["retry"]), sorted(read::retry::FIELDS));
    }
}
