//! The guard that every outbound HTTP call of a tenant passes.
//!
//!     Request ─▶ guard ─▶ client of the workspace ─▶ checked addresses ─▶ peer checked ─▶ bounded Response
//!                  ▲                                                           │
//!                  └───────────────── redirect, at most max_redirects ─────────┘
//!
//! Invariants
//! - Every URL, the first and that of each redirect, passes the whole guard before a byte is sent.
//! - Every address behind a name is checked before a connection is made. The peer is checked again before its response
//!   is read.
//! - A refusal is a `SECURITY_ERROR` whose message starts with `egress_denied:`. It names the host, never an address
//!   that the host resolved to.
//! - A call ends within its timeout, and immediately when its future is dropped. The workspace's rules are read before
//!   the timeout starts. A call that carries its rules (`Request::policy`) does not query the database.
//! - Two workspaces never share a connection.
//! - A response or failure never contains a secret of its request. A redirect to another origin never carries a secret.
//!
//! Not here: which response status fails a node (the node's kind asks `failure_of`), where secrets come from (`vault`),
//! the network policy outside this process, which is the last line of defense.

mod address;
mod allow;
mod clients;
mod guard;
mod request;
mod resolver;
mod response;
mod rules;

use std::error::Error as _;
use std::fmt;
use std::io;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use kernel::ids::WorkspaceId;
use kernel::run::failure::{Class, Failure};
use reqwest::header::LOCATION;

use store::Store;

use clients::Clients;
use guard::{CheckedUrl, Denied, Guard};
use request::HopRequest;
pub(crate) use request::wipe;
use rules::RulesCache;

pub use allow::{AllowEntry, DenyEntry, InvalidEntry};
pub use kernel::kind::http_request::Method;
pub use request::{Body, Request, SentFlag};
pub use resolver::Lookup;
pub use response::{Response, failure_of, wanted_wait};
pub use rules::HostRules;

/// The operator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundSettings {
    /// Hosts that may be called although they are not public. Empty by default.
    pub allow: Vec<AllowEntry>,
    /// Permits calls to this machine's loopback addresses, at any port that HTTP may use.
    pub allow_loopback: bool,
    /// Hosts, addresses and ranges that may never be called, even if another entry allows them.
    pub deny: Vec<DenyEntry>,
    /// Time limit for name resolution, TCP and TLS together. It is part of the call's timeout.
    pub connect_timeout: Duration,
    /// The maximum number of redirects.
    pub max_redirects: usize,
    pub user_agent: String,
    /// How many clients are kept, with their connections. A workspace has up to two. Each costs about 100 kB.
    pub max_clients: usize,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// The public address of this service, to which receivers can call back.
    pub public_url: Option<String>,
}

impl Default for OutboundSettings {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            allow_loopback: false,
            connect_timeout: Duration::from_secs(10),
            max_redirects: 3,
            user_agent: concat!("forebay/", env!("CARGO_PKG_VERSION")).to_owned(),
            max_clients: 256,
            idle_timeout: Duration::from_secs(30),
            public_url: None,
        }
    }
}

