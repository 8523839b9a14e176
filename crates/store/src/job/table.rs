//! Queries and changes of the table `workflow_queue_projection`, as PostgREST clients send them.
//!
//! Only this file assembles SQL at run time, because the client chooses which columns to select, compare, order and
//! set. The text comes from a file that contains examples in the places of those columns; the examples are replaced.
//!
//! Invariants
//! - Names come from the kernel's list of columns and are quoted. Every value is a parameter, cast to its column's
//!   type.
//! - The workspace is a separate condition, added to the client's. The cost depends only on the rows of that workspace.
//! - A change reads, locks and returns a bounded number of rows, however many its filters match.
//! - A change that is refused after it was made is rolled back. A crash before the commit leaves nothing.
//!
//! Not here: what may be queried (`supabase::rest`), which changes are legal (`functions/shared/job.sql`).

use kernel::ids::WorkspaceId;
use kernel::job::query::{Comparison, MOST_ROWS, OrderBy, Predicate, Query, Term, WriteDecision};
use kernel::job::table::Column;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::sql::sql;
use crate::{Error, Store};

/// The result of a query or change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// A JSON array.
    pub body: String,
    /// How many rows `body` contains. If a change returns no rows: how many rows it changed.
    pub count: u64,
    /// The total number of rows, if requested.
    pub total: Option<u64>,
}

/// A change that a client requests.
#[derive(Clone, Debug)]
pub struct RowChange<'a> {
    pub query: &'a Query,
    pub set: &'a [Column],
    pub body: &'a Value,
    /// Return the changed rows, rather than only their count.
    pub returning: bool,
}

type Parameter = Box<dyn ToSql + Sync + Send>;

impl Store {
    /// Selects the requested rows that a workspace (None: all) may see.
    pub async fn select_rows(&self, query: &Query, count: bool, workspace: Option<WorkspaceId>) -> Result<Rows, Error> {
        let (limit, offset) = (i64::from(query.limit), i64::from(query.offset));
        let mut values: Vec<Parameter> =
            vec![Box::new(workspace.map(|id| id.0)), Box::new(limit), Box::new(offset), Box::new(count)];
        let text = filled(sql!("workflow_queue_projection/select"), &parts(query, &[], workspace, &mut values));
        let client = self.pool.get().await?;
        rows(&client.query_one(&text, &borrowed(&values)).await?)
    }

    /// Changes rows of a workspace (None: of all). If their number is not the expected one, nothing changes.
    pub async fn update_rows<R>(
        &self,
        change: &RowChange<'_>,
        workspace: Option<WorkspaceId>,
        judge: impl FnOnce(u64) -> Result<WriteDecision, R>,
    ) -> Result<Result<Rows, R>, Error> {
        let mut values: Vec<Parameter> = vec![
            Box::new(workspace.map(|id| id.0)),
            Box::new(change.body.clone()),
            Box::new(i64::from(MOST_ROWS)),
            Box::new(change.returning),
        ];
        let parts = parts(change.query, change.set, workspace, &mut values);
        let text = filled(sql!("workflow_queue_projection/update"), &parts);
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_one(&text, &borrowed(&values)).await?;
        let rows = rows(&row)?;
        match judge(number(row.try_get("changed")?)?) {
            Ok(WriteDecision::Commit) => transaction.commit().await?,
            Ok(WriteDecision::RollBack) => transaction.rollback().await?,
            Err(refused) => {
                transaction.rollback().await?;
                return Ok(Err(refused));
            }
        }
        Ok(Ok(rows))
    }
}

fn rows(row: &Row) -> Result<Rows, Error> {
    Ok(Rows {
        body: row.try_get("body")?,
        count: number(row.try_get("rows")?)?,
        total: row.try_get::<_, Option<i64>>("total")?.map(number).transpose()?,
    })
}

fn number(count: i64) -> Result<u64, Error> {
    u64::try_from(count).map_err(|_| Error::Corrupt(format!("a count is {count}")))
}

fn borrowed(values: &[Parameter]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
}

/// The texts that replace the examples in a statement. The values of filters are appended to the parameters.
fn parts(
    query: &Query,
    set: &[Column],
    workspace: Option<WorkspaceId>,
    values: &mut Vec<Parameter>,
) -> [(&'static str, String); 5] {
    let listed =
        |columns: &[Column], as_text: fn(&Column) -> String| columns.iter().map(as_text).collect::<Vec<_>>().join(", ");
    let terms: Vec<String> = query.terms.iter().map(|term| condition(term, values)).collect();
    [
        ("whose", whose(workspace)),
        ("columns", listed(&query.columns, named)),
        ("set", listed(set, |column| format!("\"{0}\" = (SELECT body.\"{0}\" FROM body)", column.name))),
        ("where", if terms.is_empty() { "true".to_owned() } else { terms.join(" AND ") }),
        ("order", order(&query.order)),
    ]
}

/// A condition without OR, so that the planner can start with the workspace's rows.
fn whose(workspace: Option<WorkspaceId>) -> String {
    match workspace {
        Some(_) => {
            "projection.id IN (SELECT job.id FROM forebay.workflow_queue_job job WHERE job.workspace_id = $1::uuid)"
                .to_owned()
        }
        None => "$1::uuid IS NULL".to_owned(),
    }
}

fn named(column: &Column) -> String {
    format!("projection.\"{}\"", column.name)
}

/// Null equals nothing: only `IS NULL` matches null, also under NOT.
fn condition(term: &Term<String>, values: &mut Vec<Parameter>) -> String {
    let (column, of) = (named(&term.column), term.column.of.name());
    let holds = match &term.test {
        Predicate::IsNull => format!("{column} IS NULL"),
        Predicate::In(list) => {
            values.push(Box::new(list.clone()));
            format!("{column} = ANY (${}::text[]::{of}[])", values.len())
        }
        Predicate::Compare(comparison, value) => {
            values.push(Box::new(value.clone()));
            format!("{column} {} ${}::text::{of}", operator(*comparison), values.len())
        }
    };
    if term.not { format!("NOT ({holds})") } else { holds }
}

fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Eq => "=",
        Comparison::Neq => "<>",
        Comparison::Lt => "<",
        Comparison::Lte => "<=",
        Comparison::Gt => ">",
        Comparison::Gte => ">=",
    }
}

/// A total order; by creation time if the client requested none. NULLS FIRST or NULLS LAST is written only if it is not
/// the default, so that indexes apply.
fn order(steps: &[OrderBy]) -> String {
    let step = |by: &OrderBy| {
        let direction = if by.descending { " DESC" } else { "" };
        let nulls = match (by.nulls_first, by.descending) {
            (true, false) => " NULLS FIRST",
            (false, true) => " NULLS LAST",
            _ => "",
        };
        format!("{}{direction}{nulls}", named(&by.column))
    };
    let mut steps: Vec<String> = steps.iter().map(step).collect();
    if steps.is_empty() {
        steps.push("projection.\"created_at\"".to_owned());
    }
    steps.push("projection.\"id\"".to_owned());
    steps.join(", ")
}

/// Replaces the examples in a statement: each text between `/*name*/` and `/*end*/`.
fn filled(statement: &str, parts: &[(&'static str, String)]) -> String {
    let mut text = statement.to_owned();
    for (name, part) in parts {
        let mark = format!("/*{name}*/");
        let mut pieces = text.split(&mark);
        let mut done = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            done.push_str(part);
            done.push_str(piece.split_once("/*end*/").map_or("", |(_, rest)| rest));
        }
        text = done;
    }
    text
}
