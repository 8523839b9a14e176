//! Starts, one or many: read from a body, stored, answered each on its own.
//!
//! Invariants
//! - A start that is refused left nothing behind; one that is answered 202 is durable.
//! - What is stored runs the version by which its input was judged. One that is judged while another version is
//!   published is judged anew: dying in between leaves nothing, and coming twice is what the key is for.
//!
//! Not here: which address they came by (`executions`, `bulk`, `rerun`).

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use kernel::definition::parse;
use kernel::execution::Status;
use kernel::execution::rerun::Kept;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use kernel::signals::trace::TraceParent;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::batch::{Fate, by_halves};
use store::queue::enqueue::{Accepted, Judged, Start};

use super::auth::Caller;
use super::{Api, Code, Problem, absent};
use crate::definition::inputs::{Verdict, rounds};
use crate::wire;

/// The longest key. That of a bulk is shorter by the place of an item behind it.
pub(crate) const LONGEST_KEY: usize = 200;
/// The year 9999 in seconds: a deadline is later than its start, and later times cannot be written.
const LATEST_START: i64 = 253_370_764_800;

/// An idempotency key, and what the request under it hashes to.
pub(crate) type Idempotency = Option<(String, Vec<u8>)>;

/// The request's idempotency key, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = only(headers, "Idempotency-Key")?.map(str::trim) else { return Ok(None) };
    if key.is_empty() || key.len() > LONGEST_KEY {
        return Err(Problem::new(Code::ValidationFailed, "Idempotency-Key: 1 to 200 printable characters"));
    }
    if kernel::queue::idempotency::is_reserved(key) {
        let detail = "Idempotency-Key: this service derives keys of that form itself; choose another";
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    Ok(Some(key))
}

/// The header's only value. A header that came twice or cannot be read is an error: ignoring it would change what the
/// sender asked for.
pub(crate) fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |why: &str| Problem::new(Code::ValidationFailed, format!("{name}: {why}"));
    if values.next().is_some() {
        return Err(wrong("the header was sent more than once; send it once"));
    }
    value.to_str().map(Some).map_err(|_| wrong("the header must be printable ASCII"))
}

/// A key with the content it stands for; the same content in any order of fields is the same.
pub(crate) fn idempotency(key: Option<String>, content: &impl Serialize) -> Result<Idempotency, Problem> {
    let Some(key) = key else { return Ok(None) };
    let content = serde_json::to_value(content).and_then(|value| serde_json::to_vec(&sorted(&value)));
    Ok(Some((key, Sha256::digest(content.map_err(|_| Problem::of(Code::Internal))?).to_vec())))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let ordered: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(ordered.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// The trace a request belongs to.
pub(crate) fn trace(headers: &HeaderMap) -> Option<TraceParent> {
    engine::trace::of(&tracing::Span::current()).or_else(|| super::measure::traceparent(headers))
}

/// A start as its body asks for it.
pub(crate) fn read(
    caller: &Caller,
    body: wire::StartExecution,
    key: Option<String>,
    trace: Option<TraceParent>,
) -> Result<Start, Problem> {
    let workspace = caller.workspace(body.workspace_id)?;
    let idempotency = idempotency(key, &body)?;
    if body.concurrency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
        return Err(Problem::new(Code::ValidationFailed, "concurrencyKey: 1 to 200 characters"));
    }
    if body.run_at.is_some_and(|at| at.as_second() >= LATEST_START) {
        return Err(Problem::new(Code::ValidationFailed, "runAt: before the year 9999"));
    }
    Ok(Start {
        execution: ExecutionId(store::new_id()),
        workspace,
        definition: body.workflow_definition_id,
        input: body.input,
        priority: body.priority.unwrap_or_default(),
        run_at: body.run_at,
        concurrency_key: body.concurrency_key,
        idempotency,
        trigger: json!({ "type": "api", "actor": caller.actor }),
        trace,
        version: None,
        rerun_of: None,
    })
}

/// Judges the inputs of starts and stores those that are good; answers each on its own, in order. A problem of
/// them all is an outage.
pub(crate) async fn accept(
    api: &Api,
    caller: &Caller,
    starts: Vec<Start>,
) -> Result<Vec<Result<wire::Started, Problem>>, Problem> {
    let mut answers: Vec<Option<Result<wire::Started, Problem>>> = starts.iter().map(|_| None).collect();
    let mut open: Vec<(usize, Start)> = starts.into_iter().enumerate().collect();
    for anew in rounds() {
        let verdicts = api.input_rules.judge(&api.store, &open, anew).await?;
        let (mut good, mut refused) = (Vec::new(), Vec::new());
        for ((at, start), verdict) in std::mem::take(&mut open).into_iter().zip(verdicts) {
            match verdict {
                Verdict::Good { input, published } => good.push((at, start, input, published)),
                // By a version that may be published no more: nobody is refused for that.
                Verdict::Refused(_) if !anew && start.version.is_none() => open.push((at, start)),
                Verdict::Refused(problems) => refused.push((at, start, problems)),
            }
        }
        for ((at, start, ..), answer) in good.iter().zip(store(api, caller, &good).await?) {
            match answer {
                Some(answer) => answers[*at] = Some(answer),
                None => open.push((*at, start.clone())),
            }
        }
        let places: Vec<usize> = refused.iter().map(|(at, ..)| *at).collect();
        let refused = refused.into_iter().map(|(_, start, problems)| (start, problems)).collect();
        for (at, answer) in places.into_iter().zip(refuse(api, refused).await?) {
            answers[at] = Some(answer);
        }
        if open.is_empty() {
            break;
        }
    }
    let moving = || {
        let problem = Problem::new(Code::Conflict, "the definition is being published again and again");
        Err(Problem { retry_after_s: Some(1), ..problem })
    };
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(moving)).collect())
}

