//! Errors as clients see them: one enum of codes, one body, nothing of the cause of a 5xx.
//!
//! Invariants
//! - A code is stable and documented; its status follows from it.
//! - What went wrong inside is logged here, once, and told to nobody.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kernel::definition::parse;

use crate::definition::inputs;
use crate::wire::ProblemBody;

/// Every code an answer may carry.
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
    /// The stable name, the status, and what it means in general.
    pub fn describe(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Code::NotFound => ("not_found", StatusCode::NOT_FOUND, "Not found"),
            Code::WorkspaceMismatch => {
                ("workspace_mismatch", StatusCode::FORBIDDEN, "The request names another workspace than its own")
            }
            Code::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "This key may not do that"),
            Code::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED, "No valid key was given"),
            Code::ValidationFailed => {
                ("validation_failed", StatusCode::UNPROCESSABLE_ENTITY, "The request cannot be accepted as it is")
            }
            Code::Malformed => ("validation_failed", StatusCode::BAD_REQUEST, "The request cannot be read"),
            Code::DefinitionInvalid => {
                ("definition_invalid", StatusCode::UNPROCESSABLE_ENTITY, "The definition has problems")
            }
            Code::DefinitionNotPublished => {
                ("definition_not_published", StatusCode::CONFLICT, "The definition was never published")
            }
            Code::IdempotencyConflict => {
                ("idempotency_conflict", StatusCode::UNPROCESSABLE_ENTITY, "The idempotency key was used differently")
            }
            Code::Conflict => ("conflict", StatusCode::CONFLICT, "Something else is in the way"),
            Code::LeaseLost => ("lease_lost", StatusCode::CONFLICT, "The task is not this claim's any more"),
            Code::PayloadTooLarge => ("payload_too_large", StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Code::QueueFull => ("queue_full", StatusCode::TOO_MANY_REQUESTS, "The workspace's backlog is full"),
            Code::RateLimited => ("rate_limited", StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
            Code::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "Not available right now"),
            Code::EgressDenied => ("egress_denied", StatusCode::FORBIDDEN, "That address may not be called"),
            Code::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Code::UnsupportedMediaType => {
                ("unsupported_media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported media type")
            }
            Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, "Something broke on our side"),
        }
    }
}

/// An answer that is no success.
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

    /// A problem that has nothing to add to its code.
    pub fn of(code: Code) -> Problem {
        Problem::new(code, code.describe().2)
    }

    /// What is told of it.
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

    /// What every address answers that this caller may not know of.
    pub fn not_found(what: &str) -> Problem {
        Problem::new(Code::NotFound, format!("there is no such {what}"))
    }
}

impl From<inputs::Error> for Problem {
    fn from(error: inputs::Error) -> Problem {
        match error {
            inputs::Error::Store(error) => error.into(),
            inputs::Error::Busy => super::apart::busy(),
        }
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Problem {
        match error {
            store::Error::NotFound => Problem::of(Code::NotFound),
            store::Error::Conflict(detail) => Problem::new(Code::Conflict, detail),
            store::Error::Refused { .. } => {
                // Not the driver's words: they may quote the data.
                tracing::warn!(error = %error, "The database refused a request's data");
                Problem::new(Code::ValidationFailed, "the database cannot hold a value of this request")
            }
            store::Error::Unavailable(_) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "The database is not available to a request");
                let problem = Problem::new(Code::Unavailable, "the database is not available; try again shortly");
                Problem { retry_after_s: Some(2), ..problem }
            }
            store::Error::Corrupt(_) | store::Error::Statement(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "A request failed");
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
            // The rest of the body is not read: a request that followed on this connection would be lost.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
