//! A change of the published table as the socket tells it.
//!
//! Invariants
//! - `columns` is always there: without it the client breaks.
//! - Of the old row only its key is told: whoever may see the row now need not have been allowed to then.
//! - A row that is too large comes with its short columns alone, and says so.

use serde_json::{Map, Value, json};

use kernel::change::Change;
use kernel::job::table::{COLUMNS, Column, SCHEMA, TABLE, Type};

/// The largest row that is told whole, as JSON.
const LARGEST: usize = 1024 * 1024;
/// The largest value that is told of a larger one.
const SHORT: usize = 64;

/// The `data` of a change, as JSON: the same for all who are told these columns (none: every one).
pub fn data(change: &Change, columns: Option<&[Column]>) -> String {
    let selected = columns.unwrap_or(&COLUMNS);
    let whole = change.record.as_ref().map(|row| shown(row, selected));
    let is_large = whole.as_ref().is_some_and(|row| row.to_string().len() > LARGEST);
    let columns: Vec<Value> = selected.iter().map(|it| json!({ "name": it.name, "type": it.of.name() })).collect();
    let mut data = Map::new();
    data.insert("schema".to_owned(), json!(SCHEMA));
    data.insert("table".to_owned(), json!(TABLE));
    data.insert("commit_timestamp".to_owned(), json!(format!("{:.3}", change.at)));
    data.insert("type".to_owned(), json!(change.op.name()));
    data.insert("columns".to_owned(), Value::Array(columns));
    if let Some(row) = whole {
        data.insert("record".to_owned(), if is_large { short(row) } else { row });
    }
    if change.old.is_some() {
        data.insert("old_record".to_owned(), json!({ "id": change.id }));
    }
    let errors = if is_large { json!(["Error 413: Payload Too Large"]) } else { Value::Null };
    data.insert("errors".to_owned(), errors);
    Value::Object(data).to_string()
}

/// The row as the client reads it: it parses a text in a JSON column once more.
fn shown(row: &Value, selected: &[Column]) -> Value {
    let mut row = row.clone();
    if let Some(values) = row.as_object_mut() {
        values.retain(|name, _| selected.iter().any(|column| column.name == name));
    }
    for column in COLUMNS.iter().filter(|column| column.of == Type::Jsonb) {
        if let Some(value) = row.get_mut(column.name).filter(|value| value.is_string()) {
            *value = Value::String(value.to_string());
        }
    }
    row
}

fn short(mut row: Value) -> Value {
    if let Some(values) = row.as_object_mut() {
        values.retain(|_, value| value.to_string().len() <= SHORT);
    }
    row
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use kernel::change::cursor::Place;
    use kernel::change::{Op, Topic};

    fn told(op: Op, record: Option<Value>, old: Option<Value>) -> Value {
        let (place, id) = (Place { xid: 1, seq: 1 }, Uuid::nil());
        let at = Timestamp::from_millisecond(1_763_188_611_108).expect("a time");
        let change = Change { place, at, topic: Topic::Projection, op, id, workspace: None, status: None, record, old };
        let mut data: Value = serde_json::from_str(&data(&change, None)).expect("JSON");
        assert_eq!(data["columns"].as_array().map(Vec::len), Some(19));
        data.as_object_mut().expect("an object").remove("columns");
        data
    }

    #[test]
    fn each_kind_of_change_has_its_rows() {
        let head = |op: &str| json!({ "schema": "public", "table": TABLE, "commit_timestamp": "2025-11-15T06:36:51.108Z", "type": op, "errors": null });
        let with = |op: &str, more: Value| {
            let mut all = head(op);
            all.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            all
        };
        let (row, old) = (json!({ "status": "pending" }), json!({ "id": Uuid::nil() }));
        assert_eq!(told(Op::Insert, Some(row.clone()), None), with("INSERT", json!({ "record": row })));
        assert_eq!(
            told(Op::Update, Some(row.clone()), Some(row.clone())),
            with("UPDATE", json!({ "record": row, "old_record": old }))
        );
        assert_eq!(told(Op::Delete, None, Some(row)), with("DELETE", json!({ "old_record": old })));
    }

    #[test]
    fn only_the_columns_that_are_selected_are_told() {
        let (place, id) = (Place { xid: 1, seq: 1 }, Uuid::nil());
        let record = Some(json!({ "id": "a", "status": "pending", "event_data": {} }));
        let (at, old) = (Timestamp::UNIX_EPOCH, Some(json!({ "id": "a" })));
        let (topic, op) = (Topic::Projection, Op::Update);
        let change = Change { place, at, topic, op, id, workspace: None, status: None, record, old };
        let columns = [COLUMNS[6], COLUMNS[0]];
        let told: Value = serde_json::from_str(&data(&change, Some(&columns))).expect("JSON");
        assert_eq!(told["record"], json!({ "id": "a", "status": "pending" }));
        assert_eq!(told["columns"], json!([{ "name": "status", "type": "text" }, { "name": "id", "type": "uuid" }]));
        assert_eq!(told["old_record"], json!({ "id": Uuid::nil() }));
    }

    #[test]
    fn a_text_in_a_json_column_arrives_as_a_text() {
        let told = told(Op::Insert, Some(json!({ "event_data": "123", "result": { "a": "1" } })), None);
        assert_eq!(told["record"], json!({ "event_data": "\"123\"", "result": { "a": "1" } }));
    }

    #[test]
    fn a_row_that_is_too_large_says_so() {
        let large = "x".repeat(LARGEST);
        let told = told(Op::Insert, Some(json!({ "id": "a", "error_stack": large })), None);
        assert_eq!(told["record"], json!({ "id": "a" }));
        assert_eq!(told["errors"], json!(["Error 413: Payload Too Large"]));
    }
}
