//! A span for each statement that is part of a trace.
//!
//! Invariants
//! - If the current span is not recorded, a statement costs nothing extra. Background polls start no traces of their
//!   own.
//! - A span names the statement's table or function, never its parameters, because they are customers' data.
//!
//! Not here: the table of spans (`kernel::signals::spans`), statements inside transactions, which share their caller's
//! span.

use kernel::signals::spans;
use tracing::Span;

/// The span of a statement, as a child of the current span; disabled if the current span is not recorded.
pub(crate) fn for_statement(sql: &str) -> Span {
    if Span::current().is_disabled() {
        return Span::none();
    }
    let (operation, target) = describe(sql);
    tracing::debug_span!(
        spans::DB.name,
        otel.name = spans::DB.name.replace("{operation}", operation),
        db.system.name = "postgresql",
        db.operation.name = operation,
        db.collection.name = target,
    )
}

/// What a statement does, and which table or function it uses. Its main clause begins a line.
fn describe(sql: &str) -> (&'static str, &str) {
    let clauses = [("INSERT INTO ", "insert"), ("UPDATE ", "update"), ("DELETE FROM ", "delete"), ("SELECT", "query")];
    for line in sql.lines() {
        for (clause, operation) in clauses {
            if let Some(rest) = line.strip_prefix(clause) {
                let target = if operation == "query" { after_from(sql) } else { rest };
                return (operation, word(target));
            }
        }
    }
    ("query", "")
}

fn after_from(sql: &str) -> &str {
    let found = sql
        .lines()
        .find_map(|line| line.strip_prefix("FROM ").or_else(|| line.split_once(" FROM ").map(|(_, rest)| rest)));
    found.unwrap_or_default()
}

/// The name at the start of a text, without its schema.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(text.len());
    let name = &text[..end];
    name.split_once('.').map_or(name, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::sql;

    #[test]
    fn a_statement_is_known_by_what_it_does_and_where() {
        for (text, expected) in [
            (sql!("execution_queue/claim"), ("query", "claim")),
            (sql!("execution_queue/mark_dispatched"), ("update", "execution_queue")),
            (sql!("event_binding/add"), ("insert", "event_binding")),
            (sql!("event_binding/publish"), ("insert", "event_binding")),
            (sql!("event_binding/delete"), ("delete", "event_binding")),
            (sql!("domain_events/get"), ("query", "domain_events")),
            ("SELECT 1", ("query", "")),
        ] {
            assert_eq!(describe(text), expected, "{text}");
        }
    }
}
