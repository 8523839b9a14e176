//! The published table over HTTP, in the protocol of PostgREST that the Supabase client uses.
//!
//! Invariants
//! - Every request passes `authenticate`, which checks its key. A key of a workspace reads and changes rows of its
//!   workspace only, a root key those of all workspaces.
//! - Every error is an object in the form of PostgREST, never a list: the client treats a list as a success.
//! - A job that is claimed here has no claim id, as in plain SQL. So a worker that completes or fails a job must filter
//!   by its `worker_id`, or by the `claimed_at` of its claim.
//!
//! If the process dies before a change is committed, nothing changed. If it dies after the commit and before the
//! response, the claim is valid: the worker finds the row by its `worker_id`, or the lease expires. A change that
//! arrives twice changes nothing the second time if its filter names the old status.
//!
//! Not here: parsing queries (`supabase::rest`), the statements (`store::job::table`), CORS (`cors`).

mod fault;
mod identity;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use store::job::table::{RowChange, Rows};
use supabase::rest::header::{Preferences, SINGLE_OBJECT};
use supabase::rest::query::ParsedQuery;
use supabase::rest::{RestError, change, check_table, decode};

use super::auth::Caller;
use super::body::Json;
use super::{Api, Problem};
use fault::Fault;
pub(crate) use identity::authenticate;

/// Selects rows.
#[utoipa::path(get, path = "/{table}", tag = "table",
    responses((status = 200, description = "A JSON array, or one row.")))]
pub(crate) async fn select(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    table: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    check_name(table, headers.get("accept-profile"))?;
    let ParsedQuery { query, .. } = read(query)?;
    let wanted = wanted(&headers)?;
    let rows = api.store.select_rows(&query, wanted.count, caller.workspace).await?;
    wanted.check_rows(rows.count)?;
    Ok(rows_response(StatusCode::OK, wanted, u64::from(query.offset), &rows))
}

/// Changes the rows that match the filters.
#[utoipa::path(patch, path = "/{table}", tag = "table",
    responses((status = 204, description = "The matching rows were changed, if there were any.")))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    table: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Result<Json<Value>, Problem>,
) -> Result<Response, Fault> {
    check_name(table, headers.get("content-profile"))?;
    let asked = read(query)?;
    asked.check_update()?;
    let wanted = wanted(&headers)?;
    let Json(body) = body.map_err(Fault::of_body)?;
    let set = change::read_columns(&body)?;
    if set.is_empty() {
        let none = Rows { body: "[]".to_owned(), count: 0, total: None };
        wanted.check_rows(0)?;
        return Ok(change_response(wanted, &none));
    }
    let change = RowChange { query: &asked.query, set: &set, body: &body, returning: wanted.rows };
    let rows = api.store.update_rows(&change, caller.workspace, |rows| wanted.decide(rows)).await??;
    if rows.count > 0 && body["status"] == "pending" {
        api.wakeups.jobs.notify_one();
    }
    Ok(change_response(wanted, &rows))
}

/// The error for an unknown path.
pub(crate) async fn unknown() -> Fault {
    Fault::new(StatusCode::NOT_FOUND, "PGRST125", "Invalid path specified in request URL")
}

/// The error for another method.
pub(crate) async fn other_method() -> Fault {
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, "PGRST117", "Unsupported HTTP method: use GET, HEAD or PATCH")
}

fn check_name(table: Result<Path<String>, PathRejection>, profile: Option<&HeaderValue>) -> Result<(), RestError> {
    let Ok(Path(table)) = table else { return Err(RestError::Query("the table's name is not UTF-8")) };
    let profile = profile.map(|profile| String::from_utf8_lossy(profile.as_bytes()).into_owned());
    check_table(&table, profile.as_deref())
}

fn read(query: Option<String>) -> Result<ParsedQuery, RestError> {
    ParsedQuery::read(&decode::read_pairs(query.as_deref().unwrap_or_default())?)
}

fn wanted(headers: &HeaderMap) -> Result<Preferences, RestError> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    Preferences::read(accept, headers.get_all("prefer").iter().filter_map(|prefer| prefer.to_str().ok()))
}

fn change_response(wanted: Preferences, rows: &Rows) -> Response {
    let mut response = match wanted.rows {
        true => rows_response(StatusCode::OK, wanted, 0, rows),
        false => StatusCode::NO_CONTENT.into_response(),
    };
    let applied = if wanted.rows { "return=representation" } else { "return=minimal" };
    response.headers_mut().insert("preference-applied", HeaderValue::from_static(applied));
    response
}

/// A response with rows in the form that the client requested: a list, or a single object.
fn rows_response(status: StatusCode, wanted: Preferences, from: u64, rows: &Rows) -> Response {
    let (kind, body) = match wanted.one {
        true => (SINGLE_OBJECT, rows.body.trim().trim_start_matches('[').trim_end_matches(']').to_owned()),
        false => ("application/json; charset=utf-8", rows.body.clone()),
    };
    let total = rows.total.map_or_else(|| "*".to_owned(), |total| total.to_string());
    let range = match rows.count {
        0 => format!("*/{total}"),
        count => format!("{from}-{}/{total}", from + count - 1),
    };
    (status, [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_RANGE, range)], body).into_response()
}
