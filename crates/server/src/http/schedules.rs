//! Schedules: when workflows start by themselves.
//!
//! Invariants
//! - A schedule starts a definition of its own workspace, with an input that its published version takes when the
//!   schedule is made.
//! - A trigger is a start: judged alike, answered alike, repeatable by its key.
//!
//! Not here: what a definition asks for by itself (`on: schedule`, at publishing), taking ticks (`crate::schedule`).

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::schedule::{self, Calendar, Overlap, Rule, Timing};
use serde::Deserialize;
use serde_json::json;
use store::queue::enqueue::{Accepted, Start};
use store::schedule::fire::{Due, Triggered};
use utoipa::IntoParams;
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::{Api, Code, Problem, absent, apart, page, starts};
use crate::definition::inputs::{Verdict, rounds};
use crate::schedule::start;
use crate::wire::{ChangeSchedule, CreateSchedule, NextTicks, Page, Schedule, Started, Tick};

/// How many ticks are told ahead.
const MOST_AHEAD: usize = 100;

list_params! {
    pub(crate) struct List {
        /// With a root key, only those of this workspace.
        workspace_id: Option<WorkspaceId>,
        /// Only those of this definition.
        workflow_definition_id: Option<DefinitionId>,
    }
}

/// Starts a workflow at times, or at one.
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
    api.wakes.schedules.notify_one();
    Ok((StatusCode::CREATED, Reply(wire(api.store.schedule(id, caller.workspace).await?))))
}

/// Schedules; with a root key of all workspaces.
#[utoipa::path(get, path = "/schedules", tag = "schedules", params(List),
    responses((status = 200, body = Page<Schedule>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<Schedule>>, Problem> {
    let (limit, after) = params.page(page::List::Schedules, page::uuid_of)?;
    let (workspace, definition) = (caller.sees(params.workspace_id)?, params.workflow_definition_id);
    let found = api.store.schedules(workspace, definition, after, limit + 1).await?;
    let cursor = |row: &store::schedule::Schedule| page::write(page::List::Schedules, row.id.as_bytes());
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Ahead {
    /// minute hour day month weekday, with seconds before them if there are six.
    #[param(example = "0 6 * * MON-FRI")]
    cron: String,
    /// Of the IANA database; UTC if not said.
    #[param(example = "Europe/Berlin")]
    timezone: Option<String>,
    /// From when on; now if not said.
    after: Option<Timestamp>,
    /// How many; 10 if not said.
    #[param(minimum = 1, maximum = 100)]
    count: Option<usize>,
}

/// When an expression comes next, before anything is made of it.
#[utoipa::path(get, path = "/schedules/next", tag = "schedules", params(Ahead),
    responses((status = 200, body = NextTicks)))]
pub(crate) async fn next(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<Ahead>,
) -> Result<Reply<NextTicks>, Problem> {
    let count = params.count.unwrap_or(10);
    if !(1..=MOST_AHEAD).contains(&count) {
        return Err(Problem::new(Code::ValidationFailed, format!("count: 1 to {MOST_AHEAD}")));
    }
    let change = ChangeSchedule { cron: Some(params.cron), timezone: params.timezone, ..ChangeSchedule::default() };
    let rule = rule(change)?;
    let after = match params.after {
        Some(after) => after,
        None => api.store.now().await?,
    };
    let work = move || Calendar::read(&rule.timing, after).map(|calendar| calendar.next(after, count));
    let items = apart::run(caller.workspace, work).await?.map_err(|bad| refused(bad.to_string()))?;
    Ok(Reply(NextTicks { items }))
}

/// One schedule.
#[utoipa::path(get, path = "/schedules/{id}", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 200, body = Schedule)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Schedule>, Problem> {
    Ok(Reply(wire(api.store.schedule(id, caller.workspace).await.map_err(unknown)?)))
}

/// Changes a schedule, from now on. One that has ended begins anew.
#[utoipa::path(put, path = "/schedules/{id}", tag = "schedules", params(("id" = Uuid, Path)),
    request_body = ChangeSchedule,
    responses((status = 200, body = Schedule)))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<ChangeSchedule>,
) -> Result<Reply<Schedule>, Problem> {
    let known = api.store.schedule(id, caller.workspace).await.map_err(unknown)?;
    let (rule, next_at) = read(&api, &caller, known.workspace, known.definition, body).await?;
    api.store.change_schedule(id, caller.workspace, &rule, next_at, &caller.actor).await.map_err(unknown)?;
    api.wakes.schedules.notify_one();
    Ok(Reply(wire(api.store.schedule(id, caller.workspace).await.map_err(unknown)?)))
}

