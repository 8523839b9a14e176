//! HTTP_REQUEST: one HTTP call through the outbound guard (`outbound`).
//!
//! Invariants
//! - Every attempt at a node carries the same idempotency token, before and after any crash.
//! - Once this process may no longer act for its runs, it sends nothing and follows no redirect.
//! - A response that the author does not expect is a failure. The kernel decides which failures are worth a retry.
//! - Secrets are decrypted here, just before they are sent, and masked in everything that comes back. The same holds
//!   for callback addresses; each attempt gets a new callback token.
//!
//! What happens if this process dies: before the call, nothing was sent. After it, the next attempt decrypts the
//! current secrets and sends the same idempotency token.
//!
//! If the secrets cannot be decrypted now, nothing is sent and no attempt is counted. The caller gives back the call's
//! permit, so that other calls can use it, and tries again. While the database is unavailable, the call uses the
//! outbound rules that were last read. If none were read, it waits.

use std::collections::BTreeSet;
use std::mem::take;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kernel::access::secret::{Secrets, callback_of};
use kernel::definition::{self, Kind};
use kernel::expression::Scope;
use kernel::expression::template::Template;
use kernel::ids::{ExecutionId, WorkspaceId};
use kernel::kind;
use kernel::kind::http_request::{Body, Config};
use kernel::run::failure::{Class, Failure};
use kernel::signals::trace::TraceParent;
use serde_json::{Value, json};
use store::access::secret::Sealed;
use zeroize::Zeroizing;

use super::NodeOutput;
use super::call::{Call, CallResources, Caller, PrepareError, PreparedCall};
use crate::compute;
use crate::mask::Mask;
use crate::outbound::{self, Outbound, OutboundPolicy, Request, Response, SentFlag};
use crate::vault::{self, HostLimit, Vault};

/// The default time limit of a call.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A request to be sent for a node.
#[derive(Debug)]
pub(super) struct HttpRequest {
    config: Config,
    execution: ExecutionId,
    workspace: WorkspaceId,
    token: String,
    timeout: Duration,
    /// The trace context that the receiver gets.
    trace: TraceParent,
    /// The configuration to resolve again with secrets, if it uses any.
    unrevealed: Option<Box<Unrevealed>>,
}

/// A configuration that uses secrets, and everything else its templates see.
#[derive(Debug)]
struct Unrevealed {
    template: Template,
    names: BTreeSet<String>,
    scope: Scope,
    takes_long: bool,
}

/// A configuration with secrets in clear. Dropping it wipes the secrets, because the future that computes or uses the
/// configuration may be dropped before the secrets are sent.
struct Clear(Value);

impl Drop for Clear {
    fn drop(&mut self) {
        outbound::wipe(&mut self.0);
    }
}

impl HttpRequest {
    /// The request of a node in a run. Its token is the same at every attempt, in any process.
    pub(super) fn new(config: Config, caller: &Caller<'_>) -> HttpRequest {
        let Caller { spec, scope, begun, iteration, trace } = *caller;
        let token = format!("{}/{}/{iteration}", begun.execution, spec.key);
        let unrevealed = Unrevealed::of(spec, scope).map(Box::new);
        let (execution, workspace) = (begun.execution, begun.workspace);
        HttpRequest { config, execution, workspace, token, timeout: timeout(spec), trace, unrevealed }
    }
}

impl Unrevealed {
    fn of(spec: &definition::Node, scope: &Scope) -> Option<Unrevealed> {
        let templates = &spec.with;
        let template = Template::parse(templates).ok()?;
        let names = template.secrets();
        (!names.is_empty()).then(|| Unrevealed {
            template,
            names,
            scope: scope.clone(),
            takes_long: super::has_long_expression(templates),
        })
    }

    /// Resolves the configuration with its secrets, and builds the mask that removes them from results.
    ///
    /// A long computation first waits for its permit. No secret is in clear during that wait. While it holds the
    /// permit, it waits for nothing else.
    async fn reveal(self, vault: &Vault, workspace: WorkspaceId, read: Read) -> Result<(Config, Arc<Mask>), Failure> {
        let Unrevealed { template, scope, takes_long, .. } = self;
        let permit = if takes_long { Some(compute::acquire(workspace).await) } else { None };
        let (secrets, bounds) = read.open(vault).map_err(|error| failure_of(&error))?;
        let secrets = Arc::new(secrets);
        // Error messages should never contain a secret's value. The mask removes it if one does.
        let veiled = |failure: Failure| {
            let mask = Mask::new(secrets.values());
            Failure { message: mask.text(&failure.message).unwrap_or_else(|| failure.message.clone()), ..failure }
        };
        let seen = Arc::clone(&secrets);
        let resolve = move || {
            let resolved = template.resolve_revealing(&scope, &seen);
            resolved.map(|(input, revealed)| (Clear(input), revealed))
        };
        let resolved = match permit {
            Some(permit) => permit.run(resolve).await,
            None => resolve(),
        };
        let (input, revealed) = resolved.map_err(|error| veiled(error.into()))?;
        let mask = Mask::new(secrets.values().chain(revealed.iter().map(|text| text.as_str())));
        match kind::prepare(Kind::HttpRequest, &input.0) {
            Ok(kind::Config::HttpRequest(config)) => {
                let checked = bounds.iter().try_for_each(|bound| bound.check(&config.url));
                checked.map(|()| (config, Arc::new(mask))).map_err(veiled)
            }
            Ok(_) => Err(super::of_another_kind()),
            Err(failure) => Err(Failure { message: mask.text(&failure.message).unwrap_or(failure.message), ..failure }),
        }
    }
}

