//! The columns of the one published table, and values of their types.
//!
//! Invariants
//! - The table's columns are a contract with its users; a test compares this list with the database.
//! - A value is compared in its column's type; null is no value.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

pub const SCHEMA: &str = "public";
pub const TABLE: &str = "workflow_queue_projection";

/// A column's type, by the name that the database has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Uuid,
    Text,
    Jsonb,
    Timestamptz,
    Int4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub of: Type,
}

const fn column(name: &'static str, of: Type) -> Column {
    Column { name, of }
}

/// Every column, in the table's order.
pub const COLUMNS: [Column; 19] = [
    column("id", Type::Uuid),
    column("event_id", Type::Uuid),
    column("event_type", Type::Text),
    column("event_data", Type::Jsonb),
    column("stream_id", Type::Uuid),
    column("stream_type", Type::Text),
    column("status", Type::Text),
    column("worker_id", Type::Text),
    column("claimed_at", Type::Timestamptz),
    column("workflow_id", Type::Text),
    column("workflow_run_id", Type::Text),
    column("completed_at", Type::Timestamptz),
    column("failed_at", Type::Timestamptz),
    column("error_message", Type::Text),
    column("error_stack", Type::Text),
    column("retry_count", Type::Int4),
    column("result", Type::Jsonb),
    column("created_at", Type::Timestamptz),
    column("updated_at", Type::Timestamptz),
];

/// The column of this name.
pub fn find(name: &str) -> Option<Column> {
    COLUMNS.into_iter().find(|column| column.name == name)
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Typed {
    Uuid(Uuid),
    Text(String),
    Json(Value),
    Time(Timestamp),
    Number(i64),
}

impl Type {
    /// As the catalogue calls it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Uuid => "uuid",
            Type::Text => "text",
            Type::Jsonb => "jsonb",
            Type::Timestamptz => "timestamptz",
            Type::Int4 => "int4",
        }
    }

    /// Has it an order that filters may ask for?
    pub fn is_ordered(self) -> bool {
        self != Type::Jsonb
    }

    /// A value written in a filter.
    pub fn read(self, text: &str) -> Option<Typed> {
        match self {
            Type::Uuid => text.parse().ok().map(Typed::Uuid),
            Type::Text => Some(Typed::Text(text.to_owned())),
            Type::Jsonb => serde_json::from_str(text).ok().map(Typed::Json),
            Type::Timestamptz => time(text).map(Typed::Time),
            Type::Int4 => text.parse::<i32>().ok().map(|number| Typed::Number(number.into())),
        }
    }

    /// A value of a row's image; none for null.
    pub fn value(self, value: &Value) -> Option<Typed> {
        match (self, value) {
            (_, Value::Null) => None,
            (Type::Jsonb, value) => Some(Typed::Json(value.clone())),
            (Type::Int4, value) => value.as_i64().map(Typed::Number),
            (_, value) => self.read(value.as_str()?),
        }
    }
}

/// As people and programs write a time: with a `T` or a blank, and in UTC where no offset is given.
fn time(text: &str) -> Option<Timestamp> {
    let text = text.trim().replacen(' ', "T", 1);
    text.parse().ok().or_else(|| format!("{text}Z").parse().ok())
}

impl Typed {
    /// The order of two values of one column; none for what has none.
    pub fn order(&self, other: &Typed) -> Option<Ordering> {
        match (self, other) {
            (Typed::Uuid(a), Typed::Uuid(b)) => Some(a.cmp(b)),
            (Typed::Text(a), Typed::Text(b)) => Some(a.cmp(b)),
            (Typed::Time(a), Typed::Time(b)) => Some(a.cmp(b)),
            (Typed::Number(a), Typed::Number(b)) => Some(a.cmp(b)),
            (Typed::Json(a), Typed::Json(b)) => (a == b).then_some(Ordering::Equal),
            _ => None,
        }
    }
}
