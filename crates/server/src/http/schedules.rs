//! Schedules: workflows that start at set times.
//!
//! Invariants
//! - A schedule starts a definition of its own workspace. Each change of a schedule checks the input again.
//! - A manual run is handled like any start request: same checks, same response, same use of the idempotency key.
//!
//! Not here: schedules that a definition declares (`on: schedule`), running ticks (`crate::schedule`).

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::schedule::{self, Calendar, Overlap, Rule, Timing};
use serde::Deserialize;
use serde_json::json;
use store::queue::enqueue::{EnqueueOutcome, Start};
use store::schedule::fire::{DueSchedule, ManualRunOutcome};
use utoipa::IntoParams;
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::problem::{no_such, renamed};
use super::{Api, Code, Problem, definition_lookup, offload, page, starts};
use crate::definition::inputs::{InputVerdict, check_attempts};
use crate::schedule::start_of_tick;
use crate::wire::{ChangeSchedule, CreateSchedule, NextTicks, Page, Schedule, ScheduleFields, StartedExecution, Tick};

const MAX_NEXT_TICKS: usize = 100;

list_params! {
    pub(crate) struct ListSchedulesParams {
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
        /// List only schedules of this definition.
        workflow_definition_id: Option<DefinitionId>,
    }
}

/// Creates a schedule: starts a workflow repeatedly (`cron`), or once (`runAt`).
#[utoipa::path(post, path = "/schedules", tag = "schedules", request_body = CreateSchedule,
    responses((status = 201, body = Schedule)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateSchedule>,
) -> Result<impl IntoResponse, Problem> {
    let workspace = caller.workspace(body.workspace_id)?;
    let definition = body.workflow_definition_id;
    let (rule, next_at) = read(&api, &caller, workspace, definition, body.into()).await?;
    let id = api.store.create_schedule(workspace, definition, &rule, next_at, &caller.actor).await?;
    api.wakeups.schedules.notify_one();
    Ok((StatusCode::CREATED, Reply(wire(api.store.schedule(id, caller.workspace).await?))))
}

/// Lists schedules. A root key sees those of all workspaces.
#[utoipa::path(get, path = "/schedules", tag = "schedules", params(ListSchedulesParams),
    responses((status = 200, body = Page<Schedule>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListSchedulesParams>,
) -> Result<Reply<Page<Schedule>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Schedules, page::uuid_of)?;
    let (workspace, definition) = (caller.listed_workspace(params.workspace_id)?, params.workflow_definition_id);
    let found = api.store.schedules(workspace, definition, after, limit + 1).await?;
    let cursor = |row: &store::schedule::Schedule| page::write(page::ListKind::Schedules, row.id.as_bytes());
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NextTicksParams {
    /// Five fields: minute hour day month weekday. With six fields, the first is seconds.
    #[param(example = "0 6 * * MON-FRI")]
    cron: String,
    /// A timezone of the IANA database. Default: UTC.
    #[param(example = "Europe/Berlin")]
    timezone: Option<String>,
    /// List ticks after this time. Default: now.
    after: Option<Timestamp>,
    /// The number of ticks. Default: 10.
    #[param(minimum = 1, maximum = 100)]
    count: Option<usize>,
}

/// Lists the next ticks of a cron expression, without creating a schedule.
#[utoipa::path(get, path = "/schedules/next", tag = "schedules", params(NextTicksParams),
    responses((status = 200, body = NextTicks)))]
pub(crate) async fn next(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<NextTicksParams>,
) -> Result<Reply<NextTicks>, Problem> {
    let count = params.count.unwrap_or(10);
    if !(1..=MAX_NEXT_TICKS).contains(&count) {
        return Err(Problem::new(Code::ValidationFailed, format!("count: must be between 1 and {MAX_NEXT_TICKS}")));
    }
    let fields = ScheduleFields { cron: Some(params.cron), timezone: params.timezone, ..ScheduleFields::default() };
    let rule = rule(fields)?;
    let after = match params.after {
        Some(after) => after,
        None => api.store.now().await?,
    };
    let work = move || Calendar::read(&rule.timing, after).map(|calendar| calendar.next(after, count));
    let items = offload::run(caller.workspace, work).await?.map_err(|bad| refused(bad.to_string()))?;
    Ok(Reply(NextTicks { items }))
}