/// The execution and workspace for which secrets are decrypted and callback addresses are made.
#[derive(Clone, Copy, Debug)]
struct Whose<'a> {
    execution: ExecutionId,
    workspace: WorkspaceId,
    public_url: Option<&'a str>,
}

/// True if the problem may go away: the database is unavailable, or this process lacks a key, for example after a
/// restore without the key file. `/readyz` reports a missing key. The call then waits for a restart with the key, for
/// the run's next owner, or on Temporal for another worker.
fn may_pass(error: &vault::Error) -> bool {
    match error {
        vault::Error::Store(error) => !error.is_answer(),
        vault::Error::NoKey | vault::Error::UnknownKey { .. } => true,
        _ => false,
    }
}

fn failure_of(error: &vault::Error) -> Failure {
    let vault::Error::Store(cause) = error else { return Failure::new(Class::ValidationError, error.to_string()) };
    tracing::error!(error = cause as &dyn std::error::Error, "Failed to read a node's secrets");
    Failure::new(Class::ExecutionError, "the node's secrets could not be read; the operator finds the cause in the log")
}

/// A call's secrets as read from the store: those of the workspace, still sealed, and the callback addresses.
struct Read {
    sealed: Vec<Sealed>,
    callbacks: Vec<(String, Zeroizing<String>)>,
}

/// Reads the secrets, still sealed, and creates the callback addresses. Fails if this process lacks a secret's key.
async fn read(vault: &Vault, whose: Whose<'_>, names: &BTreeSet<String>) -> Result<Read, vault::Error> {
    let (wanted, names): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| callback_of(name).is_some());
    let names: BTreeSet<String> = names.into_iter().cloned().collect();
    let sealed = match names.is_empty() {
        true => Vec::new(),
        false => vault.sealed(whose.workspace, &names).await?,
    };
    let mut callbacks = Vec::new();
    for name in wanted {
        let node = callback_of(name).unwrap_or_default();
        let address = vault.callback(whose.execution, node, whose.public_url).await?;
        // Mask the token on its own too: the receiver may repeat it without the rest of the address.
        let token = address.rsplit('/').next().unwrap_or_default().to_owned();
        callbacks.push((format!("{name}/token"), Zeroizing::new(token)));
        callbacks.push((name.clone(), address));
    }
    Ok(Read { sealed, callbacks })
}

impl Read {
    fn open(self, vault: &Vault) -> Result<(Secrets, Vec<HostLimit>), vault::Error> {
        let (mut secrets, bounds) = vault.open_sealed(&self.sealed)?;
        self.callbacks.into_iter().for_each(|(name, value)| secrets.insert(name, value));
        Ok((secrets, bounds))
    }
}

/// The time limit of this node's call.
pub fn timeout(spec: &definition::Node) -> Duration {
    spec.timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis)
}

impl Call for HttpRequest {
    /// Caches the workspace's outbound rules. Ignores an error: `prepare` reads the rules again and reports it.
    fn warm_up<'a>(&'a self, resources: &'a CallResources) -> BoxFuture<'a, ()> {
        Box::pin(resources.outbound.policy(self.workspace).map(drop))
    }

    fn prepare_now(self: Box<Self>, resources: &CallResources) -> Result<PreparedCall, Box<dyn Call>> {
        match resources.outbound.cached_policy(self.workspace).filter(|_| self.unrevealed.is_none()) {
            Some(policy) => Ok(self.exchange(None, Some(policy)).prepared(resources)),
            None => Err(self),
        }
    }

    fn prepare<'a>(self: Box<Self>, resources: &'a CallResources) -> BoxFuture<'a, Result<PreparedCall, PrepareError>> {
        Box::pin(self.reveal(resources))
    }
}

/// A request that is complete, and the configuration that decides which responses are expected.
struct Exchange {
    config: Config,
    request: Request,
}

