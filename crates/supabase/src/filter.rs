//! Filters of a subscription: `column=[not.]op.value`, joined by commas, all of which must hold.
//!
//! Invariants
//! - A filter is parsed once, when its channel is joined, into typed comparisons. An invalid filter fails the join, and
//!   the reply has the reason.
//! - A null value matches only `is.null`. No other comparison matches it, not even with `not.`.
//! - A comma inside parentheses, or inside quotes at the start of a value, does not separate values.
//!
//! Not here: filters in a query string (`crate::rest`): the database evaluates those.

use kernel::job::query::{Comparison, Predicate, Term};
use kernel::job::table::{self, Column, ColumnValue};
use serde_json::Value;

/// The conditions that a row must fulfil. Empty: every row matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    terms: Vec<Term<ColumnValue>>,
}

/// The largest number of comparisons in one filter. It is bounded because all of them are evaluated for each change.
const MOST_TERMS: usize = 20;

/// The syntax in which a term is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// A filter of the socket: any value may be quoted.
    SocketFilter,
    /// A query string: only the values of a list may be quoted.
    QueryString,
}

/// Why a filter cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("filter {0:?} must have the form column=operator.value")]
    Shape(String),
    #[error("there is no column {0:?}")]
    Column(String),
    #[error("unknown operator {0:?}: use eq, neq, lt, lte, gt, gte, in or is")]
    Operator(String),
    #[error("column {column} has no order, so {operator} cannot be used with it")]
    Unordered { column: &'static str, operator: String },
    #[error("{value:?} is not of type {of}, the type of column {column}")]
    Value { column: &'static str, of: &'static str, value: String },
    #[error("a list must have the form (a,b,c), with at most {0} values")]
    List(usize),
    #[error("the operator is allows only null")]
    Is,
    #[error("a filter has at most {MOST_TERMS} comparisons")]
    TooMany,
}

impl Syntax {
    /// The largest number of values in one `in`.
    fn most_values(self) -> usize {
        match self {
            Syntax::SocketFilter => 100,
            Syntax::QueryString => 1_000,
        }
    }
}

impl Filter {
    /// Reads a filter as a client writes it.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        if text.trim().is_empty() {
            return Ok(Filter::default());
        }
        let terms = split(text);
        if terms.len() > MOST_TERMS {
            return Err(FilterError::TooMany);
        }
        let terms = terms.into_iter().map(|term| {
            let (name, rest) = term.split_once('=').ok_or_else(|| FilterError::Shape(term.to_owned()))?;
            typed_term(read_term(name.trim(), rest, Syntax::SocketFilter)?)
        });
        terms.collect::<Result<_, _>>().map(|terms| Filter { terms })
    }

    /// Whether a row, as JSON, matches every comparison.
    pub fn fits(&self, row: &Value) -> bool {
        self.terms.iter().all(|term| term.fits(row))
    }
}

/// Reads one comparison. `rest` is the text after the name of the column: `[not.]op.value`.
pub fn read_term(name: &str, rest: &str, syntax: Syntax) -> Result<Term<String>, FilterError> {
    let column = table::find(name).ok_or_else(|| FilterError::Column(name.to_owned()))?;
    let (not, rest) = rest.strip_prefix("not.").map_or((false, rest), |rest| (true, rest));
    let (operator, value) = rest.split_once('.').ok_or_else(|| FilterError::Shape(format!("{name}={rest}")))?;
    let test = match operator {
        "in" => Predicate::In(list(value, syntax.most_values())?),
        "is" if value == "null" => Predicate::IsNull,
        "is" => return Err(FilterError::Is),
        _ => {
            let comparison = comparison(operator).ok_or_else(|| FilterError::Operator(operator.to_owned()))?;
            if !column.of.is_ordered() && !matches!(comparison, Comparison::Eq | Comparison::Neq) {
                return Err(FilterError::Unordered { column: column.name, operator: operator.to_owned() });
            }
            let value = if syntax == Syntax::SocketFilter { unquoted(value) } else { value.to_owned() };
            Predicate::Compare(comparison, value)
        }
    };
    Ok(Term { column, not, test })
}

fn typed_term(term: Term<String>) -> Result<Term<ColumnValue>, FilterError> {
    let Term { column, not, test } = term;
    let test = match test {
        Predicate::Compare(comparison, value) => Predicate::Compare(comparison, typed(column, &value)?),
        Predicate::In(values) => {
            Predicate::In(values.iter().map(|value| typed(column, value)).collect::<Result<_, _>>()?)
        }
        Predicate::IsNull => Predicate::IsNull,
    };
    Ok(Term { column, not, test })
}

