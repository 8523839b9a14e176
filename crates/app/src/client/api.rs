//! Requests to a server, and the errors of requests.
//!
//! Invariants
//! - An answer keeps its text, so that scripts get exactly what the server sent.
//! - Only reads, and writes with an idempotency key, are sent again after an error.
//! - Every answer has a timeout and a maximum size. Redirects are not followed, so the key goes to no other server.
//!
//! Not here: which requests to make (the commands), how errors are reported (`exit::report`).

mod live;

use std::fmt;
use std::io;
use std::time::Duration;

use anyhow::Context;
use kernel::definition::parse::Problem;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use server::wire::ProblemBody;

use super::connection::ApiKey;
use crate::exit::Exit;
use crate::output::hint;
pub(crate) use live::{EventStream, Wake};

/// The timeout of a request. It is longer than any wait that a request asks the server for.
const TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 64 << 20;
const TRIES: u32 = 3;
/// The error code for an answer that did not come from a Forebay server.
pub(crate) const UNEXPECTED_ANSWER: &str = "unexpected_answer";
const FIRST_PAUSE: Duration = Duration::from_millis(200);

pub(crate) type Query<'a> = &'a [(&'a str, &'a str)];

/// A client for one server, with its key.
#[derive(Debug)]
pub(crate) struct Api {
    http: Client,
    server: String,
    has_key: bool,
}

/// An answer of the server, as a value and as text.
#[derive(Clone, Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) body: String,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The server could not be reached.
    Unreachable { server: String, cause: Option<String> },
    /// The server was reached, but no complete answer came.
    NoAnswer { server: String, cause: String },
    /// The server refused the request.
    Refused { status: u16, code: String, detail: String, problems: Vec<Problem>, has_key: bool },
    /// The answer does not have the form of a Forebay server's answer.
    Unexpected { server: String, cause: String },
}

impl Api {
    pub(crate) fn new(server: &str, key: Option<ApiKey>) -> anyhow::Result<Api> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &key {
            let value = HeaderValue::from_str(&format!("Bearer {}", key.expose()));
            let mut value = value.ok().context("the key has invalid characters")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut http = Client::builder()
            .user_agent(concat!("forebay/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if is_local(server) {
            http = http.no_proxy();
        }
        let http = http.build().context("prepare requests")?;
        Ok(Api { http, server: server.to_owned(), has_key: key.is_some() })
    }

    /// The server's address.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends a GET request. Paths are relative to `/api/v1/`, here and in the other methods.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, query: Query<'_>) -> Result<Answer<T>, Error> {
        self.repeat(async || self.send(Method::GET, path, query, None::<&()>, None).await).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        self.send(Method::POST, path, &[], Some(body), None).await
    }

