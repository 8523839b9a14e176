//! Reads the fields of a document, in either form (see `parse`).
//!
//! Invariants
//! - Omitted fields get their defaults here. So a stored graph contains every value, and a later change of a default
//!   does not affect it.
//! - A message about a limit contains the limit.
//!
//! Not here: checking that the nodes are connected (`plan`), and the paths in templates (`parse::references`).

pub(super) mod node;
pub(super) mod retry;
mod work;

use std::time::Duration;

use serde_json::Value;

use super::Draft;
use crate::definition::fields::{CheckTime, Code, Fields, Problem, child};
use crate::definition::inputs::{self, Inputs};
use crate::definition::{Edge, MAX_EDGES, MAX_NODES, Starts};
use crate::event::binding;
use crate::expression::type_name;
use crate::ids::{InvalidName, Label, NodeKey};
use crate::run::failure::Profiles;
use crate::schedule;
use crate::trigger;
use retry::Retry;

/// The longest time that can be set for a node or an execution.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The longest time that one attempt at a node may take. An attempt uses resources that other nodes wait for.
pub(super) const LONGEST_NODE_TIMEOUT: Duration = Duration::from_secs(60 * 60);
pub(super) const MAX_NAME_LEN: usize = 128;
pub(super) const MAX_DESCRIPTION_LEN: usize = 4_096;
pub(super) const MAX_CONCURRENCY: u32 = 100_000;
pub(super) const MAX_DISPATCH_ATTEMPTS: u32 = 100;

pub(super) const FIELDS: &[&str] = &[
    "version",
    "name",
    "description",
    "inputs",
    "additional_inputs",
    "vars",
    "defaults",
    "nodes",
    "edges",
    "outputs",
    "timeout",
    "timeout_ms",
    "concurrency",
    "key_concurrency",
    "max_attempts",
    "on",
];

/// The defaults for nodes that do not set these fields.
#[derive(Clone, Copy, Debug, Default)]
struct Defaults {
    profiles: Profiles,
    retry: Retry,
    timeout_ms: Option<u64>,
}

/// Reads a whole document.
pub(super) fn document(document: &Value, profiles: &Profiles, problems: &mut Vec<Problem>) -> Draft {
    let mut draft = Draft::default();
    let Some(mut top) = Fields::open(document, "", FIELDS, CheckTime::Run, problems) else { return draft };
    if top.get("version").is_some_and(|version| version.as_u64() != Some(1)) {
        top.wrong("version", "must be 1");
    }
    let definition = &mut draft.definition;
    definition.name = short_text(&mut top, "name", MAX_NAME_LEN);
    if definition.name.as_ref().is_some_and(|name| name.trim().is_empty() || name.chars().any(char::is_control)) {
        top.refuse(Code::BadName, "name", "must not be blank and must be one line");
    } else if definition.name.as_ref().is_some_and(|name| name.chars().any(is_unseen)) {
        top.refuse(
            Code::BadName,
            "name",
            "contains invisible characters, or characters that change the direction of text",
        );
    }
    definition.description = short_text(&mut top, "description", MAX_DESCRIPTION_LEN);
    definition.inputs = top.object("inputs").map(|inputs| Value::Object(inputs.clone())).unwrap_or_default();
    let found = inputs::check(&definition.inputs).into_iter();
    top.problems.extend(found.map(|found| found.below("/inputs")));
    definition.additional_inputs = top.boolean("additional_inputs");
    definition.vars = top.object("vars").map(|vars| Value::Object(vars.clone())).unwrap_or_default();
    definition.outputs = top.get("outputs").cloned().unwrap_or_default();
    definition.timeout_ms = milliseconds(&mut top, "timeout", "timeout_ms", 1, LONGEST_TIMEOUT);
    definition.concurrency = top.count("concurrency", MAX_CONCURRENCY);
    definition.key_concurrency = top.count("key_concurrency", MAX_CONCURRENCY);
    definition.max_attempts = top.count("max_attempts", MAX_DISPATCH_ATTEMPTS);
    let starts = Inputs::read(&definition.inputs, definition.additional_inputs.unwrap_or(true));
    definition.on = on(&mut top, &starts);
    let defaults = defaults(&mut top, *profiles);
    let readable = nodes(&mut top, defaults, &mut draft) && edges(&mut top, &mut draft);
    // If the nodes cannot be read, checking the graph would only report problems that follow from that.
    if readable { draft } else { Draft::default() }
}

/// Is this a character that makes two names look the same? It has no width, or changes the direction of the text.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Reads `on`: the events, requests and schedules that start the workflow.
fn on(top: &mut Fields<'_, '_>, inputs: &Inputs) -> Starts {
    let mut on = Starts::default();
    let (Some(value), at) = (top.get("on"), top.pointer("on")) else { return on };
    let known = &["event", "http", "schedule"];
    let Some(fields) = Fields::open(value, &at, known, CheckTime::Run, top.problems) else { return on };
    if let Some(event) = fields.get("event") {
        on.event = binding::read(event, &fields.pointer("event"), fields.problems);
    }
    if let Some(list) = fields.get("schedule") {
        on.schedule = schedule::read(list, &fields.pointer("schedule"), inputs, fields.problems);
    }
    if let Some(http) = fields.get("http") {
        on.http = trigger::read(http, &fields.pointer("http"), fields.problems);
    }
    on
}

