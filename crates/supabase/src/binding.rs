//! The bindings of a channel. Each names an event, a table and a filter, and says which changes the channel receives.
//!
//! Invariants
//! - The reply to a join has one entry for each requested binding, in the same order, with the requested fields.
//! - Ids are numbers from 1, unique in the channel.
//! - A wildcard means the published table only.
//! - A binding receives the columns that it selects; all columns if it selects none.

use serde_json::{Value, json};

use crate::filter::{Filter, FilterError};
use kernel::change::{Change, Op, Topic};
use kernel::job::table::{self, Column, SCHEMA, TABLE};

/// The largest number of bindings of one channel.
pub const MOST: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub id: u64,
    /// None: every operation.
    op: Option<Op>,
    filter: Filter,
    /// None: every column.
    columns: Option<Vec<Column>>,
}

/// The bindings of a channel that receive the same columns of a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipients<'a> {
    pub ids: Vec<u64>,
    /// None: every column.
    pub columns: Option<&'a [Column]>,
}

/// Why a channel cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelJoinError {
    #[error("ConfigurationError: a channel has at most {MOST} postgres_changes")]
    TooMany,
    #[error("ConfigurationError: postgres_changes must be a list of objects")]
    Shape,
    #[error("ConfigurationError: event {0:?} must be INSERT, UPDATE, DELETE or *")]
    Event(String),
    // A table that does not exist gets the same error as any other table, so that clients cannot find out which
    // tables exist.
    #[error("RealtimeDisabledForConfiguration: {schema}.{table} cannot be subscribed to; only {SCHEMA}.{TABLE} can")]
    Unpublished { schema: String, table: String },
    #[error("ConfigurationError: select must be a list of columns")]
    Select,
    #[error("ConfigurationError: there is no column {0:?}")]
    Column(String),
    #[error("InvalidFilter: {0}")]
    Filter(#[from] FilterError),
}

/// Reads the payload of a join. Returns its bindings, and the entries of the reply.
pub fn read_join(join: &Value) -> Result<(Vec<Binding>, Vec<Value>), ChannelJoinError> {
    let asked = match join.pointer("/config/postgres_changes") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(asked)) => asked.as_slice(),
        Some(_) => return Err(ChannelJoinError::Shape),
    };
    let asked: Vec<&Value> = asked.iter().filter(|entry| !entry.is_null()).collect();
    if asked.len() > MOST {
        return Err(ChannelJoinError::TooMany);
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

fn binding(id: u64, entry: &Value) -> Result<Binding, ChannelJoinError> {
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(ChannelJoinError::Shape),
    };
    let (event, schema, table) = (text("event")?, text("schema")?, text("table")?);
    let op = match event.unwrap_or("*") {
        "*" => None,
        name => Some(Op::parse(&name.to_ascii_uppercase()).ok_or_else(|| ChannelJoinError::Event(name.to_owned()))?),
    };
    let (schema, table) = (schema.unwrap_or(SCHEMA), table.unwrap_or("*"));
    if ![SCHEMA, "*"].contains(&schema) || ![TABLE, "*"].contains(&table) {
        return Err(ChannelJoinError::Unpublished { schema: schema.to_owned(), table: table.to_owned() });
    }
    let filter = Filter::parse(text("filter")?.unwrap_or_default())?;
    Ok(Binding { id, op, filter, columns: selected(entry.get("select"))? })
}

fn selected(select: Option<&Value>) -> Result<Option<Vec<Column>>, ChannelJoinError> {
    let names = match select {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(names)) => names,
        Some(_) => return Err(ChannelJoinError::Select),
    };
    let column = |name: &Value| {
        let name = name.as_str().ok_or(ChannelJoinError::Select)?;
        table::find(name).ok_or_else(|| ChannelJoinError::Column(name.to_owned()))
    };
    let columns: Vec<Column> = names.iter().map(column).collect::<Result<_, _>>()?;
    Ok(Some(columns).filter(|columns| !columns.is_empty()))
}

/// The bindings that match a change, grouped by the columns that they select.
pub fn find_recipients<'a>(bindings: &'a [Binding], change: &Change) -> Vec<Recipients<'a>> {
    let Some(row) = change.row().filter(|_| change.topic == Topic::Job) else { return Vec::new() };
    let fits = |binding: &&Binding| binding.op.is_none_or(|op| op == change.op) && binding.filter.fits(row);
    let mut recipients: Vec<Recipients<'a>> = Vec::new();
    for binding in bindings.iter().filter(fits) {
        let columns = binding.columns.as_deref();
        match recipients.iter_mut().find(|known| known.columns == columns) {
            Some(known) => known.ids.push(binding.id),
            None => recipients.push(Recipients { ids: vec![binding.id], columns }),
        }
    }
    recipients
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use kernel::change::cursor::Position;

    fn change(op: Op, record: Option<Value>, old: Option<Value>) -> Change {
        let (position, id) = (Position { xid: 1, seq: 1 }, Uuid::nil());
        Change {
            position,
            at: Timestamp::UNIX_EPOCH,
            topic: Topic::Job,
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
        let (bindings, echoed) = read_join(&asked).expect("a join");
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
            let name = |recipients: Recipients<'_>| {
                (recipients.ids, recipients.columns.map_or("*", |columns| columns[0].name))
            };
            assert_eq!(
                find_recipients(&bindings, &change).into_iter().map(name).collect::<Vec<_>>(),
                ids,
                "{change:?}"
            );
        }
        let execution = Change { topic: Topic::Execution, ..change(Op::Insert, row("pending", 0), None) };
        assert_eq!(find_recipients(&bindings, &execution), vec![]);
    }

    #[test]
    fn unpublished_tables_and_invalid_bindings_are_refused() {
        for (entries, reason) in [
            (
                json!([{ "event": "TRUNCATE" }]),
                "ConfigurationError: event \"TRUNCATE\" must be INSERT, UPDATE, DELETE or *",
            ),
            (json!([{ "select": "id" }]), "ConfigurationError: select must be a list of columns"),
            (json!([{ "select": ["id", "x"] }]), "ConfigurationError: there is no column \"x\""),
            (json!([{ "filter": "x=eq.1" }]), "InvalidFilter: there is no column \"x\""),
            (json!({}), "ConfigurationError: postgres_changes must be a list of objects"),
            (json!([{ "event": 1 }]), "ConfigurationError: postgres_changes must be a list of objects"),
            (json!(vec![json!({}); 101]), "ConfigurationError: a channel has at most 100 postgres_changes"),
        ] {
            assert_eq!(read_join(&join(entries)).expect_err(reason).to_string(), reason);
        }
        for (entries, table) in [
            (json!([{ "table": "nope" }]), "public.nope"),
            (json!([{ "schema": "x" }]), "x.*"),
            (json!([{ "table": "api_key" }]), "public.api_key"),
        ] {
            let reason = format!(
                "RealtimeDisabledForConfiguration: {table} cannot be subscribed to; only \
                 public.workflow_queue_projection can"
            );
            assert_eq!(read_join(&join(entries)).expect_err(&reason).to_string(), reason);
        }
        assert_eq!(read_join(&json!({})), Ok((vec![], vec![])));
    }
}
