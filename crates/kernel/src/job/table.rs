//! The columns of the table of jobs, the only table that clients can query, and values of the columns' types.
//!
//! Invariants
//! - The table's columns are a contract with its users; a test compares this list with the database.
//! - Values are compared as values of their column's type. Null is not a value, so it is never compared.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::names::names;

pub const SCHEMA: &str = "public";
pub const TABLE: &str = "workflow_queue_projection";

names! {
    /// The type of a column, named as in PostgreSQL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ColumnType {
        Uuid = "uuid",
        Text = "text",
        Jsonb = "jsonb",
        Timestamptz = "timestamptz",
        Int4 = "int4",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub of: ColumnType,
}

const fn column(name: &'static str, of: ColumnType) -> Column {
    Column { name, of }
}

/// Every column, in the table's order.
pub const COLUMNS: [Column; 19] = [
    column("id", ColumnType::Uuid),
    column("event_id", ColumnType::Uuid),
    column("event_type", ColumnType::Text),
    column("event_data", ColumnType::Jsonb),
    column("stream_id", ColumnType::Uuid),
    column("stream_type", ColumnType::Text),
    column("status", ColumnType::Text),
    column("worker_id", ColumnType::Text),
    column("claimed_at", ColumnType::Timestamptz),
    column("workflow_id", ColumnType::Text),
    column("workflow_run_id", ColumnType::Text),
    column("completed_at", ColumnType::Timestamptz),
    column("failed_at", ColumnType::Timestamptz),
    column("error_message", ColumnType::Text),
    column("error_stack", ColumnType::Text),
    column("retry_count", ColumnType::Int4),
    column("result", ColumnType::Jsonb),
    column("created_at", ColumnType::Timestamptz),
    column("updated_at", ColumnType::Timestamptz),
];

/// The column of this name.
pub fn find(name: &str) -> Option<Column> {
    COLUMNS.into_iter().find(|column| column.name == name)
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValue {
    Uuid(Uuid),
    Text(String),
    Json(Value),
    Time(Timestamp),
    Number(i64),
}

impl ColumnType {
    /// Can filters compare values of this type with "less than" and "greater than"?
    pub fn is_ordered(self) -> bool {
        self != ColumnType::Jsonb
    }

    /// Parses a value that a filter contains. Returns `None` if the text is not a value of this type.
    pub fn read(self, text: &str) -> Option<ColumnValue> {
        match self {
            ColumnType::Uuid => text.parse().ok().map(ColumnValue::Uuid),
            ColumnType::Text => Some(ColumnValue::Text(text.to_owned())),
            ColumnType::Jsonb => serde_json::from_str(text).ok().map(ColumnValue::Json),
            ColumnType::Timestamptz => time(text).map(ColumnValue::Time),
            ColumnType::Int4 => text.parse::<i32>().ok().map(|number| ColumnValue::Number(number.into())),
        }
    }

    /// Converts a JSON value of a row. Returns `None` for null.
    pub fn value(self, value: &Value) -> Option<ColumnValue> {
        match (self, value) {
            (_, Value::Null) => None,
            (ColumnType::Jsonb, value) => Some(ColumnValue::Json(value.clone())),
            (ColumnType::Int4, value) => value.as_i64().map(ColumnValue::Number),
            (_, value) => self.read(value.as_str()?),
        }
    }
}

/// Parses a time. Date and time are separated by `T` or a space. A time without an offset is in UTC.
fn time(text: &str) -> Option<Timestamp> {
    let text = text.trim().replacen(' ', "T", 1);
    text.parse().ok().or_else(|| format!("{text}Z").parse().ok())
}

impl ColumnValue {
    /// Compares two values of one column. Returns `None` if they have no order: two JSON values that differ.
    pub fn order(&self, other: &ColumnValue) -> Option<Ordering> {
        match (self, other) {
            (ColumnValue::Uuid(a), ColumnValue::Uuid(b)) => Some(a.cmp(b)),
            (ColumnValue::Text(a), ColumnValue::Text(b)) => Some(a.cmp(b)),
            (ColumnValue::Time(a), ColumnValue::Time(b)) => Some(a.cmp(b)),
            (ColumnValue::Number(a), ColumnValue::Number(b)) => Some(a.cmp(b)),
            (ColumnValue::Json(a), ColumnValue::Json(b)) => (a == b).then_some(Ordering::Equal),
            _ => None,
        }
    }
}
