//! The published table as clients of PostgREST ask and change it.
//!
//! Only here is SQL put together at run time: which columns are told, compared, ordered and set is the client's to say,
//! and that is part of a statement's text. The text is a file's, with its examples replaced.
//!
//! Invariants
//! - Names come out of the kernel's list of columns and are quoted; every value is a parameter, cast to its column's
//!   type.
//! - The workspace is a condition of its own, beside what the client asks. A workspace pays for its own rows, not for
//!   everybody's.
//! - A change reads, locks and tells no more than a bound, however many rows its filters name.
//! - A change that is refused after it was made is rolled back, and one that this process does not live to commit never
//!   was.
//!
//! Not here: what may be asked (`supabase::rest`), which changes are legal (`functions/shared/job.sql`).

use kernel::ids::WorkspaceId;
use kernel::job::query::{By, Comparison, MOST_ROWS, Query, Term, Test, Verdict};
use kernel::job::table::Column;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::sql::sql;
use crate::{Error, Store};

/// Rows as they are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// A JSON array.
    pub body: String,
    /// How many it holds; of a change whose rows are not told, how many it changed.
    pub count: u64,
    /// How many there are in all, if that was asked.
    pub total: Option<u64>,
}

/// A change that a client asks for.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    pub query: &'a Query,
    pub set: &'a [Column],
    pub body: &'a Value,
    /// The changed rows are answered, rather than only counted.
    pub returning: bool,
}

type Parameter = Box<dyn ToSql + Sync + Send>;

impl Store {
    /// The rows that a workspace (none: all) may see of those that were asked for.
    pub async fn ask_rows(&self, query: &Query, count: bool, workspace: Option<WorkspaceId>) -> Result<Rows, Error> {
        let (limit, offset) = (i64::from(query.limit), i64::from(query.offset));
        let mut values: Vec<Parameter> =
            vec![Box::new(workspace.map(|id| id.0)), Box::new(limit), Box::new(offset), Box::new(count)];
        let text = filled(sql!("workflow_queue_projection/ask"), &parts(query, &[], workspace, &mut values));
        let client = self.pool.get().await?;
        rows(&client.query_one(&text, &borrowed(&values)).await?)
    }

    /// Changes rows of a workspace (none: of all), or, if their number is not what was asked for, none.
    pub async fn change_rows<R>(
        &self,
        change: &Change<'_>,
        workspace: Option<WorkspaceId>,
        judge: impl FnOnce(u64) -> Result<Verdict, R>,
    ) -> Result<Result<Rows, R>, Error> {
        let mut values: Vec<Parameter> = vec![
            Box::new(workspace.map(|id| id.0)),
            Box::new(change.body.clone()),
            Box::new(i64::from(MOST_ROWS)),
            Box::new(change.returning),
        ];
        let parts = parts(change.query, change.set, workspace, &mut values);
        let text = filled(sql!("workflow_queue_projection/set"), &parts);
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_one(&text, &borrowed(&values)).await?;
        let rows = rows(&row)?;
        match judge(number(row.try_get("changed")?)?) {
            Ok(Verdict::Keep) => transaction.commit().await?,
            Ok(Verdict::Undo) => transaction.rollback().await?,
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

/// What stands for the examples of a statement. The values of filters are added to those that it has.
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

/// A condition without OR, so that whoever plans it can begin with the workspace's own.
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

/// Null is no value: only `IS NULL` holds of it, under NOT neither.
fn condition(term: &Term<String>, values: &mut Vec<Parameter>) -> String {
    let (column, of) = (named(&term.column), term.column.of.name());
    let holds = match &term.test {
        Test::IsNull => format!("{column} IS NULL"),
        Test::In(list) => {
            values.push(Box::new(list.clone()));
            format!("{column} = ANY (${}::text[]::{of}[])", values.len())
        }
        Test::Compare(comparison, value) => {
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

/// An order that is total; as the rows came to be, if none was asked for. Nulls are spoken of only where that is not
/// the database's own way, so that its indexes serve.
fn order(steps: &[By]) -> String {
    let step = |by: &By| {
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

/// A statement with its examples replaced: what stands between `/*name*/` and `/*end*/`.
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
