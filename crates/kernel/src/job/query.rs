//! A question about the published table: which rows and columns, in which order.
//!
//! Invariants
//! - Columns are the table's own (`super::table`), so that a name never comes out of a request.
//! - Null matches nothing but `IsNull`, under `not` neither.
//!
//! Not here: how a client writes a question (`supabase`), the statement that answers it (`store::job`).

use std::cmp::Ordering;

use serde_json::Value;

use super::table::{Column, Typed};

/// The most rows of one answer, and of one update.
pub const MOST_ROWS: u32 = 1_000;

/// What is asked of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub columns: Vec<Column>,
    /// All of them must hold. Values stay texts, for the database to read.
    pub terms: Vec<Term<String>>,
    pub order: Vec<By>,
    pub limit: u32,
    pub offset: u32,
}

/// One step of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    pub column: Column,
    pub descending: bool,
    pub nulls_first: bool,
}

/// What is asked of one column, of values as they were written or of the column's type.
#[derive(Clone, Debug, PartialEq)]
pub struct Term<V> {
    pub column: Column,
    pub not: bool,
    pub test: Test<V>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test<V> {
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

/// What becomes of a change once it is known how many rows it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    Undo,
}

impl Term<Typed> {
    /// Does a row's image fit?
    pub fn fits(&self, row: &Value) -> bool {
        let value = row.get(self.column.name).and_then(|value| self.column.of.value(value));
        let holds = match (&self.test, value) {
            (Test::IsNull, value) => value.is_none(),
            (_, None) => return false,
            (Test::In(values), Some(value)) => values.contains(&value),
            (Test::Compare(comparison, with), Some(value)) => comparison.holds(value.order(with)),
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