/// Reads a schedule.
#[utoipa::path(get, path = "/schedules/{id}", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 200, body = Schedule)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Schedule>, Problem> {
    Ok(Reply(wire(api.store.schedule(id, caller.workspace).await.map_err(no_such("schedule"))?)))
}

/// Changes the given fields of a schedule: omitted fields keep their values; null resets one.
#[utoipa::path(patch, path = "/schedules/{id}", tag = "schedules", params(("id" = Uuid, Path)),
    request_body = ChangeSchedule,
    responses((status = 200, body = Schedule)))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<ChangeSchedule>,
) -> Result<Reply<Schedule>, Problem> {
    let known = api.store.schedule(id, caller.workspace).await.map_err(no_such("schedule"))?;
    let (workspace, definition, revision) = (known.workspace, known.definition, known.revision);
    let fields = body.clone().apply(fields(known.rule, &body));
    let (rule, next_at) = read(&api, &caller, workspace, definition, fields).await?;
    let changed = api.store.change_schedule((id, revision), caller.workspace, &rule, next_at, &caller.actor).await;
    changed.map_err(no_such("schedule"))?;
    api.wakeups.schedules.notify_one();
    Ok(Reply(wire(api.store.schedule(id, caller.workspace).await.map_err(no_such("schedule"))?)))
}

/// Deletes a schedule and its ticks. Executions that it started continue.
#[utoipa::path(delete, path = "/schedules/{id}", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.delete_schedule(id, caller.workspace, &caller.actor).await.map_err(no_such("schedule"))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a schedule: its ticks start nothing until it is resumed.
#[utoipa::path(post, path = "/schedules/{id}/pause", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 200, body = Schedule)))]
pub(crate) async fn pause(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Schedule>, Problem> {
    set_paused(&api, &caller, id, true).await
}

/// Resumes a schedule. `catchUp` decides which of the missed ticks run.
#[utoipa::path(post, path = "/schedules/{id}/resume", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 200, body = Schedule)))]
pub(crate) async fn resume(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Schedule>, Problem> {
    set_paused(&api, &caller, id, false).await
}

async fn set_paused(api: &Api, caller: &Caller, id: Uuid, paused: bool) -> Result<Reply<Schedule>, Problem> {
    api.store.pause_schedule(id, caller.workspace, paused, &caller.actor).await.map_err(no_such("schedule"))?;
    api.wakeups.schedules.notify_one();
    Ok(Reply(wire(api.store.schedule(id, caller.workspace).await.map_err(no_such("schedule"))?)))
}

/// Starts the workflow of a schedule now. The ticks of the schedule do not change.
#[utoipa::path(post, path = "/schedules/{id}/run", tag = "schedules",
    params(("id" = Uuid, Path),
    ("Idempotency-Key" = Option<String>, Header, description = "Requests with the same key start one execution.",
         min_length = 1,
    max_length = 200)),
    responses((status = 202, body = StartedExecution,
    headers(("Location" = String, description = "The path of the execution.")))))]
pub(crate) async fn run(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Id(id): Id<Uuid>,
) -> Result<impl IntoResponse, Problem> {
    let key = starts::read_idempotency_key(&headers)?.map(str::to_owned);
    let idempotency = starts::idempotency(key, &json!({ "schedule": id }))?;
    for _ in check_attempts() {
        let Some(started) = try_run(&api, &caller, id, &idempotency, &headers).await? else { continue };
        let location = format!("/api/v1/workflow/executions/{}", started.execution_id);
        let headers: [(HeaderName, String); 1] = [(header::LOCATION, location)];
        return Ok((StatusCode::ACCEPTED, headers, Reply(started)));
    }
    let problem = Problem::new(
        Code::Conflict,
        "the schedule or its definition was changed several times during this request: try again",
    );
    Err(Problem { retry_after_s: Some(1), ..problem })
}

