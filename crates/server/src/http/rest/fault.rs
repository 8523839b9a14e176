//! Errors in the form of PostgREST: `code`, `message`, `details`, `hint`.
//!
//! Invariants
//! - No response contains the details of a database error: they may quote a row.
//! - A 5xx does not name its cause. The cause is logged once (`http::problem`).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use supabase::rest::RestError;

use crate::http::{Code, Problem};

#[derive(Debug)]
pub(crate) struct Fault {
    status: StatusCode,
    code: String,
    message: String,
    details: Option<String>,
    hint: Option<&'static str>,
    retry_after_s: Option<u32>,
}

impl Fault {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Fault {
        let (code, message) = (code.to_owned(), message.into());
        Fault { status, code, message, details: None, hint: None, retry_after_s: None }
    }

    /// The error for a request without a valid key.
    pub(super) fn unauthenticated(message: impl Into<String>) -> Fault {
        let hint = "send an API key (fbk_…) as apikey, as Authorization: Bearer KEY, or as both";
        Fault { hint: Some(hint), ..Fault::new(StatusCode::UNAUTHORIZED, "PGRST301", message) }
    }

    /// The error for an invalid body.
    pub(super) fn of_body(problem: Problem) -> Fault {
        let (_, status, _) = problem.code.describe();
        let status = if status == StatusCode::UNPROCESSABLE_ENTITY { StatusCode::BAD_REQUEST } else { status };
        Fault::new(status, "PGRST102", problem.detail)
    }
}

impl From<RestError> for Fault {
    fn from(refused: RestError) -> Fault {
        let status = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::BAD_REQUEST);
        Fault { details: refused.details(), ..Fault::new(status, refused.code(), refused.to_string()) }
    }
}

impl From<store::Error> for Fault {
    fn from(error: store::Error) -> Fault {
        match (&error, error.database_message()) {
            // The message comes from a trigger of the table, or from the database about a value in the request.
            (store::Error::Refused { code, .. }, Some(message)) => Fault::new(StatusCode::BAD_REQUEST, code, message),
            _ => Problem::from(error).into(),
        }
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Fault {
        let (_, status, _) = problem.code.describe();
        let code = match problem.code {
            Code::Unauthenticated => return Fault::unauthenticated(problem.detail),
            Code::Unavailable => "PGRST000",
            Code::Forbidden => "42501",
            _ => "XX000",
        };
        Fault { retry_after_s: problem.retry_after_s, ..Fault::new(status, code, problem.detail) }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.code, "message": self.message, "details": self.details, "hint": self.hint });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // The rest of the body is not read, so no other request can follow on this connection.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
