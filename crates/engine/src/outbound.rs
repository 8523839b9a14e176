//! The one guard through which every outbound HTTP call of a tenant goes.
//!
//!     Request ─▶ guard ─▶ client of the workspace ─▶ checked addresses ─▶ peer checked ─▶ bounded Response
//!                  ▲                                                           │
//!                  └───────────────── redirect, at most max_redirects ─────────┘
//!
//! Invariants
//! - Every URL, the first and each redirect's, passes the whole guard before a byte is sent.
//! - Every address behind a name is checked before it is connected to, and the peer once more
//!   before its answer is read.
//! - A refusal is a `SECURITY_ERROR` whose message starts with `egress_denied:` and names the host,
//!   never an address that the host resolved to.
//! - A call ends within its timeout, and at once when its future is dropped. The rules of its workspace are read before
//!   that time begins; a call that carries them (`Request::policy`) does not ask the database.
//! - No connection is shared by two workspaces.
//! - No secret that a request carries is in its answer or failure, or goes to another origin than it was sent to.
//!
//! Not here: which status fails a node (its kind asks `failure_of`), where secrets come from (`vault`),
//! the network policy outside, which is the last wall.

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
use guard::{Denied, Guard, Target};
use request::Hop;
pub(crate) use request::wipe;
use rules::Book;

pub use allow::{Allow, BadAllow, Deny};
pub use request::{Body, Method, Request, Sent};
pub use resolver::Lookup;
pub use response::{Response, failure_of, wanted_wait};
pub use rules::Rules;

/// What an operator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Hosts that may be called although they are not global; empty by default.
    pub allow: Vec<Allow>,
    /// This machine's own loopback addresses may be called, at any port that HTTP may use.
    pub allow_loopback: bool,
    /// Hosts, addresses and ranges that may never be called, whatever opens them.
    pub deny: Vec<Deny>,
    /// For names, TCP and TLS together. Within the timeout of the call.
    pub connect_timeout: Duration,
    /// How many redirects are followed.
    pub max_redirects: usize,
    pub user_agent: String,
    /// How many workspaces' connections are kept; each costs about 100 kB.
    pub max_clients: usize,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// Where those who are called can call back: this service's own address.
    pub public_url: Option<String>,
}

impl Default for Settings {
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

/// Why there is no guard: settings that cannot work, or a system without certificates.
#[derive(Debug, thiserror::Error)]
#[error("set up outbound HTTP")]
pub struct Error(#[from] reqwest::Error);

/// Why a URL is never called, where the URL alone tells: what is behind a name shows only when it is called.
/// `service` and `own` are the rules of the operator and of the workspace.
pub fn refusal(service: &Rules, allow_loopback: bool, own: &Rules, url: &str) -> Option<String> {
    let guard = Guard { allow_loopback, ..Guard::default() }.with(service).with(own);
    guard.parse(url).err().map(|denied| denied.to_string())
}

/// The rules that hold for the calls of a workspace: the service's, and its own.
#[derive(Clone, Debug)]
pub struct Policy(Arc<Guard>);

/// Makes calls for tenants. A clone shares connections with its original.
#[derive(Clone)]
pub struct Outbound {
    inner: Arc<Inner>,
}

struct Inner {
    guard: Arc<Guard>,
    /// Where workspaces' own rules are; none: they have none.
    book: Option<Book>,
    clients: Clients,
    max_redirects: usize,
    public_url: Option<String>,
}

impl Outbound {
    /// A guard that asks the system's resolver.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Self::with_lookup(settings, resolver::system())
    }

    /// A guard that asks another resolver, whose answers are checked all the same.
    pub fn with_lookup(settings: Settings, lookup: Lookup) -> Result<Self, Error> {
        let (allow, deny) = (settings.allow.clone(), settings.deny.clone());
        let guard = Arc::new(Guard { allow, allow_loopback: settings.allow_loopback, deny, of: 0 });
        let (max_redirects, public_url) = (settings.max_redirects, settings.public_url.clone());
        let clients = Clients::new(settings, lookup);
        // Tried once here, so that a bad setting stops the start and not the first call.
        clients.build(false, &guard)?;
        Ok(Self { inner: Arc::new(Inner { guard, book: None, clients, max_redirects, public_url }) })
    }

    /// The same, with the rules that workspaces have of their own. Before it is shared.
    #[must_use]
    pub fn ruled_by(self, store: Store) -> Self {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => Self { inner: Arc::new(Inner { book: Some(Book::new(store)), ..inner }) },
            Err(inner) => Self { inner },
        }
    }

    /// Where those who are called can call back.
    pub fn public_url(&self) -> Option<&str> {
        self.inner.public_url.as_deref()
    }