/// Answers starts whose input does not fit. One whose key was accepted before is told what became of that.
pub(crate) async fn refuse(
    api: &Api,
    refused: Vec<(Start, Vec<parse::Problem>)>,
) -> Result<Vec<Result<wire::Started, Problem>>, Problem> {
    let starts: Vec<&Start> = refused.iter().map(|(start, _)| start).collect();
    let before = api.store.accepted_before(&starts).await?;
    let statuses = statuses(api, before.iter().flatten().copied()).await?;
    let told = |((_, problems), before): ((Start, Vec<parse::Problem>), Option<Accepted>)| match before {
        Some(accepted) => answer(accepted, &statuses),
        None => Err(refusal(problems)),
    };
    Ok(refused.into_iter().zip(before).map(told).collect())
}

/// The problem that a client gets when its input does not fit the version.
pub(crate) fn refusal(problems: Vec<parse::Problem>) -> Problem {
    let detail = match problems.as_slice() {
        [only] => only.to_string(),
        many => format!("the input has {} problems", many.len()),
    };
    Problem { problems, ..Problem::new(Code::ValidationFailed, detail) }
}

/// Stores starts whose input fits; no answer for one that must be judged anew.
async fn store(
    api: &Api,
    caller: &Caller,
    good: &[(usize, Start, Option<Value>, Option<VersionId>)],
) -> Result<Vec<Option<Result<wire::Started, Problem>>>, Problem> {
    let filled = |(_, start, input, _): &(_, Start, Option<Value>, _)| Start { input: input.clone(), ..start.clone() };
    let filled: Vec<Start> = good.iter().map(filled).collect();
    let judged: Vec<Judged<'_>> =
        filled.iter().zip(good).map(|(start, (.., published))| Judged { start, published: *published }).collect();
    let keyed = filled.iter().any(|start| start.idempotency.is_some());
    let limit = api.settings.queue.max_backlog;
    let fates = by_halves(&judged, |some| api.store.enqueue_judged(some, limit, &caller.actor)).await;
    let fates = fates.map_err(|error| busy(error, keyed))?;
    let new = |(start, fate): (&Start, &Fate<Accepted>)| {
        matches!(fate, Fate::Done(Accepted::New { .. })).then_some(start.workspace)
    };
    let accepted: Vec<_> = filled.iter().zip(&fates).filter_map(new).collect();
    ::metrics::counter!(kernel::signals::metrics::ENQUEUED.name).increment(accepted.len() as u64);
    for workspace in accepted.into_iter().collect::<BTreeSet<_>>() {
        api.hints.enqueued(workspace);
    }
    let done = |fate: &Fate<Accepted>| if let Fate::Done(accepted) = fate { Some(*accepted) } else { None };
    let statuses = statuses(api, fates.iter().filter_map(done)).await?;
    let absent = absent_definitions(api, caller, &filled, &fates).await;
    let told = |(start, fate): (&Start, Fate<Accepted>)| match fate {
        Fate::Done(Accepted::Moved) => None,
        Fate::Done(accepted) => Some(
            answer(accepted, &statuses)
                .map_err(|problem| absent.get(&(start.workspace, start.definition)).cloned().unwrap_or(problem)),
        ),
        Fate::Refused(error) => Some(Err(error.into())),
    };
    Ok(filled.iter().zip(fates).map(told).collect())
}

