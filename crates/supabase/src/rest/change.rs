//! The columns that an update sets: those that its body names.
//!
//! Invariants
//! - The body may name only the columns that a worker may change (`WRITABLE`). The columns of the event and the primary
//!   key are never among them.
//!
//! Not here: which status changes are legal (`kernel::job`, checked by the trigger of the table), parsing the values
//! (the database).

use serde_json::Value;

use super::RestError;
use kernel::job::table::{self, Column};

/// The columns that an update may set.
const WRITABLE: [&str; 12] = [
    "status",
    "worker_id",
    "claimed_at",
    "workflow_id",
    "workflow_run_id",
    "completed_at",
    "failed_at",
    "error_message",
    "error_stack",
    "retry_count",
    "result",
    "updated_at",
];

/// Reads the columns that the body of an update sets.
pub fn read_columns(body: &Value) -> Result<Vec<Column>, RestError> {
    let fields = body.as_object().ok_or_else(|| RestError::Body("it is something else".to_owned()))?;
    let column = |name: &String| {
        let column = table::find(name).ok_or_else(|| RestError::UnknownBodyColumn(name.clone()))?;
        if WRITABLE.contains(&column.name) { Ok(column) } else { Err(RestError::ReadOnlyColumn(column.name)) }
    };
    fields.keys().map(column).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_a_worker_may_change_can_be_set() {
        let names =
            |body: Value| read_columns(&body).map(|set| set.iter().map(|column| column.name).collect::<Vec<_>>());
        assert_eq!(names(json!({ "status": "x", "claimed_at": "now" })), Ok(vec!["status", "claimed_at"]));
        assert_eq!(names(json!({})), Ok(vec![]));
        for fixed in ["id", "event_id", "event_type", "event_data", "stream_id", "stream_type", "created_at"] {
            assert_eq!(names(json!({ fixed: null })), Err(RestError::ReadOnlyColumn(fixed)));
        }
        assert_eq!(names(json!({ "Status": 1 })), Err(RestError::UnknownBodyColumn("Status".to_owned())));
        assert!(names(json!([{ "status": "x" }])).is_err());
        assert!(WRITABLE.iter().all(|name| table::find(name).is_some()));
    }
}
