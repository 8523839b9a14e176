//! HTTP_REQUEST: one call through the guard.
//!
//! Invariants
//! - Every attempt at a node carries the same idempotency token, before and after any crash.
//! - Nothing is sent, and no redirect followed, once this process may no longer act for its runs.
//! - An answer that the author does not expect is a failure; which ones are worth a retry is the kernel's to say.

use std::sync::Arc;
use std::time::Duration;

use kernel::definition;
use kernel::failure::{Class, Failure};
use kernel::ids::WorkspaceId;
use kernel::kind::http_request::{Body, Config, Method};
use kernel::trace::TraceParent;
use serde_json::json;
use store::admission::Begun;

use super::Done;
use crate::outbound::{self, Outbound, Request, Response};
use crate::pulse::Pulse;

/// The longest a call may take unless its author says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A call to be made for a node.
#[derive(Debug)]
pub struct Call {
    pub config: Config,
    pub workspace: WorkspaceId,
    pub token: String,
    pub timeout: Duration,
    /// What the other side is told it is called for.
    pub trace: TraceParent,
}

impl Call {
    /// The call of a node in a run; its token is the same at every attempt, whoever makes it.
    pub fn new(config: Config, spec: &definition::Node, begun: &Begun, trace: TraceParent) -> Call {
        let token = format!("{}/{}/0", begun.execution, spec.key);
        Call { config, workspace: begun.workspace, token, timeout: timeout(spec), trace }
    }
}

/// How long a call of this node may take.
pub fn timeout(spec: &definition::Node) -> Duration {
    spec.timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis)
}

/// Makes the call.
pub async fn perform(outbound: &Outbound, pulse: &Arc<Pulse>, call: Call) -> Result<Done, Failure> {
    let Call { config, workspace, token, timeout, trace } = call;
    #[cfg(feature = "test-engine")]
    super::panic_if_told(&config.url);
    let mut request = Request::new(method(config.method), config.url.clone(), workspace);
    request.headers.clone_from(&config.headers);
    request.query.clone_from(&config.query);
    request.body = match config.body.clone() {
        Body::Empty => None,
        Body::Json(value) => Some(outbound::Body::Json(value)),
        Body::Form(fields) => Some(outbound::Body::Form(fields)),
        Body::Text(text) => Some(outbound::Body::Text(text)),
    };
    request.timeout = timeout;
    request.max_response_bytes = usize::try_from(config.max_response_bytes).unwrap_or(usize::MAX);
    request.idempotency_token = Some(token);
    request.trace = Some(trace);
    request.pulse = Some(Arc::clone(pulse));
    let response = outbound.send(request).await?;
    if config.accepts(response.status) {
        let Response { status, headers, body, .. } = response;
        return Ok(Done::plain(json!({ "status": status, "headers": headers, "body": body })));
    }
    Err(outbound::failure_of(&response).unwrap_or_else(|| unexpected(&config, response.status)))
}

fn unexpected(config: &Config, status: u16) -> Failure {
    let message = format!("the answer's status is {status}, expected one of {:?}", config.expect_status);
    Failure { status: Some(status), ..Failure::new(Class::ExecutionError, message) }
}

fn method(method: Method) -> outbound::Method {
    match method {
        Method::Get => outbound::Method::Get,
        Method::Head => outbound::Method::Head,
        Method::Post => outbound::Method::Post,
        Method::Put => outbound::Method::Put,
        Method::Patch => outbound::Method::Patch,
        Method::Delete => outbound::Method::Delete,
        Method::Options => outbound::Method::Options,
    }
}