/// Takes a schedule away with its ticks. What it started goes on.
#[utoipa::path(delete, path = "/schedules/{id}", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.delete_schedule(id, caller.workspace, &caller.actor).await.map_err(unknown)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes no tick of a schedule any more, until it is resumed.
#[utoipa::path(post, path = "/schedules/{id}/pause", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 200, body = Schedule)))]
pub(crate) async fn pause(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Schedule>, Problem> {
    set(&api, &caller, id, true).await
}

/// Goes on. Which of the ticks that were missed are run is for `catchUp` to say.
#[utoipa::path(post, path = "/schedules/{id}/resume", tag = "schedules", params(("id" = Uuid, Path)),
    responses((status = 200, body = Schedule)))]
pub(crate) async fn resume(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Schedule>, Problem> {
    set(&api, &caller, id, false).await
}

async fn set(api: &Api, caller: &Caller, id: Uuid, paused: bool) -> Result<Reply<Schedule>, Problem> {
    api.store.pause_schedule(id, caller.workspace, paused, &caller.actor).await.map_err(unknown)?;
    api.wakes.schedules.notify_one();
    Ok(Reply(wire(api.store.schedule(id, caller.workspace).await.map_err(unknown)?)))
}

/// Starts what a schedule starts, now, whatever it started before. Its ticks stay as they are.
#[utoipa::path(post, path = "/schedules/{id}/trigger", tag = "schedules",
    params(("id" = Uuid, Path),
    ("Idempotency-Key" = Option<String>, Header, description = "The same key starts once.", min_length = 1,
    max_length = 200)),
    responses((status = 202, body = Started,
    headers(("Location" = String, description = "The execution's address.")))))]
pub(crate) async fn trigger(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Id(id): Id<Uuid>,
) -> Result<impl IntoResponse, Problem> {
    let key = starts::key(&headers)?.map(str::to_owned);
    let idempotency = starts::idempotency(key, &json!({ "trigger": id }))?;
    for _ in rounds() {
        let Some(started) = attempt(&api, &caller, id, &idempotency, &headers).await? else { continue };
        let location = format!("/api/v1/workflow/executions/{}", started.execution_id);
        let headers: [(HeaderName, String); 1] = [(header::LOCATION, location)];
        return Ok((StatusCode::ACCEPTED, headers, Reply(started)));
    }
    let problem = Problem::new(Code::Conflict, "the schedule or its definition is being changed again and again");
    Err(Problem { retry_after_s: Some(1), ..problem })
}

/// One try at a trigger; none if it must be judged anew.
async fn attempt(
    api: &Api,
    caller: &Caller,
    id: Uuid,
    idempotency: &starts::Idempotency,
    headers: &HeaderMap,
) -> Result<Option<Started>, Problem> {
    let known = api.store.schedule(id, caller.workspace).await.map_err(unknown)?;
    let due = Due {
        id: known.id,
        workspace: known.workspace,
        definition: known.definition,
        input: known.rule.input,
        revision: known.revision,
    };
    let asked = Start {
        priority: known.rule.priority,
        concurrency_key: known.rule.concurrency_key,
        trace: starts::trace(headers),
        ..start(&due, idempotency.clone())
    };
    let judged = [(0, asked)];
    let verdict = api.input_rules.judge(&api.store, &judged, true).await?.pop();
    let ([(_, asked)], Some(verdict)) = (judged, verdict) else { return Err(Problem::of(Code::Internal)) };
    let (input, published) = match verdict {
        Verdict::Good { input, published } => (input, published),
        Verdict::Refused(problems) => {
            let answer = starts::refuse(api, vec![(asked, problems)]).await?.pop();
            return answer.ok_or_else(|| Problem::of(Code::Internal))?.map(Some);
        }
    };
    let (limit, keyed) = (api.settings.queue.max_backlog, idempotency.is_some());
    let told = api.store.trigger(&due, Start { input, ..asked }, published, limit, &caller.actor).await;
    let accepted = match told.map_err(|error| starts::busy(error, keyed))? {
        Triggered::Accepted(Accepted::Moved) | Triggered::Changed => return Ok(None),
        Triggered::Accepted(accepted) => accepted,
    };
    if matches!(accepted, Accepted::New { .. }) {
        ::metrics::counter!(kernel::signals::metrics::ENQUEUED.name).increment(1);
        api.hints.enqueued(due.workspace);
    }
    starts::told(api, accepted).await?.map(Some)
}