/// Why the guard could not be built: invalid settings, or a system without certificates.
#[derive(Debug, thiserror::Error)]
#[error("set up outbound HTTP")]
pub struct Error(#[from] reqwest::Error);

/// Returns why this URL may never be called, judged by the URL alone. A host name is resolved only when a call is made,
/// so its addresses are not checked. `service` and `own` are the rules of the operator and of the workspace.
pub fn refusal(service: &HostRules, allow_loopback: bool, own: &HostRules, url: &str) -> Option<String> {
    let guard = Guard { allow_loopback, ..Guard::default() }.with(service).with(own);
    guard.parse(url).err().map(|denied| denied.to_string())
}

/// The rules for the calls of one workspace: the service's rules and its own.
#[derive(Clone, Debug)]
pub struct OutboundPolicy(Arc<Guard>);

/// Makes calls for tenants. A clone shares connections with its original.
#[derive(Clone)]
pub struct Outbound {
    inner: Arc<Inner>,
}

struct Inner {
    guard: Arc<Guard>,
    /// Loads and caches the rules of workspaces. None if workspaces have no rules of their own.
    rules_cache: Option<RulesCache>,
    clients: Clients,
    max_redirects: usize,
    public_url: Option<String>,
}

impl Outbound {
    /// A guard that uses the system's resolver.
    pub fn new(settings: OutboundSettings) -> Result<Self, Error> {
        Self::with_lookup(settings, resolver::system())
    }

    /// A guard that uses another resolver. Its results are checked in the same way.
    pub fn with_lookup(settings: OutboundSettings, lookup: Lookup) -> Result<Self, Error> {
        let (allow, deny) = (settings.allow.clone(), settings.deny.clone());
        let guard = Arc::new(Guard { allow, allow_loopback: settings.allow_loopback, deny, of: 0 });
        let (max_redirects, public_url) = (settings.max_redirects, settings.public_url.clone());
        let clients = Clients::new(settings, lookup);
        // Build a client here, so that a bad setting fails the start of the process and not the first call.
        clients.build(false, &guard)?;
        Ok(Self { inner: Arc::new(Inner { guard, rules_cache: None, clients, max_redirects, public_url }) })
    }

    /// Adds the rules of workspaces. Call it before the guard is shared.
    #[must_use]
    pub fn ruled_by(self, store: Store) -> Self {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => Self { inner: Arc::new(Inner { rules_cache: Some(RulesCache::new(store)), ..inner }) },
            Err(inner) => Self { inner },
        }
    }

    /// The public address of this service, for callbacks.
    pub fn public_url(&self) -> Option<&str> {
        self.inner.public_url.as_deref()
    }

    /// The rules for the calls of a workspace. Waits while the database is unavailable.
    pub async fn policy(&self, workspace: WorkspaceId) -> Result<OutboundPolicy, Failure> {
        match &self.inner.rules_cache {
            Some(rules_cache) => rules_cache.guard_of(workspace, &self.inner.guard).await.map(OutboundPolicy),
            None => Ok(OutboundPolicy(Arc::clone(&self.inner.guard))),
        }
    }

    /// The rules for the calls of a workspace, if they are cached. Never waits.
    pub fn cached_policy(&self, workspace: WorkspaceId) -> Option<OutboundPolicy> {
        match &self.inner.rules_cache {
            Some(rules_cache) => rules_cache.cached(workspace).map(OutboundPolicy),
            None => Some(OutboundPolicy(Arc::clone(&self.inner.guard))),
        }
    }

    /// Makes a call. Any status is a response; a failure means that there was no usable response.
    pub async fn send(&self, request: Request) -> Result<Response, Failure> {
        let result = self.attempt(&request).await;
        let Some(secrets) = &request.secrets else { return result };
        result.map_err(|failure| match secrets.text(&failure.message) {
            Some(message) => Failure { message, ..failure },
            None => failure,
        })
    }

    async fn attempt(&self, request: &Request) -> Result<Response, Failure> {
        let OutboundPolicy(guard) = match &request.policy {
            Some(policy) => policy.clone(),
            None => self.policy(request.partition).await?,
        };
        let hop = HopRequest::first(request, &guard)?;
        let host = hop.target.host().to_owned();
        let call = Box::pin(self.inner.follow(hop, request, &guard));
        match tokio::time::timeout(request.timeout, call).await {
            Ok(result) => result,
            Err(_) => {
                let message = format!("no complete response from {host:?} within {} ms", request.timeout.as_millis());
                Err(Failure::new(Class::Timeout, message))
            }
        }
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("guard", &self.inner.guard).finish_non_exhaustive()
    }
}