    /// Sends a POST request with an idempotency key. It is repeated after a temporary error and takes effect once.
    pub(crate) async fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        idempotency_key: &str,
    ) -> Result<Answer<T>, Error> {
        self.repeat(async || self.send(Method::POST, path, &[], Some(body), Some(idempotency_key)).await).await
    }

    /// Sends a DELETE request, whose answer is empty.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Error> {
        self.exchange(Method::DELETE, path, &[], None::<&()>, None).await.map(drop)
    }

    /// Sends a POST request without a body, whose answer is empty.
    pub(crate) async fn post_empty(&self, path: &str) -> Result<(), Error> {
        self.exchange(Method::POST, path, &[], None::<&()>, None).await.map(drop)
    }

    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<Answer<T>, Error> {
        self.send(Method::PUT, path, &[], Some(body), None).await
    }

    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer<T>, Error> {
        self.send(Method::PATCH, path, &[], Some(body), None).await
    }

    async fn repeat<T>(&self, request: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match request().await {
                Err(error) if error.is_transient() && !matches!(error, Error::Unreachable { .. }) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                settled => return settled,
            }
        }
        request().await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: Option<&impl Serialize>,
        idempotency_key: Option<&str>,
    ) -> Result<Answer<T>, Error> {
        let body = self.exchange(method, path, query, body, idempotency_key).await?;
        match serde_json::from_str(&body) {
            Ok(value) => Ok(Answer { value, body }),
            Err(error) => Err(self.unexpected(&format!("{path}: {error}"))),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: Option<&impl Serialize>,
        idempotency_key: Option<&str>,
    ) -> Result<String, Error> {
        let mut request = self.http.request(method, format!("{}/api/v1/{path}", self.server)).query(query);
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        let response = request.send().await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let body = self.read(response).await?;
        if !status.is_success() {
            return Err(refusal(status, &body, self.has_key));
        }
        Ok(body)
    }

    async fn read(&self, mut response: Response) -> Result<String, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(&error))? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(self.unexpected(&format!("the answer is larger than {MAX_ANSWER_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        String::from_utf8(body).map_err(|_| self.unexpected("the answer is not text"))
    }

    fn failed(&self, error: &reqwest::Error) -> Error {
        let server = self.server.clone();
        let mut innermost: &(dyn std::error::Error + 'static) = error;
        while let Some(inner) = innermost.source() {
            innermost = inner;
        }
        let refused = |cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused;
        if innermost.downcast_ref::<io::Error>().is_some_and(refused) {
            return Error::Unreachable { server, cause: None };
        }
        let cause = innermost.to_string();
        match error {
            error if error.is_builder() => self.unexpected(&cause),
            error if error.is_connect() => Error::Unreachable { server, cause: Some(cause) },
            error if error.is_timeout() => Error::NoAnswer { server, cause: "no answer in time".to_owned() },
            _ => Error::NoAnswer { server, cause },
        }
    }

    fn unexpected(&self, cause: &str) -> Error {
        Error::Unexpected { server: self.server.clone(), cause: cause.to_owned() }
    }
}

/// Whether the server is on this machine: no proxy is used for it.
fn is_local(server: &str) -> bool {
    let host = Url::parse(server).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn refusal(status: StatusCode, body: &str, has_key: bool) -> Error {
    let status = status.as_u16();
    match serde_json::from_str::<ProblemBody>(body) {
        Ok(ProblemBody { code, detail, problems, .. }) => Error::Refused { status, code, detail, problems, has_key },
        Err(_) => {
            let text: String = body.trim().chars().take(200).collect();
            let colon = if text.is_empty() { "" } else { ": " };
            let detail = format!("the server answered {status}{colon}{text}");
            Error::Refused { status, code: UNEXPECTED_ANSWER.to_owned(), detail, problems: Vec::new(), has_key }
        }
    }
}

impl Error {
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Error::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The error code for scripts: the code in the server's answer, or a code of this client if there is no such
    /// answer.
    pub(crate) fn code(&self) -> &str {
        match self {
            Error::Refused { code, .. } => code,
            Error::Unreachable { .. } => "unreachable",
            Error::NoAnswer { .. } => "no_answer",
            Error::Unexpected { .. } => UNEXPECTED_ANSWER,
        }
    }

    /// Whether the server refused the request because it names no workspace: with a root key it must.
    pub(crate) fn wants_workspace(&self) -> bool {
        matches!(self,
            Error::Refused { code, detail,
            .. } if code == "validation_failed" && detail.contains("workspaceId is required"))
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        match self {
            Error::Refused { problems, .. } => problems,
            _ => &[],
        }
    }

    /// The same error with more text for some of its problems.
    pub(crate) fn explain(mut self, more: impl Fn(&Problem) -> Option<String>) -> Error {
        if let Error::Refused { detail, problems, .. } = &mut self {
            for problem in problems {
                let Some(more) = more(problem) else { continue };
                let before = problem.to_string();
                problem.message.push_str(&more);
                if *detail == before {
                    *detail = problem.to_string();
                }
            }
        }
        self
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Error::Unreachable { .. } | Error::NoAnswer { .. } => true,
            Error::Refused { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            Error::Unexpected { .. } => false,
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        if matches!(self.status(), Some(401 | 403)) { Exit::Unauthorised } else { Exit::Error }
    }

    /// What the user can do about the error.
    pub(crate) fn advice(&self) -> Option<String> {
        let create = hint::command(&["key", "create", "NAME", "--workspace", "WORKSPACE"]);
        match self {
            Error::Refused { status: 401, has_key: false, .. } => Some(format!(
                "Give a key with --key or FOREBAY_KEY, or save it in a profile: {}\n\
                 With the root key that the server was started with, you can create a key: {create}",
                hint::command(&["profile", "set", "--help"]),
            )),
            Error::Refused { status: 401, has_key: true, .. } => Some(format!(
                "The server did not accept the key: it may be expired, revoked, or of another server.\n\
                 With the root key you can create a new key: {create}",
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unreachable { server, cause: None } => {
                write!(
                    f,
                    "cannot reach {server}: is Forebay running? Start it on this machine with: {}",
                    hint::command(&["dev"])
                )
            }
            Error::Unreachable { server, cause: Some(cause) } => write!(f, "cannot reach {server}: {cause}"),
            Error::NoAnswer { server, cause } => write!(f, "{server} did not answer completely: {cause}"),
            // The message of the server is for programs that send HTTP requests themselves.
            Error::Refused { status: 401, has_key: false, .. } => {
                f.write_str("the server needs a key, and none was given")
            }
            Error::Refused { detail, .. } => f.write_str(detail),
            Error::Unexpected { server, cause } => write!(f, "{server} does not answer like a Forebay server: {cause}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(status: u16, body: &str) -> Error {
        refusal(StatusCode::from_u16(status).expect("a status"), body, true)
    }

    #[test]
    fn every_refusal_has_its_exit_code() {
        let table = [(400, 1), (401, 4), (403, 4), (404, 1), (409, 1), (422, 1), (429, 1), (500, 1), (503, 1)];
        for (status, code) in table {
            assert_eq!(refused(status, "").exit().code(), code, "{status}");
        }
        assert_eq!(Error::Unreachable { server: String::new(), cause: None }.exit().code(), 1);
    }

    #[test]
    fn a_refusal_shows_the_message_of_the_server() {
        let body = json!({
            "type": "about:blank", "title": "Invalid", "status": 422, "code": "definition_invalid", "detail": "1 problem",
            "problems": [{"pointer": "/nodes", "message": "is missing"}],
        });
        let error = refused(422, &body.to_string());
        assert_eq!(error.to_string(), "1 problem");
        assert_eq!(error.problems()[0].to_string(), "/nodes: is missing");
        assert_eq!(refused(502, "<html>bad gateway").to_string(), "the server answered 502: <html>bad gateway");
        assert_eq!(refused(502, " ").to_string(), "the server answered 502");
    }

    #[test]
    fn only_temporary_errors_are_retried() {
        for (status, passing) in [(401, false), (404, false), (422, false), (429, true), (500, false), (503, true)] {
            assert_eq!(refused(status, "").is_transient(), passing, "{status}");
        }
    }

    #[tokio::test]
    async fn an_unreachable_server_is_named_with_what_to_do() {
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let api = Api::new(&format!("http://{free}"), None).expect("a client");
        let error = api.get::<serde_json::Value>("workspaces", &[]).await.expect_err("nobody listens");
        let expected = format!("cannot reach http://{free}: is Forebay running? ");
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(error.code(), "unreachable");
    }

    #[test]
    fn this_machine_is_reached_without_a_proxy() {
        for (server, here) in [
            ("http://127.0.0.1:7400", true),
            ("http://[::1]:7400", true),
            ("http://localhost", true),
            ("https://example.test", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_local(server), here, "{server}");
        }
    }
}