/// Tries once to start a manual run. None: the schedule or its definition changed meanwhile, so check again.
async fn try_run(
    api: &Api,
    caller: &Caller,
    id: Uuid,
    idempotency: &starts::Idempotency,
    headers: &HeaderMap,
) -> Result<Option<StartedExecution>, Problem> {
    let known = api.store.schedule(id, caller.workspace).await.map_err(no_such("schedule"))?;
    let due = DueSchedule {
        id: known.id,
        workspace: known.workspace,
        definition: known.definition,
        input: known.rule.input,
        revision: known.revision,
    };
    let unchecked = Start {
        priority: known.rule.priority,
        concurrency_key: known.rule.concurrency_key,
        trace: starts::trace_parent(headers),
        ..start_of_tick(&due, idempotency.clone())
    };
    let unchecked = [(0, unchecked)];
    let verdict = api.input_rules.check(&api.store, &unchecked, true).await?.pop();
    let ([(_, start)], Some(verdict)) = (unchecked, verdict) else { return Err(Problem::of(Code::Internal)) };
    let (input, published) = match verdict {
        InputVerdict::Valid { input, published } => (input, published),
        InputVerdict::Invalid(problems) => {
            let answer = starts::refuse(api, vec![(start, problems)]).await?.pop();
            return answer.ok_or_else(|| Problem::of(Code::Internal))?.map(Some);
        }
    };
    let (limit, keyed) = (api.settings.queue.max_backlog, idempotency.is_some());
    let outcome = api.store.run_schedule(&due, Start { input, ..start }, published, limit, &caller.actor).await;
    let accepted = match outcome.map_err(|error| starts::store_problem(error, keyed))? {
        ManualRunOutcome::Enqueued(EnqueueOutcome::VersionChanged) | ManualRunOutcome::Changed => return Ok(None),
        ManualRunOutcome::Enqueued(accepted) => accepted,
    };
    if matches!(accepted, EnqueueOutcome::New { .. }) {
        ::metrics::counter!(kernel::signals::metrics::ENQUEUED.name).increment(1);
        api.notifier.notify_enqueued(due.workspace);
    }
    starts::started(api, accepted).await?.map(Some)
}

/// Lists the ticks of a schedule and their results, the newest first. The last 1,000 are kept.
#[utoipa::path(get, path = "/schedules/{id}/ticks", tag = "schedules", params(("id" = Uuid, Path), page::PageParams),
    responses((status = 200, body = Page<Tick>)))]
pub(crate) async fn ticks(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Params(params): Params<page::PageParams>,
) -> Result<Reply<Page<Tick>>, Problem> {
    let position = |bytes: &[u8]| page::time_cursor_of(bytes, |[by_hand]: [u8; 1]| by_hand != 0);
    let (limit, before) = params.page(page::ListKind::Ticks, position)?;
    api.store.schedule(id, caller.workspace).await.map_err(no_such("schedule"))?;
    let rows = api.store.ticks(id, before.map(|cursor| (cursor.at, cursor.id)), limit + 1).await?;
    let cursor =
        |row: &store::schedule::Tick| page::write(page::ListKind::Ticks, &page::timed(row.at, [u8::from(row.by_hand)]));
    Ok(Reply(page::page(rows, limit, cursor, tick)))
}

/// Reads a rule from a body, checks its input against the published version, and finds its first tick.
async fn read(
    api: &Api,
    caller: &Caller,
    workspace: WorkspaceId,
    definition: DefinitionId,
    body: ScheduleFields,
) -> Result<(Rule, Timestamp), Problem> {
    let rule = rule(body)?;
    definition_lookup::find(api, caller, Some(workspace), definition).await?;
    let due = DueSchedule { id: Uuid::nil(), workspace, definition, input: rule.input.clone(), revision: 0 };
    let verdicts = api.input_rules.check(&api.store, &[(0, start_of_tick(&due, None))], true).await?;
    for verdict in verdicts {
        if let InputVerdict::Invalid(problems) = verdict {
            return Err(starts::refusal(problems));
        }
    }
    let now = api.store.now().await?;
    let calendar = Calendar::read(&rule.timing, now).map_err(|bad| refused(bad.to_string()))?;
    let next_at = calendar.after(now).ok_or_else(|| refused("runAt: must be in the future"))?;
    Ok((rule, next_at))
}

