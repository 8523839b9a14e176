//! Errors as clients see them: one enum of codes, and one type of body.
//!
//! Invariants
//! - A code is stable and documented. It decides the HTTP status.
//! - The cause of an internal error is logged here, once. The response does not contain it.

use std::fmt::Display;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernel::definition::parse;

use crate::definition::inputs;
use crate::wire::ProblemBody;

/// Every code that an error response may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    NotFound,
    WorkspaceMismatch,
    Forbidden,
    Unauthenticated,
    ValidationFailed,
    Malformed,
    DefinitionInvalid,
    DefinitionNotPublished,
    IdempotencyConflict,
    Conflict,
    LeaseLost,
    PayloadTooLarge,
    QueueFull,
    RateLimited,
    Unavailable,
    EgressDenied,
    MethodNotAllowed,
    UnsupportedMediaType,
    Internal,
}

impl Code {
    /// The name of the code, its HTTP status, and its title.
    pub fn describe(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Code::NotFound => ("not_found", StatusCode::NOT_FOUND, "Not found"),
            Code::WorkspaceMismatch => {
                ("workspace_mismatch", StatusCode::FORBIDDEN, "The request names a workspace that its key may not use")
            }
            Code::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "This key does not have the required permission"),
            Code::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED, "The request has no valid key"),
            Code::ValidationFailed => {
                ("validation_failed", StatusCode::UNPROCESSABLE_ENTITY, "A value in the request is invalid")
            }
            Code::Malformed => ("validation_failed", StatusCode::BAD_REQUEST, "The request cannot be read"),
            Code::DefinitionInvalid => {
                ("definition_invalid", StatusCode::UNPROCESSABLE_ENTITY, "The definition has problems")
            }
            Code::DefinitionNotPublished => {
                ("definition_not_published", StatusCode::CONFLICT, "The definition has no published version")
            }
            Code::IdempotencyConflict => (
                "idempotency_conflict",
                StatusCode::UNPROCESSABLE_ENTITY,
                "This idempotency key was used with a different request",
            ),
            Code::Conflict => ("conflict", StatusCode::CONFLICT, "The current state does not allow this request"),
            Code::LeaseLost => ("lease_lost", StatusCode::CONFLICT, "This claim no longer holds the task"),
            Code::PayloadTooLarge => ("payload_too_large", StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Code::QueueFull => ("queue_full", StatusCode::TOO_MANY_REQUESTS, "The workspace's backlog is full"),
            Code::RateLimited => ("rate_limited", StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
            Code::Unavailable => {
                ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "The service is temporarily unavailable")
            }
            Code::EgressDenied => {
                ("egress_denied", StatusCode::FORBIDDEN, "The outbound rules do not allow this address")
            }
            Code::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Code::UnsupportedMediaType => {
                ("unsupported_media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported media type")
            }
            Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "An internal error occurred"),
        }
    }
}

/// An error response.
#[derive(Clone, Debug)]
pub struct Problem {
    pub code: Code,
    pub detail: String,
    pub problems: Vec<parse::Problem>,
    pub retry_after_s: Option<u32>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem { code, detail: detail.into(), problems: Vec::new(), retry_after_s: None }
    }

    /// A problem without a detail, for a code that needs none.
    pub fn of(code: Code) -> Problem {
        Problem::new(code, code.describe().2)
    }

    /// The body of the response.
    pub fn body(self) -> ProblemBody {
        let (code, status, title) = self.code.describe();
        ProblemBody {
            kind: format!("urn:forebay:problem:{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: self.detail,
            problems: self.problems,
        }
    }

    /// The error for a resource that does not exist, or that this caller may not see.
    pub fn not_found(what: &str) -> Problem {
        Problem::new(Code::NotFound, format!("there is no such {what}"))
    }
}

/// Turns an error of the store into a problem. If the row is missing, the problem says that there is no such thing.
pub(crate) fn no_such(what: &'static str) -> impl Fn(store::Error) -> Problem + Copy {
    move |error| match error {
        store::Error::NotFound => Problem::not_found(what),
        other => other.into(),
    }
}

/// Checks a field by a rule of the kernel. An omitted field needs no check.
pub(crate) fn check_field<T, E: Display>(
    field: &str,
    value: Option<T>,
    rule: impl FnOnce(T) -> Result<(), E>,
) -> Result<(), Problem> {
    let wrong = |why| Problem::new(Code::ValidationFailed, format!("{field}: {why}"));
    value.map_or(Ok(()), rule).map_err(wrong)
}

/// The same problem, with the pointer of the API. `names`: the pointers of the kernel that have another name there.
pub(crate) fn renamed(problem: parse::Problem, names: &[(&str, &str)]) -> parse::Problem {
    let known = names.iter().find(|(kernel, _)| *kernel == problem.pointer);
    let pointer = known.map_or(problem.pointer, |(_, api)| (*api).to_owned());
    parse::Problem::new(problem.code, pointer, problem.message)
}

impl From<inputs::Error> for Problem {
    fn from(error: inputs::Error) -> Problem {
        match error {
            inputs::Error::Store(error) => error.into(),
            inputs::Error::Busy => super::offload::busy(),
        }
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Problem {
        match error {
            store::Error::NotFound => Problem::of(Code::NotFound),
            store::Error::Conflict(detail) => Problem::new(Code::Conflict, detail),
            store::Error::Refused { .. } => {
                // The message of the database driver is not sent to the client, because it may quote data.
                tracing::warn!(error = %error, "Request refused: the database cannot hold one of its values");
                Problem::new(
                    Code::ValidationFailed,
                    "the database cannot store a value of this request: remove NUL characters and out-of-range numbers",
                )
            }
            store::Error::Unavailable(_) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "Request failed: the database is unavailable");
                let problem =
                    Problem::new(Code::Unavailable, "the database is unavailable: try again in a few seconds");
                Problem { retry_after_s: Some(2), ..problem }
            }
            store::Error::Corrupt(_) | store::Error::Statement(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "Request failed");
                Problem::of(Code::Internal)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (_, status, _) = self.code.describe();
        let retry_after_s = self.retry_after_s;
        let mut response = (status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            // The rest of the body is not read, so no other request can follow on this connection.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
