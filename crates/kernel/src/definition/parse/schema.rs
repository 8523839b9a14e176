//! The JSON Schema of a document: what editors complete from and check against while one types.
//!
//! Invariants
//! - Whatever `parse` takes, the schema takes. It refuses less: what hangs together is not its to say.
//! - Every field that is read is in it, and no other.
//!
//! Not here: the rules themselves (`parse::read`, `kind`, `inputs`).

use serde_json::{Value, json};

use super::read::{MAX_CONCURRENCY, MAX_DESCRIPTION_LEN, MAX_DISPATCH_ATTEMPTS, MAX_NAME_LEN, retry::MAX_FACTOR};
use crate::definition::inputs;
use crate::definition::{Kind, MAX_EDGES, MAX_NODES};
use crate::kind;
use crate::kind::schema::{any, duration, early, object};
use crate::run::failure::Policy;
use crate::schedule::calendar::MAX_CRON_LEN;
use crate::schedule::{CatchUp, MAX_IN_DOCUMENT, Overlap};
use crate::webhook::hook;

/// Where the schema is published, as its own name.
pub const ID: &str = "urn:forebay:workflow:1";

/// A node's key, or a label.
const NAME: &str = "^[A-Za-z_][A-Za-z0-9_-]{0,63}$";
/// What a node needs: a node, or one branch of it.
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