/// What became of a schedule's ticks, the newest first; the last 1,000 are kept.
#[utoipa::path(get, path = "/schedules/{id}/ticks", tag = "schedules", params(("id" = Uuid, Path), page::Paging),
    responses((status = 200, body = Page<Tick>)))]
pub(crate) async fn ticks(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Params(params): Params<page::Paging>,
) -> Result<Reply<Page<Tick>>, Problem> {
    let place = |bytes: &[u8]| page::place_of(bytes, |[by_hand]: [u8; 1]| by_hand != 0);
    let (limit, before) = params.page(page::List::Ticks, place)?;
    api.store.schedule(id, caller.workspace).await.map_err(unknown)?;
    let rows = api.store.ticks(id, before.map(|place| (place.at, place.id)), limit + 1).await?;
    let cursor =
        |row: &store::schedule::Tick| page::write(page::List::Ticks, &page::timed(row.at, [u8::from(row.by_hand)]));
    Ok(Reply(page::page(rows, limit, cursor, tick)))
}

/// A rule as a body asks for it, and its first tick. Its input must do for what is published.
async fn read(
    api: &Api,
    caller: &Caller,
    workspace: WorkspaceId,
    definition: DefinitionId,
    body: ChangeSchedule,
) -> Result<(Rule, Timestamp), Problem> {
    let rule = rule(body)?;
    absent::definition(api, caller, Some(workspace), definition).await?;
    let due = Due { id: Uuid::nil(), workspace, definition, input: rule.input.clone(), revision: 0 };
    let verdicts = api.input_rules.judge(&api.store, &[(0, start(&due, None))], true).await?;
    for verdict in verdicts {
        if let Verdict::Refused(problems) = verdict {
            return Err(starts::refusal(problems));
        }
    }
    let now = api.store.now().await?;
    let calendar = Calendar::read(&rule.timing, now).map_err(|bad| refused(bad.to_string()))?;
    let next_at = calendar.after(now).ok_or_else(|| refused("runAt: lies behind us"))?;
    Ok((rule, next_at))
}

fn rule(body: ChangeSchedule) -> Result<Rule, Problem> {
    let once = body.run_at.is_some();
    let timing = match (body.cron, body.run_at) {
        (Some(cron), None) => Timing::Cron { cron, timezone: body.timezone.unwrap_or_else(|| "UTC".to_owned()) },
        (None, Some(at)) if body.timezone.is_none() && body.overlap.is_none() => Timing::At { at },
        (None, Some(_)) => return Err(refused("timezone and overlap: only beside cron; runAt is one moment")),
        _ => return Err(refused("give either cron or runAt")),
    };
    let rule = Rule {
        timing,
        input: body.input,
        priority: body.priority.unwrap_or_default(),
        concurrency_key: body.concurrency_key,
        overlap: if once { Overlap::Allow } else { body.overlap.unwrap_or_default() },
        catch_up: body.catch_up.unwrap_or_default(),
    };
    let problems: Vec<_> = schedule::check(&rule).into_iter().map(named).collect();
    match problems.first() {
        Some(first) => Err(Problem { problems: problems.clone(), ..refused(first.to_string()) }),
        None => Ok(rule),
    }
}

/// A problem of a rule, at the name that its field has on the wire.
fn named(problem: kernel::definition::parse::Problem) -> kernel::definition::parse::Problem {
    let pointer = match problem.pointer.as_str() {
        "/at" => "/runAt".to_owned(),
        "/concurrency_key" => "/concurrencyKey".to_owned(),
        other => other.to_owned(),
    };
    kernel::definition::parse::Problem::new(problem.code, pointer, problem.message)
}

fn refused(detail: impl Into<String>) -> Problem {
    Problem::new(Code::ValidationFailed, detail)
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("schedule"),
        other => other.into(),
    }
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
        by_hand: tick.by_hand,
        status: tick.status,
        reason: tick.reason,
        execution_id: tick.execution,
        decided_at: tick.decided_at,
    }
}
