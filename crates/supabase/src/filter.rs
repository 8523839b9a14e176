//! Filters of a subscription: `column=[not.]op.value`, joined by commas, all of which must hold.
//!
//! Invariants
//! - Read once, at the join, into typed comparisons; whatever cannot be is refused there, with the reason.
//! - Null matches nothing but `is.null`, under `not.` neither.
//! - A comma inside brackets, or inside quotes at the start of a value, separates nothing.
//!
//! Not here: the same comparisons as a query string has them (`crate::rest`), which the database evaluates.

use kernel::job::query::{Comparison, Term, Test};
use kernel::job::table::{self, Column, Typed};
use serde_json::Value;

/// What a filter asks of a row. Empty: nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    terms: Vec<Term<Typed>>,
}

/// The most comparisons of one filter: each is made for each change.
const MOST_TERMS: usize = 20;

/// Where a term is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a filter of the socket, where any value may stand in quotes.
    Filter,
    /// In a query string, where the values of a list may, and any other is taken as it is.
    Query,
}

/// Why a filter cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("filter {0:?} is not of the form column=operator.value")]
    Shape(String),
    #[error("there is no column {0:?}")]
    Column(String),
    #[error("the operator {0:?} is not known; there are eq, neq, lt, lte, gt, gte, in and is")]
    Operator(String),
    #[error("column {column} has no order, so {operator} cannot be asked of it")]
    Unordered { column: &'static str, operator: String },
    #[error("{value:?} is no {of}, which column {column} holds")]
    Value { column: &'static str, of: &'static str, value: String },
    #[error("a list is written (a,b,c), with at most {0} values")]
    List(usize),
    #[error("`is` takes null")]
    Is,
    #[error("a filter has at most {MOST_TERMS} comparisons")]
    TooMany,
}

impl Place {
    /// The most values of one `in`.
    fn most_values(self) -> usize {
        match self {
            Place::Filter => 100,
            Place::Query => 1_000,
        }
    }
}

impl Filter {
    /// Reads a filter as a client writes it.
    pub fn parse(text: &str) -> Result<Filter, Invalid> {
        if text.trim().is_empty() {
            return Ok(Filter::default());
        }
        let terms = split(text);
        if terms.len() > MOST_TERMS {
            return Err(Invalid::TooMany);
        }
        let terms = terms.into_iter().map(|term| {
            let (name, rest) = term.split_once('=').ok_or_else(|| Invalid::Shape(term.to_owned()))?;
            typed_term(read_term(name.trim(), rest, Place::Filter)?)
        });
        terms.collect::<Result<_, _>>().map(|terms| Filter { terms })
    }

    /// Does a row's image fit?
    pub fn fits(&self, row: &Value) -> bool {
        self.terms.iter().all(|term| term.fits(row))
    }
}

/// Reads what follows a column's name, `[not.]op.value`.
pub fn read_term(name: &str, rest: &str, place: Place) -> Result<Term<String>, Invalid> {
    let column = table::find(name).ok_or_else(|| Invalid::Column(name.to_owned()))?;
    let (not, rest) = rest.strip_prefix("not.").map_or((false, rest), |rest| (true, rest));
    let (operator, value) = rest.split_once('.').ok_or_else(|| Invalid::Shape(format!("{name}={rest}")))?;
    let test = match operator {
        "in" => Test::In(list(value, place.most_values())?),
        "is" if value == "null" => Test::IsNull,
        "is" => return Err(Invalid::Is),
        _ => {
            let comparison = comparison(operator).ok_or_else(|| Invalid::Operator(operator.to_owned()))?;
            if !column.of.is_ordered() && !matches!(comparison, Comparison::Eq | Comparison::Neq) {
                return Err(Invalid::Unordered { column: column.name, operator: operator.to_owned() });
            }
            let value = if place == Place::Filter { unquoted(value) } else { value.to_owned() };
            Test::Compare(comparison, value)
        }
    };
    Ok(Term { column, not, test })
}

fn typed_term(term: Term<String>) -> Result<Term<Typed>, Invalid> {
    let Term { column, not, test } = term;
    let test = match test {
        Test::Compare(comparison, value) => Test::Compare(comparison, typed(column, &value)?),
        Test::In(values) => Test::In(values.iter().map(|value| typed(column, value)).collect::<Result<_, _>>()?),
        Test::IsNull => Test::IsNull,
    };
    Ok(Term { column, not, test })
}

/// The comparison of this name.
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

fn typed(column: Column, value: &str) -> Result<Typed, Invalid> {
    let wrong = || Invalid::Value { column: column.name, of: column.of.name(), value: value.to_owned() };
    column.of.read(value).ok_or_else(wrong)
}

/// The parts of a text between commas that separate. A quote is one only at the start of a value.
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

/// The values of `(a,b,c)`; none of `()`.
fn list(text: &str, most: usize) -> Result<Vec<String>, Invalid> {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or(Invalid::List(most))?;
    if inner.is_empty() {
        return Ok(Vec::new());
    }
    let values: Vec<String> = split(inner).into_iter().map(unquoted).collect();
    if values.len() > most { Err(Invalid::List(most)) } else { Ok(values) }
}

/// A value without the quotes around it.
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
    fn a_filter_has_so_many_comparisons_and_no_more() {
        let of = |count: usize| Filter::parse(&vec!["status=neq.x"; count].join(","));
        assert!(of(MOST_TERMS).is_ok());
        assert_eq!(of(MOST_TERMS + 1), Err(Invalid::TooMany));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        for (filter, reason) in [
            ("status", "filter \"status\" is not of the form column=operator.value"),
            ("status=pending", "filter \"status=pending\" is not of the form column=operator.value"),
            ("nope=eq.1", "there is no column \"nope\""),
            ("status=like.p", "the operator \"like\" is not known; there are eq, neq, lt, lte, gt, gte, in and is"),
            ("retry_count=eq.abc", "\"abc\" is no int4, which column retry_count holds"),
            ("retry_count=in.(1,x)", "\"x\" is no int4, which column retry_count holds"),
            ("event_data=lt.1", "column event_data has no order, so lt cannot be asked of it"),
            ("status=in.pending", "a list is written (a,b,c), with at most 100 values"),
            ("status=is.true", "`is` takes null"),
        ] {
            let refused = Filter::parse(filter).expect_err(filter);
            assert_eq!(refused.to_string(), reason);
        }
    }
}
