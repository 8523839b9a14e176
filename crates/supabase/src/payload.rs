//! A change of the published table, as the socket sends it.
//!
//! Invariants
//! - The field `columns` is always present, because the client fails without it.
//! - Of the row before the change only the primary key is sent: the client may be allowed to see the new row but not
//!   the old row.
//! - A row that is too large is sent with its short values only, and with an error in `errors`.

use serde_json::{Map, Value, json};

use kernel::change::Change;
use kernel::job::table::{COLUMNS, Column, ColumnType, SCHEMA, TABLE};

/// The largest row that is sent with all columns, as JSON.
const LARGEST: usize = 1024 * 1024;
/// The largest value that is still sent if the row is larger than `LARGEST`.
const SHORT: usize = 64;

/// Encodes a change as the JSON of the field `data`, for all bindings that select these columns. None: every column.
pub fn encode_change(change: &Change, columns: Option<&[Column]>) -> String {
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

/// The selected columns of a row. The client parses every text in a JSON column as JSON, so such a text is encoded as
/// JSON once more.
fn shown(row: &Value, selected: &[Column]) -> Value {
    let mut row = row.clone();
    if let Some(values) = row.as_object_mut() {
        values.retain(|name, _| selected.iter().any(|column| column.name == name));
    }
    for column in COLUMNS.iter().filter(|column| column.of == ColumnType::Jsonb) {
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
    use kernel::change::cursor::Position;
    use kernel::change::{Op, Topic};

    fn sent(op: Op, record: Option<Value>, old: Option<Value>) -> Value {
        let (position, id) = (Position { xid: 1, seq: 1 }, Uuid::nil());
        let at = Timestamp::from_millisecond(1_763_188_611_108).expect("a time");
        let change = Change { position, at, topic: Topic::Job, op, id, workspace: None, status: None, record, old };
        let mut data: Value = serde_json::from_str(&encode_change(&change, None)).expect("JSON");
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
        assert_eq!(sent(Op::Insert, Some(row.clone()), None), with("INSERT", json!({ "record": row })));
        assert_eq!(
            sent(Op::Update, Some(row.clone()), Some(row.clone())),
            with("UPDATE", json!({ "record": row, "old_record": old }))
        );
        assert_eq!(sent(Op::Delete, None, Some(row)), with("DELETE", json!({ "old_record": old })));
    }

    #[test]
    fn only_selected_columns_are_sent() {
        let (position, id) = (Position { xid: 1, seq: 1 }, Uuid::nil());
        let record = Some(json!({ "id": "a", "status": "pending", "event_data": {} }));
        let (at, old) = (Timestamp::UNIX_EPOCH, Some(json!({ "id": "a" })));
        let (topic, op) = (Topic::Job, Op::Update);
        let change = Change { position, at, topic, op, id, workspace: None, status: None, record, old };
        let columns = [COLUMNS[6], COLUMNS[0]];
        let observed: Value = serde_json::from_str(&encode_change(&change, Some(&columns))).expect("JSON");
        assert_eq!(observed["record"], json!({ "id": "a", "status": "pending" }));
        assert_eq!(
            observed["columns"],
            json!([{ "name": "status", "type": "text" }, { "name": "id", "type": "uuid" }])
        );
        assert_eq!(observed["old_record"], json!({ "id": Uuid::nil() }));
    }

    #[test]
    fn a_text_in_a_json_column_arrives_as_a_text() {
        let observed = sent(Op::Insert, Some(json!({ "event_data": "123", "result": { "a": "1" } })), None);
        assert_eq!(observed["record"], json!({ "event_data": "\"123\"", "result": { "a": "1" } }));
    }

    #[test]
    fn a_row_that_is_too_large_says_so() {
        let large = "x".repeat(LARGEST);
        let observed = sent(Op::Insert, Some(json!({ "id": "a", "error_stack": large })), None);
        assert_eq!(observed["record"], json!({ "id": "a" }));
        assert_eq!(observed["errors"], json!(["Error 413: Payload Too Large"]));
    }
}