    /// The rules that hold for the calls of a workspace. Waits for as long as the database does not answer.
    pub async fn policy(&self, workspace: WorkspaceId) -> Result<Policy, Failure> {
        match &self.inner.book {
            Some(book) => book.guard_of(workspace, &self.inner.guard).await.map(Policy),
            None => Ok(Policy(Arc::clone(&self.inner.guard))),
        }
    }

    /// The same, if the database need not be asked for them.
    pub fn known_policy(&self, workspace: WorkspaceId) -> Option<Policy> {
        match &self.inner.book {
            Some(book) => book.known(workspace).map(Policy),
            None => Some(Policy(Arc::clone(&self.inner.guard))),
        }
    }

    /// Makes a call. Any status is an answer; a failure means that there was none to take.
    pub async fn send(&self, request: Request) -> Result<Response, Failure> {
        let result = self.attempt(&request).await;
        let Some(secrets) = &request.secrets else { return result };
        result.map_err(|failure| match secrets.text(&failure.message) {
            Some(message) => Failure { message, ..failure },
            None => failure,
        })
    }

    async fn attempt(&self, request: &Request) -> Result<Response, Failure> {
        let Policy(guard) = match &request.policy {
            Some(policy) => policy.clone(),
            None => self.policy(request.partition).await?,
        };
        let hop = Hop::first(request, &guard)?;
        let host = hop.target.host().to_owned();
        let call = Box::pin(self.inner.follow(hop, request, &guard));
        match tokio::time::timeout(request.timeout, call).await {
            Ok(result) => result,
            Err(_) => {
                let message = format!("no whole answer from {host:?} within {} ms", request.timeout.as_millis());
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
    async fn follow(&self, mut hop: Hop, request: &Request, guard: &Arc<Guard>) -> Result<Response, Failure> {
        let mut redirects = 0;
        loop {
            if let Some(pulse) = &request.pulse {
                pulse.fresh().await;
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
        hop: &Hop,
        workspace: WorkspaceId,
        guard: &Arc<Guard>,
    ) -> Result<reqwest::Response, Failure> {
        let Target { url, opened } = hop.target.clone();
        let failed = |error: reqwest::Error| broken(&hop.target, &error);
        let client = self.clients.of(workspace, opened, guard).map_err(failed)?;
        let mut message = client.request(hop.method.clone(), url).headers(hop.headers.clone());
        if let Some(body) = &hop.body {
            message = message.body(body.to_vec());
        }
        let answer = message.send().await.map_err(failed)?;
        // The resolver saw to it already; if ever it does not, nothing of the answer gets out.
        match answer.remote_addr().map(|peer| peer.ip()) {
            Some(peer) if guard.is_closed(peer) => Err(Denied::Closed(hop.target.host().to_owned()).into()),
            Some(peer) if opened || guard.permits(peer) => Ok(answer),
            None if opened => Ok(answer),
            _ => Err(hop.target.denied_address().into()),
        }
    }
}

/// Where an answer sends us, if it does. A redirect without a place to go is an answer.
fn redirect_of(answer: &reqwest::Response) -> Option<String> {
    let location = answer.headers().get(LOCATION)?;
    let redirects = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    redirects.then(|| String::from_utf8_lossy(location.as_bytes()).into_owned())
}

/// What went wrong on the wire, in words that tell nothing but the host.
fn broken(target: &Target, error: &reqwest::Error) -> Failure {
    let host = target.host();
    let causes = || iter::successors(error.source(), |cause| (*cause).source());
    if causes().any(|cause| cause.is::<resolver::Closed>()) {
        return Denied::Closed(host.to_owned()).into();
    }
    if causes().any(|cause| cause.is::<resolver::NotPublic>()) {
        return target.denied_address().into();
    }
    if error.is_timeout() {
        return Failure::new(Class::Timeout, format!("cannot connect to {host:?} in time"));
    }
    if error.is_builder() {
        return Failure::new(Class::ValidationError, format!("no such request can be made to {host:?}"));
    }
    let mut message = if causes().any(|cause| cause.is::<resolver::Unknown>()) {
        format!("{host:?} has no address")
    } else if error.is_connect() {
        format!("cannot connect to {host:?}")
    } else if error.is_decode() {
        format!("the answer of {host:?} cannot be decoded")
    } else {
        format!("the exchange with {host:?} broke off")
    };
    if let Some(why) = causes().find_map(|cause| cause.downcast_ref::<io::Error>()).and_then(plain) {
        message = format!("{message}: {why}");
    }
    Failure::new(Class::ExecutionError, message)
}

/// What the system or TLS says of a broken connection, by its kind alone.
fn plain(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::Other => error.get_ref()?.downcast_ref::<io::Error>().and_then(plain),
        // The kind that TLS gives to a certificate or an answer that it does not accept.
        io::ErrorKind::InvalidData => Some("TLS handshake failed".to_owned()),
        kind => Some(kind.to_string()),
    }
}
