//! A query of the table: columns, filters that must all hold, an order, and a limit.
//!
//! Invariants
//! - Every parameter must be a keyword of the protocol (such as `select`) or a filter of a column that exists. Any
//!   other parameter is refused.

use kernel::job::query::{MOST_ROWS, OrderBy, Query};
use kernel::job::table::{self, COLUMNS, Column};

use super::RestError;
use crate::filter::{self, Syntax};

/// A parsed query string.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedQuery {
    pub query: Query,
    /// The name of the parameter that limits the rows (`limit` or `offset`). An update may not have one.
    bounded: Option<&'static str>,
}

impl ParsedQuery {
    pub fn read(pairs: &[(String, String)]) -> Result<ParsedQuery, RestError> {
        let mut terms = Vec::new();
        let (mut columns, mut order, mut limit, mut offset) = (None, None, None, None);
        for (name, value) in pairs {
            match name.as_str() {
                "select" => once("select", &mut columns, select(value)?)?,
                "order" => once("order", &mut order, by(value)?)?,
                "limit" => once("limit", &mut limit, number("limit", value)?)?,
                "offset" => once("offset", &mut offset, number("offset", value)?)?,
                // Chooses the fields of an insert of several objects. Inserts are not supported, so it has no effect.
                "columns" => {}
                "or" | "and" | "not.or" | "not.and" => return Err(RestError::Unsupported(name.clone())),
                name => terms.push(filter::read_term(name, value, Syntax::QueryString)?),
            }
        }
        let bounded = limit.map(|_| "limit").or(offset.map(|_| "offset"));
        let query = Query {
            columns: columns.unwrap_or_else(|| COLUMNS.to_vec()),
            terms,
            order: order.unwrap_or_default(),
            limit: limit.unwrap_or(MOST_ROWS).min(MOST_ROWS),
            offset: offset.unwrap_or_default(),
        };
        Ok(ParsedQuery { query, bounded })
    }

    /// Refuses a query that an update may not have: an update must select its rows by at least one filter, and by
    /// filters only.
    pub fn check_update(&self) -> Result<(), RestError> {
        match self.bounded {
            Some(name) => Err(RestError::LimitInUpdate(name)),
            None if self.query.terms.is_empty() => Err(RestError::NoFilter),
            None => Ok(()),
        }
    }
}

fn once<T>(name: &'static str, place: &mut Option<T>, value: T) -> Result<(), RestError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(RestError::Twice { name }),
    }
}

fn number(name: &'static str, value: &str) -> Result<u32, RestError> {
    value.parse().map_err(|_| RestError::Number { name })
}

fn find(name: &str) -> Result<Column, RestError> {
    // These characters mark PostgREST's other forms: embedding, aliases, casts, paths and functions.
    if name.contains(['(', ')', ':', '>', '!', '"', '.']) {
        return Err(RestError::Unsupported(name.to_owned()));
    }
    table::find(name).ok_or_else(|| RestError::Column(name.to_owned()))
}

