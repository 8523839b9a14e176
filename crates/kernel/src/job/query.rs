//! A query of the table of jobs, `workflow_queue_projection`: which rows and columns, in which order.
//!
//! Invariants
//! - Columns come from `super::table`, so no column name in an SQL statement comes from a request.
//! - A null value matches only `IsNull`. It matches no other predicate, with or without `not`.
//!
//! Not here: how a client writes a query (`supabase`), the statement that runs it (`store::job`).

use std::cmp::Ordering;

use serde_json::Value;

use super::table::{Column, ColumnValue};

/// The most rows that one query returns and one update changes.
pub const MOST_ROWS: u32 = 1_000;

/// A query of the table of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub columns: Vec<Column>,
    /// The conditions; a row must match all of them. Values stay text, and the database parses them.
    pub terms: Vec<Term<String>>,
    pub order: Vec<OrderBy>,
    pub limit: u32,
    pub offset: u32,
}

/// One column of a sort order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderBy {
    pub column: Column,
    pub descending: bool,
    pub nulls_first: bool,
}

/// A condition on one column. `V` is text as the client wrote it (`String`), or a value of the column's type.
#[derive(Clone, Debug, PartialEq)]
pub struct Term<V> {
    pub column: Column,
    pub not: bool,
    pub test: Predicate<V>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Predicate<V> {
    Compare(Comparison, V),
    In(Vec<V>),
    IsNull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Neq,
    Lt,
    Lte,
    Gt,
    Gte,
}

/// Whether an update is committed. This is decided when the number of changed rows is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    Commit,
    RollBack,
}

impl Term<ColumnValue> {
    /// Does a row, as JSON, match this condition?
    pub fn fits(&self, row: &Value) -> bool {
        let value = row.get(self.column.name).and_then(|value| self.column.of.value(value));
        let holds = match (&self.test, value) {
            (Predicate::IsNull, value) => value.is_none(),
            (_, None) => return false,
            (Predicate::In(values), Some(value)) => values.contains(&value),
            (Predicate::Compare(comparison, with), Some(value)) => comparison.holds(value.order(with)),
        };
        holds != self.not
    }
}

impl Comparison {
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Comparison::Eq => order == Some(Ordering::Equal),
            Comparison::Neq => order != Some(Ordering::Equal),
            Comparison::Lt => order.is_some_and(Ordering::is_lt),
            Comparison::Lte => order.is_some_and(Ordering::is_le),
            Comparison::Gt => order.is_some_and(Ordering::is_gt),
            Comparison::Gte => order.is_some_and(Ordering::is_ge),
        }
    }
}