/// The fields of a stored schedule to which a change is applied. A change from `cron` to `runAt`, or back, drops the
/// fields that only the old kind of schedule has.
fn fields(rule: Rule, change: &ChangeSchedule) -> ScheduleFields {
    let becomes_single = matches!(change.run_at, Some(Some(_)));
    let becomes_repeated = matches!(change.cron, Some(Some(_)));
    let (cron, timezone, overlap, run_at) = match rule.timing {
        Timing::Cron { cron, timezone } if !becomes_single => (Some(cron), Some(timezone), Some(rule.overlap), None),
        Timing::At { at } if !becomes_repeated => (None, None, None, Some(at)),
        Timing::Cron { .. } | Timing::At { .. } => (None, None, None, None),
    };
    ScheduleFields {
        cron,
        timezone,
        run_at,
        input: rule.input,
        priority: Some(rule.priority),
        concurrency_key: rule.concurrency_key,
        overlap,
        catch_up: Some(rule.catch_up),
    }
}

fn rule(body: ScheduleFields) -> Result<Rule, Problem> {
    let once = body.run_at.is_some();
    let timing = match (body.cron, body.run_at) {
        (Some(cron), None) => Timing::Cron { cron, timezone: body.timezone.unwrap_or_else(|| "UTC".to_owned()) },
        (None, Some(at)) if body.timezone.is_none() && body.overlap.is_none() => Timing::At { at },
        (None, Some(_)) => return Err(refused("timezone and overlap need cron: a schedule with runAt starts once")),
        _ => return Err(refused("exactly one of cron and runAt is required")),
    };
    let rule = Rule {
        timing,
        input: body.input,
        priority: body.priority.unwrap_or_default(),
        concurrency_key: body.concurrency_key,
        overlap: if once { Overlap::Allow } else { body.overlap.unwrap_or_default() },
        catch_up: body.catch_up.unwrap_or_default(),
    };
    let problems: Vec<_> = schedule::check(&rule).into_iter().map(|problem| renamed(problem, &NAMES)).collect();
    match problems.first() {
        Some(first) => Err(Problem { problems: problems.clone(), ..refused(first.to_string()) }),
        None => Ok(rule),
    }
}

/// The fields whose name in the API is not the name in a definition.
const NAMES: [(&str, &str); 2] = [("/at", "/runAt"), ("/concurrency_key", "/concurrencyKey")];

fn refused(detail: impl Into<String>) -> Problem {
    Problem::new(Code::ValidationFailed, detail)
}

fn wire(schedule: store::schedule::Schedule) -> Schedule {
    let (cron, timezone, run_at) = match schedule.rule.timing {
        Timing::Cron { cron, timezone } => (Some(cron), Some(timezone), None),
        Timing::At { at } => (None, None, Some(at)),
    };
    Schedule {
        id: schedule.id,
        workspace_id: schedule.workspace,
        workflow_definition_id: schedule.definition,
        workflow_name: schedule.definition_name,
        by_definition: schedule.by_definition,
        cron,
        timezone,
        run_at,
        input: schedule.rule.input,
        priority: schedule.rule.priority,
        concurrency_key: schedule.rule.concurrency_key,
        overlap: schedule.rule.overlap,
        catch_up: schedule.rule.catch_up,
        status: schedule.status,
        reason: schedule.reason,
        next_at: schedule.next_at,
        buffered_at: schedule.buffered_at,
        created_at: schedule.created_at,
        updated_at: schedule.updated_at,
    }
}

fn tick(tick: store::schedule::Tick) -> Tick {
    Tick {
        at: tick.at,
        manual: tick.by_hand,
        status: tick.status,
        reason: tick.reason,
        execution_id: tick.execution,
        decided_at: tick.decided_at,
    }
}
