//! HTTP_REQUEST: one call through the guard.
//!
//! Invariants
//! - Every attempt at a node carries the same idempotency token, before and after any crash.
//! - Nothing is sent, and no redirect followed, once this process may no longer act for its runs.
//! - An answer that the author does not expect is a failure; which ones are worth a retry is the kernel's to say.
//! - Secrets are opened here, just before they are sent, and taken out of whatever comes back. So are the addresses of
//!   callbacks, each with a token of its own at every attempt.
//!
//! What happens if this process dies: before the call, nothing was opened; after it, the next attempt opens the secrets
//! anew, as they stand then, and sends the same token. Secrets that cannot be opened now are no attempt: nothing was
//! sent, and whoever makes the call keeps nothing that others wait for until it tries again. While the outbound rules
//! cannot be read, the call waits.

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
use kernel::kind::http_request::{Body, Config, Method};
use kernel::run::failure::{Class, Failure};
use kernel::signals::trace::TraceParent;
use serde_json::{Value, json};
use store::access::secret::Sealed;
use zeroize::Zeroizing;

use super::Done;
use super::call::{Call, Caller, Means, Prepared, Unprepared};
use crate::compute;
use crate::mask::Mask;
use crate::outbound::{self, Outbound, Policy, Request, Response, Sent};
use crate::vault::{self, Bound, Vault};

/// The longest a call may take unless its author says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A request to be sent for a node.
#[derive(Debug)]
pub(super) struct HttpRequest {
    config: Config,
    execution: ExecutionId,
    workspace: WorkspaceId,
    token: String,
    timeout: Duration,
    /// What the other side is told it is called for.
    trace: TraceParent,
    /// What its configuration is made of anew, if that takes secrets.
    unrevealed: Option<Box<Unrevealed>>,
}

/// A configuration that takes secrets, and all that it sees beside them.
#[derive(Debug)]
struct Unrevealed {
    template: Template,
    names: BTreeSet<String>,
    scope: Scope,
    takes_long: bool,
}

/// A configuration in clear. It is wiped unless it is taken: whoever waits for it may go away.
struct Clear(Value);

impl Clear {
    fn take(mut self) -> Value {
        take(&mut self.0)
    }
}

impl Drop for Clear {
    fn drop(&mut self) {
        outbound::wipe(&mut self.0);
    }
}

impl HttpRequest {
    /// The request of a node in a run; its token is the same at every attempt, whoever makes it.
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
            takes_long: super::texts(templates),
        })
    }

    /// The configuration with its secrets, and what must not get out of it.
    ///
    /// What takes long waits for its turn to compute first: no secret is in clear while it waits, and nothing else is
    /// waited for while it has the turn.
    async fn reveal(self, vault: &Vault, workspace: WorkspaceId, read: Read) -> Result<(Config, Arc<Mask>), Failure> {
        let Unrevealed { template, scope, takes_long, .. } = self;
        let turn = if takes_long { Some(compute::turn(workspace).await) } else { None };
        let (secrets, bounds) = read.open(vault).map_err(|error| failure_of(&error))?;
        let secrets = Arc::new(secrets);
        // No error repeats a value; should one ever, it does not get out either.
        let veiled = |failure: Failure| {
            let mask = Mask::new(secrets.values());
            Failure { message: mask.text(&failure.message).unwrap_or_else(|| failure.message.clone()), ..failure }
        };
        let seen = Arc::clone(&secrets);
        let resolve = move || {
            let resolved = template.resolve_revealing(&scope, &seen);
            resolved.map(|(input, revealed)| (Clear(input), revealed))
        };
        let resolved = match turn {
            Some(turn) => turn.run(resolve).await,
            None => resolve(),
        };
        let (input, revealed) = resolved.map_err(|error| veiled(error.into()))?;
        let mask = Mask::new(secrets.values().chain(revealed.iter().map(|text| text.as_str())));
        match kind::prepare(Kind::HttpRequest, input.take()) {
            Ok(kind::Config::HttpRequest(config)) => {
                let checked = bounds.iter().try_for_each(|bound| bound.check(&config.url));
                checked.map(|()| (config, Arc::new(mask))).map_err(veiled)
            }
            Ok(_) => Err(Failure::new(Class::ExecutionError, "another kind's configuration")),
            Err(failure) => Err(Failure { message: mask.text(&failure.message).unwrap_or(failure.message), ..failure }),
        }
    }
}

/// For whom secrets are opened, and where callbacks lead.
#[derive(Clone, Copy, Debug)]
struct Whose<'a> {
    execution: ExecutionId,
    workspace: WorkspaceId,
    public_url: Option<&'a str>,
}

/// Can it be otherwise later? The database is away; or this process lacks a key, as after a restore without the key
/// file. Then `/readyz` says so, and the call waits for a restart with the key, for the run's next owner, or on
/// Temporal for another worker.
fn may_pass(error: &vault::Error) -> bool {
    match error {
        vault::Error::Store(error) => !error.is_answer(),
        vault::Error::NoKey | vault::Error::OtherKey { .. } => true,
        _ => false,
    }
}

fn failure_of(error: &vault::Error) -> Failure {
    let vault::Error::Store(cause) = error else { return Failure::new(Class::ValidationError, error.to_string()) };
    tracing::error!(error = cause as &dyn std::error::Error, "Secrets cannot be read");
    Failure::new(Class::ExecutionError, "its secrets cannot be read")
}

/// What was read of a call's secrets: those of the workspace still sealed, and the addresses of callbacks.
struct Read {
    sealed: Vec<Sealed>,
    callbacks: Vec<(String, Zeroizing<String>)>,
}

