//! The differences between two versions of a definition, in a form for people.
//!
//! Invariants
//! - Nodes are identified by their keys, and edges by their ends and label. So another order is not a difference.
//! - A change is reported at the deepest field that contains it; a list is reported as a whole.
//! - Equal definitions have no changes. With old and new swapped, the changes are the same, with `before` and `after`
//!   swapped.
//!
//! Not here: how a diff is shown.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::definition::{Definition, Edge};
use crate::expression::template::push_segment;

/// One difference.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FieldChange {
    /// The changed field, such as `/nodes/KEY/with/url`, `/edges/a -> b` or `/timeout_ms`.
    pub pointer: String,
    /// The old value; absent if the field was added.
    pub before: Option<Value>,
    /// The new value; absent if the field was deleted.
    pub after: Option<Value>,
}

/// Every difference. Nodes come first, in the order of their keys.
pub fn diff(old: &Definition, new: &Definition) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(&laid_out(old), &laid_out(new), &mut String::new(), &mut changes);
    changes.sort_by_key(|change| {
        let rank = ["/nodes/", "/edges/"].iter().position(|top| change.pointer.starts_with(top));
        rank.unwrap_or(2)
    });
    changes
}

/// A definition as JSON, with `nodes` and `edges` as objects: nodes by key, edges by `FROM.LABEL -> TO`.
fn laid_out(definition: &Definition) -> Value {
    let mut whole = serde_json::to_value(definition).unwrap_or_default();
    let mut nodes = Map::new();
    for node in &definition.nodes {
        let mut fields = serde_json::to_value(node).unwrap_or_default();
        fields.as_object_mut().map(|fields| fields.remove("key"));
        nodes.insert(node.key.as_str().to_owned(), fields);
    }
    let edges: Map<String, Value> = definition.edges.iter().map(|edge| (name(edge), json!(true))).collect();
    whole["nodes"] = Value::Object(nodes);
    whole["edges"] = Value::Object(edges);
    whole
}

fn name(edge: &Edge) -> String {
    let label = edge.label.as_ref().map(|label| format!(".{}", label.as_str())).unwrap_or_default();
    format!("{}{label} -> {}", edge.from, edge.to)
}

fn compare(old: &Value, new: &Value, pointer: &mut String, changes: &mut Vec<FieldChange>) {
    if old == new {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        let (before, after) = (Some(old.clone()), Some(new.clone()));
        return changes.push(FieldChange { pointer: pointer.clone(), before, after });
    };
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let length = pointer.len();
        push_segment(pointer, key);
        match (before.get(key), after.get(key)) {
            (Some(before), Some(after)) => compare(before, after, pointer, changes),
            (before, after) => {
                let (before, after) = (before.cloned(), after.cloned());
                changes.push(FieldChange { pointer: pointer.clone(), before, after });
            }
        }
        pointer.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::parse;
    use expect_test::expect;

    fn definition(document: Value) -> Definition {
        parse::check(&document).expect("a good document").0
    }

    fn shown(changes: &[FieldChange]) -> String {
        let shown = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
        let line = |change: &FieldChange| {
            format!("{}: {} => {}\n", change.pointer, shown(&change.before), shown(&change.after))
        };
        changes.iter().map(line).collect()
    }

    #[test]
    fn a_change_is_reported_where_it_is() {
        let log =
            |message: &str, needs: Value| json!({ "kind": "LOG", "needs": needs, "with": { "message": message } });
        let old = definition(json!({
            "timeout": "1h",
            "nodes": { "a": log("x", json!([])), "b": log("x", json!("a")), "c": log("x", json!("b")) },
        }));
        let new = definition(json!({
            "concurrency": 3,
            "nodes": { "c": log("x", json!("a")), "a": log("y", json!([])), "d": log("z", json!("c")) },
        }));
        let changes = diff(&old, &new);
        expect![[r#"
            /nodes/a/with/message: "x" => "y"
            /nodes/b: {"retry":{"max_attempts":3,"initial_ms":1000,"factor":2,"max_ms":30000},"kind":"LOG","with":{"message":"x"},"when":"all_success","on_error":"fail"} => -
            /nodes/d: - => {"retry":{"max_attempts":3,"initial_ms":1000,"factor":2,"max_ms":30000},"kind":"LOG","with":{"message":"z"},"when":"all_success","on_error":"fail"}
            /edges/a -> b: true => -
            /edges/a -> c: - => true
            /edges/b -> c: true => -
            /edges/c -> d: - => true
            /concurrency: - => 3
            /timeout_ms: 3600000 => -
        "#]].assert_eq(&shown(&changes));
        let reversed = |change: FieldChange| FieldChange { before: change.after, after: change.before, ..change };
        assert_eq!(diff(&new, &old), changes.into_iter().map(reversed).collect::<Vec<_>>());
        assert_eq!(diff(&old, &old), []);
    }
}