fn fields() -> Vec<(&'static str, Value)> {
    let nodes = json!({
        "description": "What is done: a map of nodes, or a list of nodes with keys.",
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
    let defaults = object(&[], &[("retry", retry_ref()), ("timeout", timeout()), ("timeout_ms", milliseconds())]);
    vec![
        ("version", early("The version of this form: 1.", json!({ "const": 1 }))),
        ("name", early("What it is called; the file's name if not said.", text(MAX_NAME_LEN))),
        ("description", early("What it is for.", text(MAX_DESCRIPTION_LEN))),
        ("inputs", early("What a start must bring, each field a subset of JSON Schema.", inputs)),
        (
            "additional_inputs",
            early("Whether a start may bring other inputs too; true if not said.", json!({ "type": "boolean" })),
        ),
        ("on", on()),
        ("vars", early("Constants, for expressions to name.", json!({ "type": "object" }))),
        ("defaults", early("What holds for nodes that do not say otherwise.", defaults)),
        ("nodes", nodes),
        ("edges", early("Orders between nodes, beside what they need.", edges)),
        ("outputs", any("What the execution answers with, templates in any text.")),
        ("timeout", timeout()),
        ("timeout_ms", milliseconds()),
        ("concurrency", early("How many executions may run at once.", count(MAX_CONCURRENCY))),
        ("key_concurrency", early("How many with the same concurrency key may run at once.", count(MAX_CONCURRENCY))),
        ("max_attempts", early("How often an engine may refuse a start.", count(MAX_DISPATCH_ATTEMPTS))),
    ]
}

/// What starts a workflow by itself.
fn on() -> Value {
    let event = object(
        &["type"],
        &[
            (
                "type",
                json!({ "description": "An event type, or the beginning of some and .* (order.*).", "type": "string" }),
            ),
            ("filter", early("An expression; where it is false the job is skipped.", json!({ "type": "string" }))),
            ("input", any("What the execution starts with, templates in any text.")),
            (
                "workflow_id",
                early(
                    "The job's workflow_id, with {field} for parts of the event's data.",
                    json!({ "type": "string" }),
                ),
            ),
            ("lease", early("How long a silent worker keeps a job.", duration())),
            ("lease_s", early("The same, in seconds.", json!({ "type": "integer", "minimum": 1 }))),
        ],
    );
    let webhook = early("A POST to an address of its own: /hooks/TOKEN.", on_webhook());
    let schedules = json!({ "type": "array", "maxItems": MAX_IN_DOCUMENT, "items": schedule() });
    early(
        "What starts it by itself.",
        object(
            &[],
            &[
                ("event", early("A domain event.", event)),
                ("schedule", early("Times, each a cron expression in a time zone.", schedules)),
                ("webhook", webhook),
            ],
        ),
    )
}

/// What is said of the address that starts a workflow.
fn on_webhook() -> Value {
    let text = || json!({ "type": "string" });
    let signature = object(
        &["secret"],
        &[
            (
                "scheme",
                early(
                    "standard_webhooks, or own (the default): as the other fields say.",
                    json!({ "enum": ["own", "standard_webhooks"] }),
                ),
            ),
            ("header", early("The header with the signature; webhook-signature for standard_webhooks.", text())),
            ("secret", json!({ "description": "The name of a secret of the workspace.", "type": "string" })),
            ("encoding", early("How it is written; hex if not said.", json!({ "enum": ["hex", "base64"] }))),
            ("prefix", early("What stands before it, such as sha256=.", text())),
            ("timestamp_header", early("The header with the time, good for five minutes.", text())),
            ("id_header", early("The header with the message's id, which tells a replay.", text())),
            ("signed", early("What is signed, with {timestamp}, {id} and {body}.", text())),
        ],
    );
    let names = json!({ "type": "array", "items": { "type": "string" } });
    object(
        &[],
        &[
            ("idempotency_header", early("The same value starts one execution; Idempotency-Key if not said.", text())),
            ("headers", early("Headers that the workflow sees as trigger.headers.", names)),
            ("max_body_bytes", early("The longest body.", count(u64::from(hook::MOST_BODY_BYTES)))),
            ("rate_per_minute", early("How many requests a minute are taken.", count(u64::from(hook::MOST_RATE)))),
            ("signature", early("How requests are signed, HMAC-SHA256.", signature)),
            ("input", any("What the execution starts with, templates in any text; the body if not said.")),
        ],
    )
}

/// One of the times at which a workflow starts by itself.
fn schedule() -> Value {
    object(
        &["cron"],
        &[
            (
                "cron",
                json!({
                    "description": "minute hour day month weekday, with seconds before them if there are six.",
                    "type": "string", "minLength": 1, "maxLength": MAX_CRON_LEN,
                }),
            ),
            ("timezone", early("Of the IANA database; UTC if not said.", json!({ "type": "string" }))),
            ("input", any("What the execution starts with.")),
            ("priority", early("1 goes first, 3 is usual, 5 goes last.", count(5))),
            ("concurrency_key", early("Executions with the same key go one at a time.", text(200))),
            (
                "overlap",
                early(
                    "What a tick does while an execution that it started before has not ended; skip if not said.",
                    json!({ "enum": Overlap::ALL.map(Overlap::name) }),
                ),
            ),
            (
                "catch_up",
                early(
                    "Which ticks that were missed are run; the last if not said.",
                    json!({ "enum": CatchUp::ALL.map(CatchUp::name) }),
                ),
            ),
        ],
    )
}

fn node(is_listed: bool) -> Value {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    let need = json!({ "type": "string", "pattern": NEED });
    let key = || early("Its name.", json!({ "type": "string", "pattern": NAME }));
    let mut fields = vec![
        ("kind", json!({ "description": "What it does.", "enum": kinds })),
        (
            "needs",
            early(
                "The nodes before it: node, or node.branch.",
                json!({ "anyOf": [need, { "type": "array", "items": need }] }),
            ),
        ),
        (
            "if",
            early("An expression; unless it is true, the node is skipped.", json!({ "type": ["string", "boolean"] })),
        ),
        ("with", any("The configuration of its kind.")),
        ("when", early("When it may start.", json!({ "enum": ["all_success", "any_success", "all_done"] }))),
        ("on_error", early("What its failure does to the execution.", json!({ "enum": ["fail", "continue"] }))),
        ("retry", retry_ref()),
        ("timeout", timeout()),
        ("timeout_ms", milliseconds()),
        (
            "delivery",
            early(
                "What a crash in the middle of a call means: it is repeated, or its result is unknown.",
                json!({ "enum": ["at_least_once", "at_most_once"] }),
            ),
        ),
        ("description", early("What it is for.", text(MAX_DESCRIPTION_LEN))),
    ];
    if is_listed {
        fields.extend([("key", key()), ("id", key())]);
    }
    let mut node = object(&["kind"], &fields);
    node["allOf"] = Kind::ALL.iter().map(|kind| with(*kind)).collect();
    node
}

/// If a node is of a kind, its `with` is that kind's.
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
    let name = || json!({ "type": "string", "pattern": NAME });
    let label = json!({ "anyOf": [name(), { "type": "boolean" }] });
    object(&["from", "to"], &[("from", name()), ("to", name()), ("label", early("The branch it is of.", label))])
}

fn retry() -> Value {
    let wait = |description: &str| early(description, duration());
    object(
        &[],
        &[
            ("max_attempts", early("How often it is tried in all.", count(u64::from(Policy::MOST_ATTEMPTS)))),
            ("initial", wait("The first wait.")),
            ("initial_ms", milliseconds()),
            ("factor", early("By how much each wait is longer.", count(MAX_FACTOR))),
            ("backoff", early("factor 2, or 1.", json!({ "enum": ["exponential", "fixed"] }))),
            ("max", wait("The longest wait.")),
            ("max_ms", milliseconds()),
        ],
    )
}

fn retry_ref() -> Value {
    early("How it is tried again.", json!({ "$ref": "#/$defs/retry" }))
}

fn timeout() -> Value {
    early("How long it may take, such as 30s or 1h.", duration())
}

fn milliseconds() -> Value {
    early("The same in milliseconds.", json!({ "type": "integer", "minimum": 0 }))
}

fn count(most: u64) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": most })
}

fn text(longest: usize) -> Value {
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
        assert_eq!(names(&schema["$defs"]["listed_node"]), sorted(read::node::LIST_FIELDS));
        assert_eq!(names(&schema["$defs"]["retry"]), sorted(read::retry::FIELDS));
    }
}
