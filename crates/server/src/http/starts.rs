//! Start requests, one or many: parses each request, checks its input, and stores it. Each request gets its own result.
//!
//! Invariants
//! - A refused request stores nothing. A request that got 202 is durable.
//! - An execution runs the version that its input was checked against. If another version is published between the
//!   check and the write, the input is checked again. If the process dies before the write, nothing is stored.
//!
//! Not here: the routes (`executions`, `bulk`, `rerun`, `schedules`, `triggers`).

mod gather;

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use kernel::definition::parse;
use kernel::execution::Status;
use kernel::execution::rerun::KeptNodes;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use kernel::schedule::calendar::check_at;
use kernel::signals::trace::TraceParent;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::batch::{BatchResult, by_halves};
use store::queue::enqueue::{CheckedStart, EnqueueOutcome, Start};

use super::auth::Caller;
use super::problem::check_field;
use super::{Api, Code, Problem, definition_lookup};
use crate::definition::inputs::{InputVerdict, check_attempts};
use crate::process::notifications::Notifier;
use crate::wire;

pub(crate) use gather::StartGather;

/// The longest idempotency key. The key of a bulk request must be shorter, because the index of each item is appended.
pub(crate) const LONGEST_KEY: usize = 200;

/// An idempotency key, and the hash of the request that used it. None: the request has no key.
pub(crate) type Idempotency = Option<(String, Vec<u8>)>;

/// The idempotency key of the request, if it has one.
pub(crate) fn read_idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = single_header(headers, "Idempotency-Key")?.map(str::trim) else { return Ok(None) };
    if key.is_empty() || key.len() > LONGEST_KEY {
        return Err(Problem::new(Code::ValidationFailed, "Idempotency-Key: must have 1 to 200 printable characters"));
    }
    if kernel::queue::idempotency::is_reserved(key) {
        let detail = "Idempotency-Key: this form is reserved for keys that the service derives; choose another";
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    Ok(Some(key))
}

/// The value of a header that may occur once. A repeated or unreadable header is an error: if it were ignored, the
/// request would mean something else.
pub(crate) fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |why: &str| Problem::new(Code::ValidationFailed, format!("{name}: {why}"));
    if values.next().is_some() {
        return Err(wrong("the header was sent more than once; send it once"));
    }
    value.to_str().map(Some).map_err(|_| wrong("the header must be printable ASCII"))
}

/// Adds the hash of the request to its key. The order of fields does not change the hash.
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

/// The trace context of the request.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    engine::trace::of(&tracing::Span::current()).or_else(|| super::measure::traceparent(headers))
}

/// Reads a start request from its body.
pub(crate) fn read(
    caller: &Caller,
    body: wire::StartExecution,
    key: Option<String>,
    trace: Option<TraceParent>,
) -> Result<Start, Problem> {
    let workspace = caller.workspace(body.workspace_id)?;
    let idempotency = idempotency(key, &body)?;
    if body.concurrency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
        return Err(Problem::new(Code::ValidationFailed, "concurrencyKey: must have 1 to 200 characters"));
    }
    check_field("runAt", body.run_at, check_at)?;
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

/// Checks the inputs of start requests and stores the valid requests. Returns a result for each request, in order. The
/// outer error means that none could be handled, for example because the database is unavailable.
pub(crate) async fn accept(
    api: &Api,
    caller: &Caller,
    starts: Vec<Start>,
) -> Result<Vec<Result<wire::StartedExecution, Problem>>, Problem> {
    let mut answers: Vec<Option<Result<wire::StartedExecution, Problem>>> = starts.iter().map(|_| None).collect();
    let mut open: Vec<(usize, Start)> = starts.into_iter().enumerate().collect();
    for refresh in check_attempts() {
        let verdicts = api.input_rules.check(&api.store, &open, refresh).await?;
        let (mut good, mut refused) = (Vec::new(), Vec::new());
        for ((at, start), verdict) in std::mem::take(&mut open).into_iter().zip(verdicts) {
            match verdict {
                InputVerdict::Valid { input, published } => good.push((at, start, input, published)),
                // The cached version may no longer be the published version: check again before refusing.
                InputVerdict::Invalid(_) if !refresh && start.version.is_none() => open.push((at, start)),
                InputVerdict::Invalid(problems) => refused.push((at, start, problems)),
            }
        }
        for ((at, start, ..), answer) in good.iter().zip(store(api, caller, &good).await?) {
            match answer {
                Some(answer) => answers[*at] = Some(answer),
                None => open.push((*at, start.clone())),
            }
        }
        let indexes: Vec<usize> = refused.iter().map(|(at, ..)| *at).collect();
        let refused = refused.into_iter().map(|(_, start, problems)| (start, problems)).collect();
        for (at, answer) in indexes.into_iter().zip(refuse(api, refused).await?) {
            answers[at] = Some(answer);
        }
        if open.is_empty() {
            break;
        }
    }
    let still_changing = || {
        let problem =
            Problem::new(Code::Conflict, "the definition was published several times during this request: try again");
        Err(Problem { retry_after_s: Some(1), ..problem })
    };
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(still_changing)).collect())
}