/// What the caller is told of definitions that were not found; each is looked for once, however many starts name it.
async fn absent_definitions(
    api: &Api,
    caller: &Caller,
    starts: &[Start],
    fates: &[Fate<Accepted>],
) -> BTreeMap<(WorkspaceId, DefinitionId), Problem> {
    let mut told = BTreeMap::new();
    for (start, fate) in starts.iter().zip(fates) {
        let place = (start.workspace, start.definition);
        if matches!(fate, Fate::Done(Accepted::NotFound)) && !told.contains_key(&place) {
            told.insert(place, absent::why(api, caller, place.0, place.1).await);
        }
    }
    told
}

/// Stores a start that keeps what some nodes of the execution it repeats produced.
pub(crate) async fn accept_rerun(
    api: &Api,
    caller: &Caller,
    start: &Start,
    kept: &Kept,
) -> Result<Result<wire::Started, Problem>, Problem> {
    // Its version is pinned, so it is judged once.
    let judged = [(0, start.clone())];
    let start = match api.input_rules.judge(&api.store, &judged, false).await?.pop() {
        Some(Verdict::Refused(problems)) => return Ok(Err(refusal(problems))),
        Some(Verdict::Good { input, .. }) => Start { input, ..start.clone() },
        None => start.clone(),
    };
    let limit = api.settings.queue.max_backlog;
    let accepted = api.store.rerun(&start, kept, limit, &caller.actor).await;
    let accepted = accepted.map_err(|error| busy(error, start.idempotency.is_some()))?;
    if matches!(accepted, Accepted::New { .. }) {
        ::metrics::counter!(kernel::signals::metrics::ENQUEUED.name).increment(1);
        api.hints.enqueued(start.workspace);
    }
    told(api, accepted).await
}

/// What one caller is told of what became of its start.
pub(crate) async fn told(api: &Api, accepted: Accepted) -> Result<Result<wire::Started, Problem>, Problem> {
    let statuses = statuses(api, [accepted].into_iter()).await?;
    Ok(answer(accepted, &statuses))
}

/// How the executions stand that were there already.
async fn statuses(
    api: &Api,
    accepted: impl Iterator<Item = Accepted>,
) -> Result<BTreeMap<ExecutionId, Status>, Problem> {
    let existing = |accepted| if let Accepted::Existing { execution } = accepted { Some(execution) } else { None };
    let existing: Vec<ExecutionId> = accepted.filter_map(existing).collect();
    match existing.is_empty() {
        true => Ok(BTreeMap::new()),
        false => Ok(api.store.execution_statuses(&existing).await?),
    }
}

fn answer(accepted: Accepted, statuses: &BTreeMap<ExecutionId, Status>) -> Result<wire::Started, Problem> {
    let started = |execution: ExecutionId, status, repeated| wire::Started {
        queue_id: execution.queue_item(),
        execution_id: execution,
        status,
        repeated,
    };
    match accepted {
        Accepted::New { execution, .. } => Ok(started(execution, Status::Pending, false)),
        Accepted::Existing { execution } => {
            Ok(started(execution, statuses.get(&execution).copied().unwrap_or(Status::Pending), true))
        }
        Accepted::Conflict => Err(Problem::of(Code::IdempotencyConflict)),
        Accepted::Draft => {
            Err(Problem::new(Code::DefinitionNotPublished, "publish the definition first, or use `forebay apply`"))
        }
        Accepted::Moved | Accepted::NotFound => Err(Problem::not_found("definition in this workspace")),
        Accepted::Full => {
            let problem = Problem::new(Code::QueueFull, "as many executions wait in this workspace as may");
            Err(Problem { retry_after_s: Some(1), ..problem })
        }
    }
}

/// The first request with that key is still in its transaction.
pub(crate) fn busy(error: store::Error, keyed: bool) -> Problem {
    if keyed && error.is_lock_timeout() {
        let problem = Problem::new(Code::Conflict, "another request with this idempotency key is under way");
        return Problem { retry_after_s: Some(1), ..problem };
    }
    error.into()
}
