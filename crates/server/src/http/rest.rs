//! The published table over HTTP, in the dialect of PostgREST that the Supabase client speaks.
//!
//! Invariants
//! - Nothing goes past `require` without a key; a key sees and changes the rows of its own workspace, a root key all.
//! - Every answer that is no success has PostgREST's shape, and is an object: the client takes a list for a success.
//! - A claim made here is like one in plain SQL: it has no number. Who ends a job says whose it must be by a filter
//!   (`worker_id`, or `claimed_at` as the claim answered it).
//!
//! What if the process dies before a change is committed: it never was, and the client, which does not repeat a PATCH,
//! looks. After it, and before the answer: the claim stands, and its worker finds the row under its own name; unheard
//! of, it comes back when its lease is over. A change that arrives twice finds nothing the second time, if it names the
//! status it leaves.
//!
//! Not here: what may be asked (`supabase::rest`), the statements (`store::job::table`), pages in browsers (`cors`).

mod fault;
mod identity;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use store::job::table::{Change, Rows};
use supabase::rest::header::{ONE, Wanted};
use supabase::rest::query::Asked;
use supabase::rest::{Refused, change, check_table, decode};

use super::auth::Caller;
use super::body::Json;
use super::{Api, Problem};
use fault::Fault;
pub(crate) use identity::require;

/// The rows that are asked for.
#[utoipa::path(get, path = "/{table}", tag = "table",
    responses((status = 200, description = "A JSON array, or one row.")))]
pub(crate) async fn ask(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    table: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    check_name(table, headers.get("accept-profile"))?;
    let Asked { query, .. } = read(query)?;
    let wanted = wanted(&headers)?;
    let rows = api.store.ask_rows(&query, wanted.count, caller.workspace).await?;
    wanted.check_rows(rows.count)?;
    Ok(told(StatusCode::OK, wanted, u64::from(query.offset), &rows))
}

/// Changes the rows that the filters name.
#[utoipa::path(patch, path = "/{table}", tag = "table",
    responses((status = 204, description = "Done, if there was anything to do.")))]
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
    let set = change::columns(&body)?;
    if set.is_empty() {
        let none = Rows { body: "[]".to_owned(), count: 0, total: None };
        wanted.check_rows(0)?;
        return Ok(changed(wanted, &none));
    }
    let change = Change { query: &asked.query, set: &set, body: &body, returning: wanted.rows };
    let rows = api.store.change_rows(&change, caller.workspace, |rows| wanted.judge(rows)).await??;
    if rows.count > 0 && body["status"] == "pending" {
        api.wakes.jobs.notify_one();
    }
    Ok(changed(wanted, &rows))
}

/// What there is not.
pub(crate) async fn unknown() -> Fault {
    Fault::new(StatusCode::NOT_FOUND, "PGRST125", "Invalid path specified in request URL")
}

/// What the table does not take.
pub(crate) async fn other_method() -> Fault {
    Fault::new(StatusCode::METHOD_NOT_ALLOWED, "PGRST117", "Unsupported HTTP method: there are GET, HEAD and PATCH")
}

fn check_name(table: Result<Path<String>, PathRejection>, profile: Option<&HeaderValue>) -> Result<(), Refused> {
    let Ok(Path(table)) = table else { return Err(Refused::Query("the table's name is not UTF-8")) };
    let profile = profile.map(|profile| String::from_utf8_lossy(profile.as_bytes()).into_owned());
    check_table(&table, profile.as_deref())
}

fn read(query: Option<String>) -> Result<Asked, Refused> {
    Asked::read(&decode::pairs(query.as_deref().unwrap_or_default())?)
}

fn wanted(headers: &HeaderMap) -> Result<Wanted, Refused> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    Wanted::read(accept, headers.get_all("prefer").iter().filter_map(|prefer| prefer.to_str().ok()))
}

fn changed(wanted: Wanted, rows: &Rows) -> Response {
    let mut response = match wanted.rows {
        true => told(StatusCode::OK, wanted, 0, rows),
        false => StatusCode::NO_CONTENT.into_response(),
    };
    let applied = if wanted.rows { "return=representation" } else { "return=minimal" };
    response.headers_mut().insert("preference-applied", HeaderValue::from_static(applied));
    response
}

/// Rows as the client takes them: a list, or the only one of it.
fn told(status: StatusCode, wanted: Wanted, from: u64, rows: &Rows) -> Response {
    let (kind, body) = match wanted.one {
        true => (ONE, rows.body.trim().trim_start_matches('[').trim_end_matches(']').to_owned()),
        false => ("application/json; charset=utf-8", rows.body.clone()),
    };
    let total = rows.total.map_or_else(|| "*".to_owned(), |total| total.to_string());
    let range = match rows.count {
        0 => format!("*/{total}"),
        count => format!("{from}-{}/{total}", from + count - 1),
    };
    (status, [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_RANGE, range)], body).into_response()
}