/// Reads secrets that this process can open, and makes the addresses of callbacks.
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
        // The token is masked also where the other side repeats it without the rest.
        let token = address.rsplit('/').next().unwrap_or_default().to_owned();
        callbacks.push((format!("{name}/token"), Zeroizing::new(token)));
        callbacks.push((name.clone(), address));
    }
    Ok(Read { sealed, callbacks })
}

impl Read {
    fn open(self, vault: &Vault) -> Result<(Secrets, Vec<Bound>), vault::Error> {
        let (mut secrets, bounds) = vault.open_sealed(&self.sealed)?;
        self.callbacks.into_iter().for_each(|(name, value)| secrets.insert(name, value));
        Ok((secrets, bounds))
    }
}

/// How long a call of this node may take.
pub fn timeout(spec: &definition::Node) -> Duration {
    spec.timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis)
}

impl Call for HttpRequest {
    /// Rules that cannot be read fail the call when it is prepared.
    fn warm_up<'a>(&'a self, means: &'a Means) -> BoxFuture<'a, ()> {
        Box::pin(means.outbound.policy(self.workspace).map(drop))
    }

    fn prepare_now(self: Box<Self>, means: &Means) -> Result<Prepared, Box<dyn Call>> {
        match means.outbound.known_policy(self.workspace).filter(|_| self.unrevealed.is_none()) {
            Some(policy) => Ok(self.exchange(None, Some(policy)).prepared(means)),
            None => Err(self),
        }
    }

    fn prepare<'a>(self: Box<Self>, means: &'a Means) -> BoxFuture<'a, Result<Prepared, Unprepared>> {
        Box::pin(self.reveal(means))
    }
}

/// A request with all that it needs.
struct Exchange {
    config: Config,
    request: Request,
}

impl HttpRequest {
    /// Opens the secrets that it takes. Reads the rules of its workspace last, however long the database needs for
    /// that: the call goes by the rules of when it is sent.
    async fn reveal(mut self: Box<Self>, means: &Means) -> Result<Prepared, Unprepared> {
        let Means { outbound, vault, .. } = means;
        let Some(unrevealed) = self.unrevealed.take() else {
            let policy = outbound.policy(self.workspace).await?;
            return Ok(self.exchange(None, Some(policy)).prepared(means));
        };
        let whose = Whose { execution: self.execution, workspace: self.workspace, public_url: outbound.public_url() };
        let read = match read(vault, whose, &unrevealed.names).await {
            Ok(read) => read,
            Err(error) if may_pass(&error) => {
                self.unrevealed = Some(unrevealed);
                return Err(Unprepared::NotNow(self, error));
            }
            Err(error) => return Err(failure_of(&error).into()),
        };
        let (config, secrets) = unrevealed.reveal(vault, self.workspace, read).await?;
        // A request already: should it be dropped while the rules are read, it wipes what it holds.
        let mut exchange = HttpRequest { config, ..*self }.exchange(Some(secrets), None);
        exchange.request.policy = Some(outbound.policy(exchange.request.partition).await?);
        Ok(exchange.prepared(means))
    }

    fn exchange(self, secrets: Option<Arc<Mask>>, policy: Option<Policy>) -> Exchange {
        let HttpRequest { mut config, workspace, token, timeout, trace, .. } = self;
        // Moved, not copied: the request wipes what holds a secret.
        let mut request = Request::new(method(config.method), take(&mut config.url), workspace);
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
    /// What is left is to send it, and to take the answer. A panic is a failure of the node.
    fn prepared(mut self, means: &Means) -> Prepared {
        let token = self.request.idempotency_token.clone().unwrap_or_default();
        let (sent, outbound) = (Sent::default(), means.outbound.clone());
        self.request.sent = Some(sent.clone());
        self.request.pulse = Some(Arc::clone(&means.pulse));
        Prepared::new(sent, async move {
            let sent = AssertUnwindSafe(self.send(&outbound)).catch_unwind().await;
            sent.unwrap_or_else(|_| Err(super::panicked(&token)))
        })
    }

    async fn send(self, outbound: &Outbound) -> Result<Done, Failure> {
        let Exchange { config, request } = self;
        #[cfg(feature = "test-engine")]
        super::panic_if_told(&request.url);
        let response = outbound.send(request).await?;
        if config.accepts(response.status) {
            let Response { status, headers, body, .. } = response;
            return Ok(Done::plain(json!({ "status": status, "headers": headers, "body": body })));
        }
        Err(outbound::failure_of(&response).unwrap_or_else(|| unexpected(&config, &response)))
    }
}

/// An answer that says "not yet" may also say when to ask again.
fn unexpected(config: &Config, response: &Response) -> Failure {
    let status = response.status;
    let message = format!("the answer's status is {status}, expected one of {:?}", config.expect_status);
    let wait = outbound::wanted_wait(response).and_then(|wait| u64::try_from(wait.as_millis()).ok());
    Failure { status: Some(status), retry_after_ms: wait, ..Failure::new(Class::ExecutionError, message) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use store::Store;
    use store::connect::Target;
    use uuid::Uuid;

    #[tokio::test]
    async fn secrets_that_cannot_be_read_now_are_no_failure() {
        let nowhere = Target::new("postgresql:///none?host=/nowhere").expect("a URL");
        let vault = Vault::new(Store::new(&nowhere, 1).expect("a pool"), vault::Keys::default());
        let names = BTreeSet::from(["A".to_owned()]);
        let (execution, workspace) = (ExecutionId(Uuid::nil()), WorkspaceId(Uuid::nil()));
        let read = read(&vault, Whose { execution, workspace, public_url: None }, &names).await;
        assert!(read.is_err_and(|error| may_pass(&error)), "it is no attempt");
    }
}