impl HttpRequest {
    /// Decrypts the secrets that the request uses. Reads the workspace's outbound rules last, so that the call follows
    /// the rules in force when it is sent.
    async fn reveal(mut self: Box<Self>, resources: &CallResources) -> Result<PreparedCall, PrepareError> {
        let CallResources { outbound, vault, .. } = resources;
        let Some(unrevealed) = self.unrevealed.take() else {
            let policy = outbound.policy(self.workspace).await?;
            return Ok(self.exchange(None, Some(policy)).prepared(resources));
        };
        let whose = Whose { execution: self.execution, workspace: self.workspace, public_url: outbound.public_url() };
        let read = match read(vault, whose, &unrevealed.names).await {
            Ok(read) => read,
            Err(error) if may_pass(&error) => {
                self.unrevealed = Some(unrevealed);
                return Err(PrepareError::SecretsUnavailable(self, error));
            }
            Err(error) => return Err(failure_of(&error).into()),
        };
        let (config, secrets) = unrevealed.reveal(vault, self.workspace, read).await?;
        // Build the request first: it wipes its secrets if it is dropped while the rules are read.
        let mut exchange = HttpRequest { config, ..*self }.exchange(Some(secrets), None);
        exchange.request.policy = Some(outbound.policy(exchange.request.partition).await?);
        Ok(exchange.prepared(resources))
    }

    fn exchange(self, secrets: Option<Arc<Mask>>, policy: Option<OutboundPolicy>) -> Exchange {
        let HttpRequest { mut config, workspace, token, timeout, trace, .. } = self;
        // Move the values instead of copying them: the request wipes only the values that it holds.
        let mut request = Request::new(config.method, take(&mut config.url), workspace);
        (request.secrets, request.policy) = (secrets, policy);
        request.headers = take(&mut config.headers);
        request.query = take(&mut config.query);
        request.body = match take(&mut config.body) {
            Body::Empty => None,
            Body::Json(value) => Some(outbound::Body::Json(value)),
            Body::Form(fields) => Some(outbound::Body::Form(fields)),
            Body::Text(text) => Some(outbound::Body::Text(text)),
        };
        request.timeout = timeout;
        request.max_response_bytes = usize::try_from(config.max_response_bytes).unwrap_or(usize::MAX);
        request.idempotency_token = Some(token);
        request.trace = Some(trace);
        Exchange { config, request }
    }
}

impl Exchange {
    /// Returns the last step: sending the request and reading the response. A panic becomes a failure of the node.
    fn prepared(mut self, resources: &CallResources) -> PreparedCall {
        let token = self.request.idempotency_token.clone().unwrap_or_default();
        let (sent, outbound) = (SentFlag::default(), resources.outbound.clone());
        self.request.sent = Some(sent.clone());
        self.request.liveness = Some(Arc::clone(&resources.liveness));
        PreparedCall::new(sent, async move {
            let sent = AssertUnwindSafe(self.send(&outbound)).catch_unwind().await;
            sent.unwrap_or_else(|_| Err(super::panicked(&token)))
        })
    }

    async fn send(self, outbound: &Outbound) -> Result<NodeOutput, Failure> {
        let Exchange { config, request } = self;
        #[cfg(feature = "test-engine")]
        super::panic_on_marker(&request.url);
        let response = outbound.send(request).await?;
        if config.accepts(response.status) {
            let Response { status, headers, body, .. } = response;
            return Ok(NodeOutput::new(json!({ "status": status, "headers": headers, "body": body })));
        }
        Err(outbound::failure_of(&response).unwrap_or_else(|| unexpected(&config, &response)))
    }
}

/// The failure for an unexpected status. If the response says how long to wait before a retry, so does the failure.
fn unexpected(config: &Config, response: &Response) -> Failure {
    let status = response.status;
    let message = format!("the response status is {status}, expected one of {:?}", config.expect_status);
    let wait = outbound::wanted_wait(response).and_then(|wait| u64::try_from(wait.as_millis()).ok());
    Failure { status: Some(status), retry_after_ms: wait, ..Failure::new(Class::ExecutionError, message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Store;
    use store::connect::Target;
    use uuid::Uuid;

    #[tokio::test]
    async fn secrets_that_cannot_be_read_now_are_no_failure() {
        let nowhere = Target::new("postgresql:///none?host=/nowhere").expect("a URL");
        let vault = Vault::new(Store::new(&nowhere, 1).expect("a pool"), vault::OuterKeys::default());
        let names = BTreeSet::from(["A".to_owned()]);
        let (execution, workspace) = (ExecutionId(Uuid::nil()), WorkspaceId(Uuid::nil()));
        let read = read(&vault, Whose { execution, workspace, public_url: None }, &names).await;
        assert!(read.is_err_and(|error| may_pass(&error)), "it does not count as an attempt");
    }
}
