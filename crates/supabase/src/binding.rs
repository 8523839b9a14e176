//! What a channel asked to be told: its bindings, each an event, a table and a filter.
//!
//! Invariants
//! - One binding is answered for each that was asked for, in the same order, echoed as it came.
//! - Ids are numbers from 1, unique in the channel.
//! - A wildcard means the published table, and never more.
//! - A binding is told the columns that it selects, all of them if it selects none.

use serde_json::{Value, json};

use crate::filter::{Filter, Invalid};
use kernel::change::{Change, Op, Topic};
use kernel::job::table::{self, Column, SCHEMA, TABLE};

/// The most bindings of one channel.
pub const MOST: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub id: u64,
    /// None: every one.
    op: Option<Op>,
    filter: Filter,
    /// None: every one.
    columns: Option<Vec<Column>>,
}

/// The bindings of a channel that a change is for and that are told the same of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told<'a> {
    pub ids: Vec<u64>,
    /// None: every one.
    pub columns: Option<&'a [Column]>,
}

/// Why a channel cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("ConfigurationError: a channel has at most {MOST} postgres_changes")]
    TooMany,
    #[error("ConfigurationError: postgres_changes is a list of objects")]
    Shape,
    #[error("ConfigurationError: event {0:?} is none of INSERT, UPDATE, DELETE and *")]
    Event(String),
    // The same for a table that exists and is not published: which ones there are is nobody's business.
    #[error("RealtimeDisabledForConfiguration: table {schema}.{table} is not published")]
    Unpublished { schema: String, table: String },
    #[error("ConfigurationError: select is a list of columns")]
    Select,
    #[error("ConfigurationError: there is no column {0:?}")]
    Column(String),
    #[error("InvalidFilter: {0}")]
    Filter(#[from] Invalid),
}

/// What a join asks for, and the entries that answer it.
pub fn read(join: &Value) -> Result<(Vec<Binding>, Vec<Value>), Refused> {
    let asked = match join.pointer("/config/postgres_changes") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(asked)) => asked.as_slice(),
        Some(_) => return Err(Refused::Shape),
    };
    let asked: Vec<&Value> = asked.iter().filter(|entry| !entry.is_null()).collect();
    if asked.len() > MOST {
        return Err(Refused::TooMany);
    }
    let mut bindings = Vec::new();
    let mut echoed = Vec::new();
    for (id, entry) in (1..).zip(asked) {
        bindings.push(binding(id, entry)?);
        let mut echo = json!({ "id": id });
        for name in ["event", "schema", "table", "filter"] {
            if let Some(value) = entry.get(name) {
                echo[name] = value.clone();
            }
        }
        echoed.push(echo);
    }
    Ok((bindings, echoed))
}

fn binding(id: u64, entry: &Value) -> Result<Binding, Refused> {
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(Refused::Shape),
    };
    let (event, schema, table) = (text("event")?, text("schema")?, text("table")?);
    let op = match event.unwrap_or("*") {
        "*" => None,
        name => Some(Op::parse(&name.to_ascii_uppercase()).ok_or_else(|| Refused::Event(name.to_owned()))?),
    };
    let (schema, table) = (schema.unwrap_or(SCHEMA), table.unwrap_or("*"));
    if ![SCHEMA, "*"].contains(&schema) || ![TABLE, "*"].contains(&table) {
        return Err(Refused::Unpublished { schema: schema.to_owned(), table: table.to_owned() });
    }
    let filter = Filter::parse(text("filter")?.unwrap_or_default())?;
    Ok(Binding { id, op, filter, columns: selected(entry.get("select"))? })
}

fn selected(select: Option<&Value>) -> Result<Option<Vec<Column>>, Refused> {
    let names = match select {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(names)) => names,
        Some(_) => return Err(Refused::Select),
    };
    let column = |name: &Value| {
        let name = name.as_str().ok_or(Refused::Select)?;
        table::find(name).ok_or_else(|| Refused::Column(name.to_owned()))
    };
    let columns: Vec<Column> = names.iter().map(column).collect::<Result<_, _>>()?;
    Ok(Some(columns).filter(|columns| !columns.is_empty()))
}