/// The results of start requests with an invalid input. If a request with the same idempotency key was accepted before,
/// the result is that of the earlier request.
pub(crate) async fn refuse(
    api: &Api,
    refused: Vec<(Start, Vec<parse::Problem>)>,
) -> Result<Vec<Result<wire::StartedExecution, Problem>>, Problem> {
    let starts: Vec<&Start> = refused.iter().map(|(start, _)| start).collect();
    let before = api.store.accepted_before(&starts).await?;
    let statuses = statuses(api, before.iter().flatten().copied()).await?;
    let result = |((_, problems), before): ((Start, Vec<parse::Problem>), Option<EnqueueOutcome>)| match before {
        Some(accepted) => answer(accepted, &statuses),
        None => Err(refusal(problems)),
    };
    Ok(refused.into_iter().zip(before).map(result).collect())
}

/// The error for an input that the version does not accept.
pub(crate) fn refusal(problems: Vec<parse::Problem>) -> Problem {
    let detail = match problems.as_slice() {
        [only] => only.to_string(),
        many => format!("the input has {} problems", many.len()),
    };
    Problem { problems, ..Problem::new(Code::ValidationFailed, detail) }
}

/// Stores start requests with a valid input. None: the version changed, so the input must be checked again.
async fn store(
    api: &Api,
    caller: &Caller,
    good: &[(usize, Start, Option<Value>, Option<VersionId>)],
) -> Result<Vec<Option<Result<wire::StartedExecution, Problem>>>, Problem> {
    let filled = |(_, start, input, _): &(_, Start, Option<Value>, _)| Start { input: input.clone(), ..start.clone() };
    let filled: Vec<Start> = good.iter().map(filled).collect();
    let check = |(start, (.., published)): (_, &(_, _, _, _))| CheckedStart {
        start,
        published: *published,
        actor: &caller.actor,
    };
    let checked: Vec<CheckedStart<'_>> = filled.iter().zip(good).map(check).collect();
    let keyed = filled.iter().any(|start| start.idempotency.is_some());
    let outcomes = enqueue(api, &checked).await.map_err(|error| store_problem(error, keyed))?;
    let done = |outcome: &BatchResult<EnqueueOutcome>| {
        if let BatchResult::Done(accepted) = outcome { Some(*accepted) } else { None }
    };
    let statuses = statuses(api, outcomes.iter().filter_map(done)).await?;
    let missing = missing_definitions(api, caller, &filled, &outcomes).await;
    let result = |(start, outcome): (&Start, BatchResult<EnqueueOutcome>)| match outcome {
        BatchResult::Done(EnqueueOutcome::VersionChanged) => None,
        BatchResult::Done(accepted) => Some(
            answer(accepted, &statuses)
                .map_err(|problem| missing.get(&(start.workspace, start.definition)).cloned().unwrap_or(problem)),
        ),
        BatchResult::Refused(error) => Some(Err(error.into())),
    };
    Ok(filled.iter().zip(outcomes).map(result).collect())
}