fn defaults(top: &mut Fields<'_, '_>, profiles: Profiles) -> Defaults {
    let mut defaults = Defaults { profiles, ..Defaults::default() };
    let (Some(value), at) = (top.get("defaults"), top.pointer("defaults")) else { return defaults };
    let known = &["retry", "timeout", "timeout_ms"];
    if let Some(mut fields) = Fields::open(value, &at, known, CheckTime::Run, top.problems) {
        defaults.retry = retry::read(&mut fields);
        defaults.timeout_ms = milliseconds(&mut fields, "timeout", "timeout_ms", 1, LONGEST_NODE_TIMEOUT);
    }
    defaults
}

/// Reads the nodes in either form. Returns false, and reports why, if there is no list of nodes to check.
fn nodes(top: &mut Fields<'_, '_>, defaults: Defaults, draft: &mut Draft) -> bool {
    let at = top.pointer("nodes");
    let items: Vec<(Option<&str>, String, &Value)> = match top.get("nodes") {
        None => {
            if !top.has("nodes") {
                top.require("nodes");
            }
            return top.has("nodes");
        }
        Some(Value::Object(map)) => map.iter().map(|(key, node)| (Some(key.as_str()), child(&at, key), node)).collect(),
        Some(Value::Array(list)) => {
            list.iter().enumerate().map(|(place, node)| (None, child(&at, &place.to_string()), node)).collect()
        }
        Some(other) => {
            top.refuse(
                Code::WrongType,
                "nodes",
                format!("must be a map of nodes or a list of them, not {}", type_name(other)),
            );
            return false;
        }
    };
    if items.len() > MAX_NODES {
        top.refuse(Code::TooLarge, "nodes", format!("there are {} nodes, more than {MAX_NODES}", items.len()));
        return false;
    }
    for (key, at, value) in items {
        node::read(key, &at, value, defaults, draft, top.problems);
    }
    true
}

/// Reads `edges`, and checks how many edges there are together with those from `needs`.
fn edges(top: &mut Fields<'_, '_>, draft: &mut Draft) -> bool {
    let list = match top.get("edges") {
        None => &[],
        Some(Value::Array(list)) => list.as_slice(),
        Some(other) => {
            top.refuse(Code::WrongType, "edges", format!("must be a list of edges, not {}", type_name(other)));
            draft.lost_edges = true;
            &[]
        }
    };
    let all = draft.definition.edges.len() + list.len();
    if all > MAX_EDGES {
        top.refuse(Code::TooLarge, "edges", format!("there are {all} edges, more than {MAX_EDGES}"));
        return false;
    }
    for (place, value) in list.iter().enumerate() {
        let at = child("/edges", &place.to_string());
        match edge(value, &at, top.problems) {
            Some(edge) => {
                draft.definition.edges.push(edge);
                draft.edge_at.push(at);
            }
            None => draft.lost_edges = true,
        }
    }
    true
}

fn edge(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Edge> {
    let mut fields = Fields::open(value, at, &["from", "to", "label"], CheckTime::Run, problems)?;
    let from = end(&mut fields, "from");
    let to = end(&mut fields, "to");
    let label = label(&mut fields);
    Some(Edge { from: from?, to: to?, label: label? })
}

fn end(fields: &mut Fields<'_, '_>, name: &str) -> Option<NodeKey> {
    fields.require(name);
    let text = fields.text(name)?;
    named(fields, name, NodeKey::new(text))
}

/// An edge's label: `None` if it is invalid, `Some(None)` if the edge has no label.
fn label(fields: &mut Fields<'_, '_>) -> Option<Option<Label>> {
    let text = match fields.get("label") {
        None => return Some(None),
        // YAML reads the branch `true` as a boolean.
        Some(Value::Bool(truth)) => truth.to_string(),
        Some(_) => fields.text("label")?.to_owned(),
    };
    named(fields, "label", Label::new(&text)).map(Some)
}

fn named<T>(fields: &mut Fields<'_, '_>, name: &str, read: Result<T, InvalidName>) -> Option<T> {
    read.map_err(|bad| fields.refuse(Code::BadName, name, bad.to_string())).ok()
}

fn short_text(fields: &mut Fields<'_, '_>, name: &str, longest: usize) -> Option<String> {
    let text = fields.text(name)?;
    if text.len() > longest {
        fields.refuse(Code::TooLarge, name, format!("is longer than {longest} bytes"));
    }
    Some(text.to_owned())
}

/// A duration, as authors write it (`timeout: 30s`) or as it is stored (`timeout_ms: 30000`).
fn milliseconds(fields: &mut Fields<'_, '_>, name: &str, stored: &str, least: u64, longest: Duration) -> Option<u64> {
    let most = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    if fields.get(stored).is_some() {
        if fields.get(name).is_some() {
            fields.wrong(stored, format!("give either {name} or {stored}, not both"));
        }
        return fields.integer(stored, least..=most);
    }
    let ms = u64::try_from(fields.duration(name, longest)?.as_millis()).unwrap_or(u64::MAX);
    if ms < least {
        fields.wrong(name, "must be greater than zero");
        return None;
    }
    Some(ms)
}
