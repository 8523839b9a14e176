//! The log of an execution: the messages of its `LOG` nodes, including those in loops, and every failed attempt.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::definition::{Kind, Node};
use kernel::ids::ExecutionId;
use kernel::kind::for_each;
use kernel::kind::log::Level;
use serde::Deserialize;
use serde_json::Value;
use store::execution::LogEntry;
use store::page::Paged;
use utoipa::IntoParams;

use super::auth::Caller;
use super::body::{Id, Params};
use super::{Api, Code, Problem, executions, offload, page};
use crate::wire::{ExecutionLogs, LogLine, LogSource};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogsParams {
    /// True: list failures only.
    failed: Option<bool>,
    /// The largest number of nodes and iterations. Default: 1,000. A page with large messages may have fewer.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// The largest number of nodes and iterations of one page.
const MOST: i64 = 1_000;

/// Reads the log of an execution so far, the oldest line first.
#[utoipa::path(get, path = "/workflow/executions/{id}/logs", tag = "executions",
    params(("id" = ExecutionId, Path), LogsParams),
    responses((status = 200, body = ExecutionLogs)))]
pub(crate) async fn logs(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<LogsParams>,
) -> Result<Reply<ExecutionLogs>, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let graph = api.store.graphs(&[execution.version]).await?.pop().map(|(_, graph)| graph).unwrap_or_default();
    let checked = offload::check_stored(Some(execution.workspace), graph).await?;
    let known = checked.map(|(definition, _)| definition.nodes).unwrap_or_default();
    let with_messages = !params.failed.unwrap_or(false);
    let keys = |fits: fn(&Node) -> bool| -> Vec<&str> {
        known.iter().filter(|node| with_messages && fits(node)).map(|node| node.key.as_str()).collect()
    };
    let (log_nodes, log_loops) = (keys(|node| node.kind == Kind::Log), keys(loops_over_logs));
    let limit = params.limit.unwrap_or(MOST);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::new(Code::ValidationFailed, format!("limit: must be between 1 and {MOST}")));
    }
    let skip = page::read(page::ListKind::Logs, params.cursor.as_deref(), page::skip_of)?.unwrap_or(0);
    let Paged { mut rows, cut } = api.store.logs(id, (&log_nodes, &log_loops), skip, limit + 1).await?;
    let more = cut || i64::try_from(rows.len()).is_ok_and(|found| found > limit);
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let next = skip + i64::try_from(rows.len()).unwrap_or(0);
    let next_cursor = more.then(|| page::write(page::ListKind::Logs, &next.to_be_bytes()));
    let mut items: Vec<LogLine> = rows.into_iter().flat_map(lines).collect();
    items.sort_by_key(|line| line.at);
    Ok(Reply(ExecutionLogs { items, next_cursor }))
}

fn loops_over_logs(node: &Node) -> bool {
    node.kind == Kind::ForEach && for_each::action(node).is_some_and(|action| action.kind == Kind::Log)
}

fn lines(entry: LogEntry) -> Vec<LogLine> {
    let line = |at: Option<Timestamp>, attempt: i32, source: LogSource, level: Level, message: String, data: Value| {
        let data = Some(data).filter(|data| !data.is_null());
        let (node, iteration) = (entry.node.clone(), entry.iteration);
        at.map(|at| LogLine { at, node, iteration, attempt, source, level, message, data })
    };
    let failed = |at: Option<Timestamp>, attempt: i32, error: &Value| {
        let message = error["message"].as_str().unwrap_or_default().to_owned();
        line(at, attempt, LogSource::Failure, Level::Error, message, error.clone())
    };
    let earlier = entry.earlier.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(|one| {
        let at = one["at"].as_str().and_then(|at| at.parse().ok());
        let attempt = one["attempt"].as_i64().and_then(|attempt| i32::try_from(attempt).ok()).unwrap_or(0);
        failed(at, attempt, &one["error"])
    });
    let mut all: Vec<LogLine> = earlier.collect();
    all.extend(entry.error.as_ref().and_then(|error| failed(entry.at, entry.attempt, error)));
    all.extend(entry.message.as_ref().and_then(|output| {
        let level = serde_json::from_value(output["level"].clone()).unwrap_or_default();
        let message = output["message"].as_str().unwrap_or_default().to_owned();
        line(entry.at, entry.attempt, LogSource::Log, level, message, output["data"].clone())
    }));
    all
}