impl Inner {
    async fn follow(&self, mut hop: HopRequest, request: &Request, guard: &Arc<Guard>) -> Result<Response, Failure> {
        let mut redirects = 0;
        loop {
            if let Some(liveness) = &request.liveness {
                liveness.wait_until_live().await;
            }
            if let Some(sent) = &request.sent {
                sent.set();
            }
            let answer = self.exchange(&hop, request.partition, guard).await?;
            let Some(location) = redirect_of(&answer).filter(|_| request.follows) else {
                let host = hop.target.host();
                if request.cuts {
                    return Ok(
                        response::excerpt_of(answer, request.max_response_bytes, request.secrets.as_deref()).await
                    );
                }
                let read = response::read(answer, request.max_response_bytes, request.secrets.as_deref()).await;
                return read.map_err(|refused| refused.failure(host, |error| broken(&hop.target, error)));
            };
            if redirects == self.max_redirects {
                let message = format!("{:?} redirects more than {redirects} times", hop.target.host());
                return Err(Failure::new(Class::ValidationError, message));
            }
            redirects += 1;
            hop = hop.redirected(answer.status(), &location, guard)?;
        }
    }

    async fn exchange(
        &self,
        hop: &HopRequest,
        workspace: WorkspaceId,
        guard: &Arc<Guard>,
    ) -> Result<reqwest::Response, Failure> {
        let CheckedUrl { url, opened } = hop.target.clone();
        let failed = |error: reqwest::Error| broken(&hop.target, &error);
        let client = self.clients.of(workspace, opened, guard).map_err(failed)?;
        let mut message = client.request(hop.method.clone(), url).headers(hop.headers.clone());
        if let Some(body) = &hop.body {
            message = message.body(body.to_vec());
        }
        let answer = message.send().await.map_err(failed)?;
        // The resolver has already checked this address. If it missed a forbidden address, the response is not used.
        match answer.remote_addr().map(|peer| peer.ip()) {
            Some(peer) if guard.is_closed(peer) => Err(Denied::Closed(hop.target.host().to_owned()).into()),
            Some(peer) if opened || guard.permits(peer) => Ok(answer),
            None if opened => Ok(answer),
            _ => Err(hop.target.denied_address().into()),
        }
    }
}

/// The target of a redirect, if the response is one. A redirect without a target is an ordinary response.
fn redirect_of(answer: &reqwest::Response) -> Option<String> {
    let location = answer.headers().get(LOCATION)?;
    let redirects = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    redirects.then(|| String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// Describes a network error. The description reveals nothing but the host and the port.
fn broken(target: &CheckedUrl, error: &reqwest::Error) -> Failure {
    let (host, address) = (target.host(), target.address());
    let causes = || iter::successors(error.source(), |cause| (*cause).source());
    if causes().any(|cause| cause.is::<resolver::ClosedAddress>()) {
        return Denied::Closed(host.to_owned()).into();
    }
    if causes().any(|cause| cause.is::<resolver::PrivateAddress>()) {
        return target.denied_address().into();
    }
    if error.is_timeout() {
        return Failure::new(Class::Timeout, format!("cannot connect to {address:?}: timed out"));
    }
    if error.is_builder() {
        let message = format!("the request to {host:?} is invalid; check its URL, headers and body");
        return Failure::new(Class::ValidationError, message);
    }
    let mut message = if causes().any(|cause| cause.is::<resolver::NoAddress>()) {
        format!("{host:?} does not resolve to an address")
    } else if error.is_connect() {
        format!("cannot connect to {address:?}")
    } else if error.is_decode() {
        format!("the response of {host:?} cannot be decoded")
    } else {
        format!("the connection to {host:?} broke before the response was complete")
    };
    if let Some(why) = causes().find_map(|cause| cause.downcast_ref::<io::Error>()).and_then(plain) {
        message = format!("{message}: {why}");
    }
    Failure::new(Class::ExecutionError, message)
}

/// Describes a broken connection by the kind of its error alone.
fn plain(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::Other => error.get_ref()?.downcast_ref::<io::Error>().and_then(plain),
        // TLS reports this kind for a certificate or a handshake that it rejects.
        io::ErrorKind::InvalidData => Some("TLS handshake failed".to_owned()),
        kind => Some(kind.to_string()),
    }
}