/// The comparison with this name. None: there is no such comparison.
fn comparison(name: &str) -> Option<Comparison> {
    Some(match name {
        "eq" => Comparison::Eq,
        "neq" => Comparison::Neq,
        "lt" => Comparison::Lt,
        "lte" => Comparison::Lte,
        "gt" => Comparison::Gt,
        "gte" => Comparison::Gte,
        _ => return None,
    })
}

fn typed(column: Column, value: &str) -> Result<ColumnValue, FilterError> {
    let wrong = || FilterError::Value { column: column.name, of: column.of.name(), value: value.to_owned() };
    column.of.read(value).ok_or_else(wrong)
}

/// Splits a text at its separating commas. A quote is special only at the start of a value.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, 0_usize, false, false);
    let mut before = ',';
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' if quoted => quoted = false,
            '"' if matches!(before, '.' | '(' | ',') => quoted = true,
            _ if quoted => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    parts.push(&text[from..]);
    parts
}

/// Reads the values of `(a,b,c)`. `()` is an empty list.
fn list(text: &str, most: usize) -> Result<Vec<String>, FilterError> {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or(FilterError::List(most))?;
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    let values: Vec<String> = split(inner).into_iter().map(unquoted).collect();
    if values.len() > most { Err(FilterError::List(most)) } else { Ok(values) }
}

/// Removes the quotes around a value, and the escapes inside them.
fn unquoted(text: &str) -> String {
    let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return text.to_owned() };
    let (mut value, mut escaped) = (String::new(), false);
    for c in inner.chars() {
        match c {
            '\\' if !escaped => escaped = true,
            c => {
                value.push(c);
                escaped = false;
            }
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_compare_in_the_columns_type() {
        let row = json!({
            "id": "6000db13-ef63-4a50-af33-ff8dba5ce0e0", "status": "pending", "retry_count": 10, "worker_id": null,
            "workflow_id": "a,b", "created_at": "2026-11-15T06:36:51.104733+00:00", "event_data": {"n": 1},
            "error_message": "say \"no\"", "event_type": "(x"
        });
        for (filter, fits) in [
            ("", true),
            ("  ", true),
            ("status=eq.pending", true),
            ("status=eq.failed", false),
            ("status=neq.failed", true),
            ("retry_count=gt.9", true),
            ("retry_count=lt.9", false),
            ("retry_count=gte.10,retry_count=lte.10", true),
            ("status=eq.pending,retry_count=eq.11", false),
            ("status=in.(failed,pending)", true),
            ("status=not.in.(failed,pending)", false),
            ("workflow_id=in.(\"a,b\",c)", true),
            ("workflow_id=eq.\"a,b\",status=eq.pending", true),
            ("error_message=eq.\"say \\\"no\\\"\"", true),
            ("event_type=eq.\"(x\",status=eq.pending", true),
            ("worker_id=eq.x", false),
            ("worker_id=neq.x", false),
            ("worker_id=not.eq.x", false),
            ("worker_id=not.in.(x)", false),
            ("worker_id=is.null", true),
            ("status=not.is.null", true),
            ("id=eq.6000DB13-EF63-4A50-AF33-FF8DBA5CE0E0", true),
            ("created_at=lt.2026-11-15T07:36:51+01:00", false),
            ("created_at=gt.2026-11-15 06:00:00", true),
            ("event_data=eq.{\"n\":1}", true),
        ] {
            assert_eq!(Filter::parse(filter).map(|read| read.fits(&row)), Ok(fits), "{filter}");
        }
    }

    #[test]
    fn the_number_of_comparisons_is_limited() {
        let of = |count: usize| Filter::parse(&vec!["status=neq.x"; count].join(","));
        assert!(of(MOST_TERMS).is_ok());
        assert_eq!(of(MOST_TERMS + 1), Err(FilterError::TooMany));
    }

    #[test]
    fn an_invalid_filter_is_refused_with_the_reason() {
        for (filter, reason) in [
            ("status", "filter \"status\" must have the form column=operator.value"),
            ("status=pending", "filter \"status=pending\" must have the form column=operator.value"),
            ("nope=eq.1", "there is no column \"nope\""),
            ("status=like.p", "unknown operator \"like\": use eq, neq, lt, lte, gt, gte, in or is"),
            ("retry_count=eq.abc", "\"abc\" is not of type int4, the type of column retry_count"),
            ("retry_count=in.(1,x)", "\"x\" is not of type int4, the type of column retry_count"),
            ("event_data=lt.1", "column event_data has no order, so lt cannot be used with it"),
            ("status=in.pending", "a list must have the form (a,b,c), with at most 100 values"),
            ("status=is.true", "the operator is allows only null"),
        ] {
            let refused = Filter::parse(filter).expect_err(filter);
            assert_eq!(refused.to_string(), reason);
        }
    }
}