/// The bindings that a change is for, by what they are told of it.
pub fn matching<'a>(bindings: &'a [Binding], change: &Change) -> Vec<Told<'a>> {
    let Some(row) = change.row().filter(|_| change.topic == Topic::Projection) else { return Vec::new() };
    let fits = |binding: &&Binding| binding.op.is_none_or(|op| op == change.op) && binding.filter.fits(row);
    let mut told: Vec<Told<'a>> = Vec::new();
    for binding in bindings.iter().filter(fits) {
        let columns = binding.columns.as_deref();
        match told.iter_mut().find(|known| known.columns == columns) {
            Some(known) => known.ids.push(binding.id),
            None => told.push(Told { ids: vec![binding.id], columns }),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use kernel::change::cursor::Place;

    fn change(op: Op, record: Option<Value>, old: Option<Value>) -> Change {
        let (place, id) = (Place { xid: 1, seq: 1 }, Uuid::nil());
        Change {
            place,
            at: Timestamp::UNIX_EPOCH,
            topic: Topic::Projection,
            op,
            id,
            workspace: None,
            status: None,
            record,
            old,
        }
    }

    fn join(entries: Value) -> Value {
        json!({ "config": { "postgres_changes": entries } })
    }

    #[test]
    fn each_binding_is_echoed_and_matched_by_its_event_and_filter() {
        let asked = join(json!([
            { "event": "INSERT", "schema": "public", "table": TABLE, "filter": "status=eq.pending" },
            null,
            { "event": "*", "schema": "*", "select": ["id"] },
            { "event": "DELETE", "schema": "public", "table": "*", "filter": "retry_count=gt.2" },
            { "event": "DELETE", "select": ["id"] },
        ]));
        let (bindings, echoed) = read(&asked).expect("a join");
        assert_eq!(
            json!(echoed),
            json!([
                { "id": 1, "event": "INSERT", "schema": "public", "table": TABLE, "filter": "status=eq.pending" },
                { "id": 2, "event": "*", "schema": "*" },
                { "id": 3, "event": "DELETE", "schema": "public", "table": "*", "filter": "retry_count=gt.2" },
                { "id": 4, "event": "DELETE" },
            ])
        );
        let row = |status: &str, tries: i32| Some(json!({ "status": status, "retry_count": tries }));
        for (change, ids) in [
            (change(Op::Insert, row("pending", 0), None), vec![(vec![1], "*"), (vec![2], "id")]),
            (change(Op::Insert, row("failed", 0), None), vec![(vec![2], "id")]),
            (change(Op::Update, row("pending", 1), row("failed", 1)), vec![(vec![2], "id")]),
            (change(Op::Delete, None, row("failed", 3)), vec![(vec![2, 4], "id"), (vec![3], "*")]),
        ] {
            let name = |told: Told<'_>| (told.ids, told.columns.map_or("*", |columns| columns[0].name));
            assert_eq!(matching(&bindings, &change).into_iter().map(name).collect::<Vec<_>>(), ids, "{change:?}");
        }
        let execution = Change { topic: Topic::Execution, ..change(Op::Insert, row("pending", 0), None) };
        assert_eq!(matching(&bindings, &execution), vec![]);
    }

    #[test]
    fn what_is_not_published_or_not_understood_is_refused() {
        for (entries, reason) in [
            (json!([{ "table": "nope" }]), "RealtimeDisabledForConfiguration: table public.nope is not published"),
            (json!([{ "schema": "x" }]), "RealtimeDisabledForConfiguration: table x.* is not published"),
            (
                json!([{ "table": "api_key" }]),
                "RealtimeDisabledForConfiguration: table public.api_key is not published",
            ),
            (
                json!([{ "event": "TRUNCATE" }]),
                "ConfigurationError: event \"TRUNCATE\" is none of INSERT, UPDATE, DELETE and *",
            ),
            (json!([{ "select": "id" }]), "ConfigurationError: select is a list of columns"),
            (json!([{ "select": ["id", "x"] }]), "ConfigurationError: there is no column \"x\""),
            (json!([{ "filter": "x=eq.1" }]), "InvalidFilter: there is no column \"x\""),
            (json!({}), "ConfigurationError: postgres_changes is a list of objects"),
            (json!([{ "event": 1 }]), "ConfigurationError: postgres_changes is a list of objects"),
            (json!(vec![json!({}); 101]), "ConfigurationError: a channel has at most 100 postgres_changes"),
        ] {
            assert_eq!(read(&join(entries)).expect_err(reason).to_string(), reason);
        }
        assert_eq!(read(&json!({})), Ok((vec![], vec![])));
    }
}