/// Stores start requests: a single one together with those of other requests, if that is possible.
async fn enqueue(api: &Api, checked: &[CheckedStart<'_>]) -> Result<Vec<BatchResult<EnqueueOutcome>>, store::Error> {
    if let [one] = checked
        && let Some(outcome) = api.start_gather.store(one).await
    {
        return Ok(vec![outcome]);
    }
    let limit = api.settings.queue.max_backlog;
    let mut outcomes = by_halves(checked, |some| api.store.enqueue_checked(some, limit)).await?;
    for (CheckedStart { start, .. }, outcome) in checked.iter().zip(&mut outcomes) {
        // A gather whose answer was lost had stored this start.
        if matches!(outcome, BatchResult::Done(EnqueueOutcome::Existing { execution }) if *execution == start.execution)
        {
            *outcome = BatchResult::Done(EnqueueOutcome::New { execution: start.execution, ready: true });
        }
    }
    announce(&api.notifier, checked, &outcomes);
    Ok(outcomes)
}

/// Counts the accepted starts, and notifies a dispatcher of their workspaces.
fn announce(notifier: &Notifier, checked: &[CheckedStart<'_>], outcomes: &[BatchResult<EnqueueOutcome>]) {
    let new = |(checked, outcome): (&CheckedStart<'_>, &BatchResult<EnqueueOutcome>)| {
        matches!(outcome, BatchResult::Done(EnqueueOutcome::New { .. })).then_some(checked.start.workspace)
    };
    let accepted: Vec<WorkspaceId> = checked.iter().zip(outcomes).filter_map(new).collect();
    ::metrics::counter!(kernel::signals::metrics::ENQUEUED.name).increment(accepted.len() as u64);
    for workspace in accepted.into_iter().collect::<BTreeSet<_>>() {
        notifier.notify_enqueued(workspace);
    }
}

/// The errors for definitions that were not found. Each definition is looked up once, even if many requests name it.
async fn missing_definitions(
    api: &Api,
    caller: &Caller,
    starts: &[Start],
    outcomes: &[BatchResult<EnqueueOutcome>],
) -> BTreeMap<(WorkspaceId, DefinitionId), Problem> {
    let mut problems = BTreeMap::new();
    for (start, outcome) in starts.iter().zip(outcomes) {
        let (workspace, definition) = (start.workspace, start.definition);
        let is_missing = matches!(outcome, BatchResult::Done(EnqueueOutcome::NotFound));
        if is_missing && !problems.contains_key(&(workspace, definition)) {
            let problem = definition_lookup::not_found(api, caller, workspace, definition).await;
            problems.insert((workspace, definition), problem);
        }
    }
    problems
}

/// Stores a rerun that keeps the outputs of some nodes of the old execution.
pub(crate) async fn accept_rerun(
    api: &Api,
    caller: &Caller,
    start: &Start,
    kept: &KeptNodes,
) -> Result<Result<wire::StartedExecution, Problem>, Problem> {
    // The version is pinned, so its input rules cannot change and one check is enough.
    let unchecked = [(0, start.clone())];
    let start = match api.input_rules.check(&api.store, &unchecked, false).await?.pop() {
        Some(InputVerdict::Invalid(problems)) => return Ok(Err(refusal(problems))),
        Some(InputVerdict::Valid { input, .. }) => Start { input, ..start.clone() },
        None => start.clone(),
    };
    let limit = api.settings.queue.max_backlog;
    let accepted = api.store.rerun(&start, kept, limit, &caller.actor).await;
    let accepted = accepted.map_err(|error| store_problem(error, start.idempotency.is_some()))?;
    if matches!(accepted, EnqueueOutcome::New { .. }) {
        ::metrics::counter!(kernel::signals::metrics::ENQUEUED.name).increment(1);
        api.notifier.notify_enqueued(start.workspace);
    }
    started(api, accepted).await
}

/// The result of one start request.
pub(crate) async fn started(
    api: &Api,
    accepted: EnqueueOutcome,
) -> Result<Result<wire::StartedExecution, Problem>, Problem> {
    let statuses = statuses(api, [accepted].into_iter()).await?;
    Ok(answer(accepted, &statuses))
}

/// The current statuses of the executions that repeated requests had started.
async fn statuses(
    api: &Api,
    accepted: impl Iterator<Item = EnqueueOutcome>,
) -> Result<BTreeMap<ExecutionId, Status>, Problem> {
    let existing =
        |accepted| if let EnqueueOutcome::Existing { execution } = accepted { Some(execution) } else { None };
    let existing: Vec<ExecutionId> = accepted.filter_map(existing).collect();
    match existing.is_empty() {
        true => Ok(BTreeMap::new()),
        false => Ok(api.store.execution_statuses(&existing).await?),
    }
}

fn answer(
    accepted: EnqueueOutcome,
    statuses: &BTreeMap<ExecutionId, Status>,
) -> Result<wire::StartedExecution, Problem> {
    let started = |execution: ExecutionId, status, repeated| wire::StartedExecution {
        queue_id: execution.queue_item(),
        execution_id: execution,
        status,
        repeated,
    };
    match accepted {
        EnqueueOutcome::New { execution, .. } => Ok(started(execution, Status::Pending, false)),
        EnqueueOutcome::Existing { execution } => {
            Ok(started(execution, statuses.get(&execution).copied().unwrap_or(Status::Pending), true))
        }
        EnqueueOutcome::Conflict => Err(Problem::of(Code::IdempotencyConflict)),
        EnqueueOutcome::Draft => Err(Problem::new(
            Code::DefinitionNotPublished,
            "the definition has no published version: publish it, or use `forebay apply`",
        )),
        EnqueueOutcome::VersionChanged | EnqueueOutcome::NotFound => {
            Err(Problem::not_found("definition in this workspace"))
        }
        EnqueueOutcome::BacklogFull => {
            let problem = Problem::new(
                Code::QueueFull,
                "the workspace's backlog limit is reached: try again when waiting executions have started",
            );
            Err(Problem { retry_after_s: Some(1), ..problem })
        }
    }
}

/// Converts an error of the store. A lock timeout of a request with an idempotency key means that another request with
/// this key is in progress.
pub(crate) fn store_problem(error: store::Error, keyed: bool) -> Problem {
    if keyed && error.is_lock_timeout() {
        let problem = Problem::new(
            Code::Conflict,
            "another request with this idempotency key is in progress: try again in a second",
        );
        return Problem { retry_after_s: Some(1), ..problem };
    }
    error.into()
}
