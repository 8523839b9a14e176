//! What an update sets: the columns that its body names.
//!
//! Invariants
//! - Only what a worker may change can be named; the row's event and its key never.
//!
//! Not here: which changes are legal then (the table's guard, `kernel::job`), values (the database reads them).

use serde_json::Value;

use super::Refused;
use kernel::job::table::{self, Column};

/// What may be set.
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

/// The columns that a body sets.
pub fn columns(body: &Value) -> Result<Vec<Column>, Refused> {
    let fields = body.as_object().ok_or_else(|| Refused::Body("it is something else".to_owned()))?;
    let column = |name: &String| {
        let column = table::find(name).ok_or_else(|| Refused::Unknown(name.clone()))?;
        if WRITABLE.contains(&column.name) { Ok(column) } else { Err(Refused::Fixed(column.name)) }
    };
    fields.keys().map(column).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_a_worker_may_change_can_be_set() {
        let names = |body: Value| columns(&body).map(|set| set.iter().map(|column| column.name).collect::<Vec<_>>());
        assert_eq!(names(json!({ "status": "x", "claimed_at": "now" })), Ok(vec!["status", "claimed_at"]));
        assert_eq!(names(json!({})), Ok(vec![]));
        for fixed in ["id", "event_id", "event_type", "event_data", "stream_id", "stream_type", "created_at"] {
            assert_eq!(names(json!({ fixed: null })), Err(Refused::Fixed(fixed)));
        }
        assert_eq!(names(json!({ "Status": 1 })), Err(Refused::Unknown("Status".to_owned())));
        assert!(names(json!([{ "status": "x" }])).is_err());
        assert!(WRITABLE.iter().all(|name| table::find(name).is_some()));
    }
}
