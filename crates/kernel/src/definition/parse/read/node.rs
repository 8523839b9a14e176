//! Reads one node of a document, and the edges that its `needs` define.
//!
//! Invariants
//! - A node with a valid key is added to the draft, even if its other fields are wrong.
//!
//! Not here: the fields of its `with` (`kind`).

use serde_json::Value;

use super::{Defaults, Draft, MAX_DESCRIPTION_LEN, named, short_text, work};
use crate::definition::fields::{CheckTime, Code, Fields, Problem};
use crate::definition::{Edge, Join, Kind, Node, OnError};
use crate::expression::type_name;
use crate::ids::{InvalidName, Label, NodeKey};

pub(in crate::definition::parse) const FIELDS: &[&str] =
    &["kind", "needs", "if", "with", "when", "on_error", "retry", "timeout", "timeout_ms", "delivery", "description"];
pub(in crate::definition::parse) const OWN_KEY: &[&str] = &["key", "id"];

const JOINS: &[(&str, Join)] =
    &[("all_success", Join::AllSuccess), ("any_success", Join::AnySuccess), ("all_done", Join::AllDone)];
const ON_ERROR: &[(&str, OnError)] = &[("fail", OnError::Fail), ("continue", OnError::Continue)];

/// Reads a node. Its key is the key in the map of nodes, or the field `key` of a node in a list.
pub(super) fn read(
    key: Option<&str>,
    at: &str,
    value: &Value,
    defaults: Defaults,
    draft: &mut Draft,
    problems: &mut Vec<Problem>,
) {
    let known = if key.is_some() { FIELDS.to_vec() } else { [OWN_KEY, FIELDS].concat() };
    let fields = Fields::open(value, at, &known, CheckTime::Run, problems);
    let Some(mut fields) = fields else { return stand_in(key, at, draft) };
    let key = match key {
        Some(key) => NodeKey::new(key)
            .map_err(|bad| fields.problems.push(Problem::new(Code::BadName, at, bad.to_string()).of_key()))
            .ok(),
        None => own_key(&mut fields),
    };
    let mut work = work::read(&mut fields, defaults);
    let on_error = fields.choice("on_error", ON_ERROR);
    let unclear = work.kind.is_none() || (on_error.is_none() && fields.get("on_error").is_some());
    let when = fields.choice("when", JOINS).unwrap_or_default();
    let description = short_text(&mut fields, "description", MAX_DESCRIPTION_LEN);
    if work.kind == Some(Kind::ForEach) {
        work::read_action(&mut work.with, &fields.pointer("with"), defaults, fields.problems);
    }
    let (needs, lost) = needs(&mut fields);
    draft.lost_edges |= lost || key.is_none();
    let Some(key) = key else { return };
    for (pointer, from, label) in needs {
        draft.definition.edges.push(Edge { from, to: key.clone(), label });
        draft.edge_at.push(pointer);
    }
    if unclear {
        draft.unclear.push(key.clone());
    }
    let node = Node { when, on_error: on_error.unwrap_or_default(), description, ..work.node(key) };
    draft.definition.nodes.push(node);
    draft.node_at.push(at.to_owned());
}

/// The kind that a node gets if its own kind is not known. It accepts any templates, and requires no fields that would
/// be reported as missing.
pub(super) const STAND_IN: Kind = Kind::Transform;

/// Adds a substitute for a node that is not an object, so that edges to it are not reported as problems too.
fn stand_in(key: Option<&str>, at: &str, draft: &mut Draft) {
    draft.lost_edges = true;
    let Some(key) = key.and_then(|key| NodeKey::new(key).ok()) else { return };
    draft.unclear.push(key.clone());
    draft.definition.nodes.push(Node::new(key, STAND_IN));
    draft.node_at.push(at.to_owned());
}

fn own_key(fields: &mut Fields<'_, '_>) -> Option<NodeKey> {
    let name = match (fields.get("key"), fields.get("id")) {
        (Some(_), Some(_)) => {
            fields.wrong("id", "give either key or id, not both");
            "key"
        }
        (None, Some(_)) => "id",
        _ => "key",
    };
    fields.require(name);
    let text = fields.text(name)?;
    named(fields, name, NodeKey::new(text))
}

/// Reads `needs`: `node` or `node.label`, or a list of them. Returns each with its pointer, and whether any entry could
/// not be read.
fn needs(fields: &mut Fields<'_, '_>) -> (Vec<(String, NodeKey, Option<Label>)>, bool) {
    let items = fields.each("needs").unwrap_or_default();
    let mut needs = Vec::new();
    let count = items.len();
    for (pointer, item) in items {
        match need(item) {
            Ok((from, label)) => needs.push((pointer, from, label)),
            Err((code, message)) => fields.problems.push(Problem::new(code, pointer, message)),
        }
    }
    let lost = needs.len() < count;
    (needs, lost)
}

fn need(item: &Value) -> Result<(NodeKey, Option<Label>), (Code, String)> {
    let Value::String(text) = item else {
        let message = format!("must be the name of a node, or node.branch, not {}", type_name(item));
        return Err((Code::WrongType, message));
    };
    let bad = |bad: InvalidName| (Code::BadName, bad.to_string());
    let (node, label) = text.split_once('.').map_or((text.as_str(), None), |(node, label)| (node, Some(label)));
    let node = NodeKey::new(node).map_err(bad)?;
    let label = label.map(Label::new).transpose().map_err(bad)?;
    Ok((node, label))
}
