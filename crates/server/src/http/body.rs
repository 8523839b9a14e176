//! Reads request bodies and parameters. A body has a maximum size and one accepted media type. An error names the field
//! that is invalid.

use std::borrow::Cow;

use axum::body::{HttpBody as _, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use kernel::definition::parse;
use kernel::{exact, storable};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::auth::Caller;
use super::strict::Strict;
use super::{Api, Code, Problem, offload};

/// A JSON body.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let workspace = request.extensions().get::<Caller>().and_then(|caller| caller.workspace);
        let reading = read(request, api.settings.http.max_body_bytes);
        let late = || Problem::new(Code::Malformed, "the body did not arrive in time: send the request again");
        let bytes = tokio::time::timeout(api.timeout() / 2, reading).await.map_err(|_| late())??;
        let parsed = if bytes.len() < offload::SMALL {
            parse(&bytes)
        } else {
            offload::run(workspace, move || parse(&bytes)).await?
        };
        parsed.map(Json)
    }
}

/// A JSON body, or an empty one if every field is optional.
#[derive(Debug)]
pub(crate) struct JsonOrNothing<T>(pub(crate) T);

impl<T: DeserializeOwned + Default + Send + 'static> FromRequest<Api> for JsonOrNothing<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(JsonOrNothing(T::default()));
        }
        Json::from_request(request, api).await.map(|Json(body)| JsonOrNothing(body))
    }
}

async fn read(request: Request, limit: usize) -> Result<Vec<u8>, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "the body must be JSON: send it with content-type: application/json",
        ));
    }
    bytes(request, limit).await
}

/// Reads a body of any media type, without parsing it.
pub(crate) async fn bytes(request: Request, limit: usize) -> Result<Vec<u8>, Problem> {
    let packed = request.headers().get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity");
    if packed {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "compressed bodies are not accepted: send the body without content-encoding",
        ));
    }
    let too_large =
        || Problem::new(Code::PayloadTooLarge, format!("the body is larger than the limit of {limit} bytes"));
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > limit) {
        return Err(too_large());
    }
    to_bytes(request.into_body(), limit).await.map(|bytes| bytes.to_vec()).map_err(|_| too_large())
}

pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let essence = essence(headers);
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The media type of the body, without parameters. Empty if there is no content type.
pub(crate) fn essence(headers: &HeaderMap) -> String {
    // Lossy, because only the media type matters: a parameter may contain bytes that are not UTF-8.
    let value = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Parses JSON into a type. An error names the field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    typed(value(bytes)?)
}

/// Parses JSON that is stored as JSON. An integer of more than 64 bits is refused; the error names its field.
pub(crate) fn value(bytes: &[u8]) -> Result<Value, Problem> {
    let value = storable(bytes)?;
    let Some(pointer) = exact::beyond(bytes) else { return Ok(value) };
    let refused = Problem::new(Code::ValidationFailed, format!("{pointer}: {}", exact::MESSAGE));
    let problem = parse::Problem::new(parse::Code::BadValue, pointer, exact::MESSAGE);
    Err(Problem { problems: vec![problem], ..refused })
}

/// Parses JSON from a foreign system, which cannot change how it writes numbers. An integer of more than 64 bits is not
/// refused: it becomes text with its digits.
pub(crate) fn value_from_outside(bytes: &[u8]) -> Result<Value, Problem> {
    let value = storable(bytes)?;
    match exact::quote(bytes) {
        Cow::Borrowed(_) => Ok(value),
        Cow::Owned(quoted) => storable(&quoted),
    }
}

fn storable(bytes: &[u8]) -> Result<Value, Problem> {
    let malformed =
        |error: &dyn std::fmt::Display| Problem::new(Code::Malformed, format!("the body is not JSON: {error}"));
    let Strict(value) = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
    if storable::has_nul(&value) {
        return Err(Problem::new(
            Code::ValidationFailed,
            "a text in the body contains a NUL character, which cannot be stored: remove it",
        ));
    }
    Ok(value)
}

/// Converts a JSON value into a type. An error names the field.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    // Serde would also accept an array of the fields' values, in the order of the fields.
    if !value.is_object() {
        let problem = parse::Problem::new(parse::Code::WrongType, "", "must be an object");
        let refused = Problem::new(Code::ValidationFailed, "the body must be an object");
        return Err(Problem { problems: vec![problem], ..refused });
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let pointer: String = error
            .path()
            .iter()
            .map(|segment| format!("/{}", segment.to_string().trim_matches(['[', ']'])))
            .filter(|segment| segment != "/?" && segment != "/.")
            .collect();
        let message = error.inner().to_string();
        let problem = Problem::new(
            Code::ValidationFailed,
            format!("{}{}{message}", pointer, if pointer.is_empty() { "" } else { ": " }),
        );
        Problem { problems: vec![parse::Problem::new(parse::Code::BadValue, pointer, message)], ..problem }
    })
}

/// An id in the path. A text that is not an id gets 404.
#[derive(Debug)]
pub(crate) struct Id<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, api).await;
        path.map(|Path(id)| Id(id))
            .map_err(|_| Problem::new(Code::NotFound, "an id in the path is malformed: expected a UUID"))
    }
}

/// Query parameters.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, api).await;
        query.map(|Query(query)| Params(query)).map_err(|error| {
            Problem::new(Code::Malformed, format!("a query parameter cannot be read: {}", error.body_text()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_integer_that_64_bits_do_not_hold_is_refused_with_its_place() {
        let body = br#"{"input": {"order": {"ids": [1, 123456789012345678901]}}}"#;
        let refused = value(body).expect_err("a refusal");
        assert_eq!(refused.detail, "/input/order/ids/1: is an integer that does not fit into 64 bits: send it as text");
        let places: Vec<&str> = refused.problems.iter().map(|problem| problem.pointer.as_str()).collect();
        assert_eq!(places, ["/input/order/ids/1"]);
        let most = br#"{"input": [18446744073709551615, -9223372036854775808, 1e300, "123456789012345678901"]}"#;
        assert!(value(most).is_ok(), "integers of 64 bits are accepted");
    }

    #[test]
    fn the_digits_of_a_large_integer_from_outside_are_kept_as_text() {
        let read = value_from_outside(br#"{"id": 123456789012345678901, "n": 1}"#).ok();
        assert_eq!(read, Some(json!({ "id": "123456789012345678901", "n": 1 })));
        assert!(value_from_outside(br#"{"a": 123456789012345678901, "a": 2}"#).is_err(), "a field that is given twice");
    }
}