/// `*`, or columns with commas between them.
fn select(value: &str) -> Result<Vec<Column>, RestError> {
    let mut columns: Vec<Column> = Vec::new();
    for name in value.split(',').map(str::trim) {
        let more = if name == "*" || value.is_empty() { COLUMNS.to_vec() } else { vec![find(name)?] };
        for column in more {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
    }
    Ok(columns)
}

/// `column[.asc|.desc][.nullsfirst|.nullslast]`, with commas between them. Nulls come last, and first in a descending
/// order.
fn by(value: &str) -> Result<Vec<OrderBy>, RestError> {
    let step = |text: &str| {
        let wrong = || RestError::Order(text.to_owned());
        let mut parts = text.trim().split('.');
        let column = find(parts.next().unwrap_or_default())?;
        let (mut descending, mut nulls_first) = (None, None);
        for part in parts {
            let (place, is) = match part {
                "asc" | "desc" => (&mut descending, part == "desc"),
                "nullsfirst" | "nullslast" => (&mut nulls_first, part == "nullsfirst"),
                _ => return Err(wrong()),
            };
            if place.replace(is).is_some() {
                return Err(wrong());
            }
        }
        let descending = descending.unwrap_or(false);
        Ok(OrderBy { column, descending, nulls_first: nulls_first.unwrap_or(descending) })
    };
    value.split(',').filter(|step| !step.is_empty()).map(step).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::rest::decode::read_pairs;

    fn shown(query: &str) -> String {
        let read = match read_pairs(query).and_then(|pairs| ParsedQuery::read(&pairs)) {
            Ok(read) => read.query,
            Err(refused) => return format!("{} {refused}", refused.code()),
        };
        let columns: Vec<&str> = read.columns.iter().map(|column| column.name).collect();
        let columns = if columns.len() == COLUMNS.len() { "*".to_owned() } else { columns.join(",") };
        let terms: Vec<String> = read
            .terms
            .iter()
            .map(|term| format!("{}{} {:?}", if term.not { "not " } else { "" }, term.column.name, term.test))
            .collect();
        let order: Vec<String> = read
            .order
            .iter()
            .map(|by| {
                format!(
                    "{}{}{}",
                    by.column.name,
                    if by.descending { " down" } else { "" },
                    if by.nulls_first { " nulls first" } else { "" }
                )
            })
            .collect();
        format!("{columns} | {} | {} | {}+{}", terms.join("; "), order.join(", "), read.offset, read.limit)
    }

    fn check(queries: &[&str], expected: Expect) {
        expected.assert_eq(&queries.iter().map(|query| format!("{query}\n    {}\n", shown(query))).collect::<String>());
    }

    #[test]
    fn what_the_client_writes_is_understood() {
        check(
            &[
                "",
                "select=*&status=eq.pending&order=created_at.asc",
                "select=*&status=eq.failed&retry_count=lt.3&order=failed_at.asc",
                "select=workflow_id,status&stream_id=eq.ID&order=created_at.desc,id.asc.nullsfirst&limit=5&offset=10",
                "select=status,%20status,id&limit=5000",
                "id=in.(a,%22b,c%22)&id=not.is.null&worker_id=eq.%22x%22&status=in.()",
                "columns=%22a%22&workflow_id=eq.a.b%3Dc&workflow_id=neq.",
            ],
            expect![[r#"

                    * |  |  | 0+1000
                select=*&status=eq.pending&order=created_at.asc
                    * | status Compare(Eq, "pending") | created_at | 0+1000
                select=*&status=eq.failed&retry_count=lt.3&order=failed_at.asc
                    * | status Compare(Eq, "failed"); retry_count Compare(Lt, "3") | failed_at | 0+1000
                select=workflow_id,status&stream_id=eq.ID&order=created_at.desc,id.asc.nullsfirst&limit=5&offset=10
                    workflow_id,status | stream_id Compare(Eq, "ID") | created_at down nulls first, id nulls first | 10+5
                select=status,%20status,id&limit=5000
                    status,id |  |  | 0+1000
                id=in.(a,%22b,c%22)&id=not.is.null&worker_id=eq.%22x%22&status=in.()
                    * | id In(["a", "b,c"]); not id IsNull; worker_id Compare(Eq, "\"x\""); status In([]) |  | 0+1000
                columns=%22a%22&workflow_id=eq.a.b%3Dc&workflow_id=neq.
                    * | workflow_id Compare(Eq, "a.b=c"); workflow_id Compare(Neq, "") |  | 0+1000
            "#]],
        );
    }

    #[test]
    fn what_is_not_offered_or_not_understood_is_refused() {
        check(
            &[
                "or=(status.eq.a,status.eq.b)",
                "and=(status.eq.a)",
                "nope=eq.1",
                "select=nope",
                "select=id,",
                "select=id::text",
                "select=a:id",
                "select=event_data->>n",
                "select=count()",
                "select=*,other(*)",
                "select=id&select=id",
                "order=nope",
                "order=id.up",
                "order=id.asc.desc",
                "order=event_data->n.asc",
                "order=id;drop table x",
                "limit=-1",
                "limit=1e3",
                "offset=x",
                "status=pending",
                "status=like.p*",
                "status=is.true",
                "status=in.a,b",
                "event_data->>n=eq.1",
                "status%22%20or%20true=eq.1",
                "on_conflict=id",
                "status=eq.%ff",
            ],
            expect![[r#"
                or=(status.eq.a,status.eq.b)
                    PGRST100 "or" is not supported
                and=(status.eq.a)
                    PGRST100 "and" is not supported
                nope=eq.1
                    42703 column workflow_queue_projection.nope does not exist
                select=nope
                    42703 column workflow_queue_projection.nope does not exist
                select=id,
                    42703 column workflow_queue_projection. does not exist
                select=id::text
                    PGRST100 "id::text" is not supported
                select=a:id
                    PGRST100 "a:id" is not supported
                select=event_data->>n
                    PGRST100 "event_data->>n" is not supported
                select=count()
                    PGRST100 "count()" is not supported
                select=*,other(*)
                    PGRST100 "other(*)" is not supported
                select=id&select=id
                    PGRST100 select is given twice
                order=nope
                    42703 column workflow_queue_projection.nope does not exist
                order=id.up
                    PGRST100 failed to parse order (id.up)
                order=id.asc.desc
                    PGRST100 failed to parse order (id.asc.desc)
                order=event_data->n.asc
                    PGRST100 "event_data->n" is not supported
                order=id;drop table x
                    42703 column workflow_queue_projection.id;drop table x does not exist
                limit=-1
                    PGRST100 limit must be a number that is not negative
                limit=1e3
                    PGRST100 limit must be a number that is not negative
                offset=x
                    PGRST100 offset must be a number that is not negative
                status=pending
                    PGRST100 filter "status=pending" must have the form column=operator.value
                status=like.p*
                    PGRST100 unknown operator "like": use eq, neq, lt, lte, gt, gte, in or is
                status=is.true
                    PGRST100 the operator is allows only null
                status=in.a,b
                    PGRST100 a list must have the form (a,b,c), with at most 1000 values
                event_data->>n=eq.1
                    42703 column workflow_queue_projection.event_data->>n does not exist
                status%22%20or%20true=eq.1
                    42703 column workflow_queue_projection.status" or true does not exist
                on_conflict=id
                    42703 column workflow_queue_projection.on_conflict does not exist
                status=eq.%ff
                    PGRST100 the query string cannot be parsed: it is not UTF-8
            "#]],
        );
    }

    #[test]
    fn an_update_names_its_rows() {
        let update =
            |query: &str| ParsedQuery::read(&read_pairs(query).expect("pairs")).expect("a query").check_update();
        assert_eq!(update("id=eq.1&select=*&order=id"), Ok(()));
        assert_eq!(update("select=*"), Err(RestError::NoFilter));
        assert_eq!(update("status=eq.pending&limit=1"), Err(RestError::LimitInUpdate("limit")));
    }
}
