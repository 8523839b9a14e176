//! Who is asking: the workspace comes from the credential, never from the request.
//!
//! Invariants
//! - A request without a valid key goes no further: its body is not read.
//! - A revoked or expired key stops working within `FRESH` of the time at which it was looked up.
//! - Keys are looked up by hash; none is ever logged.
//! - Whoever comes in from outside passes `admit`, which counts failures and limits them by address.

use parking_lot::Mutex;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use kernel::access::Scopes;
use kernel::ids::{KeyId, WorkspaceId};
use lru::LruCache;
use store::Store;
use store::access::key::{Key, Secret};

use super::failures::{Reason, client, limited};
use super::{Api, Code, Problem, access};
use crate::access::root_keys::RootKeys;

/// How long a key that was found is trusted without looking again.
const FRESH: Duration = Duration::from_secs(3);
/// The most keys remembered at once.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("greater than zero");

/// What a JSON Web Token is told.
pub(crate) const FOREIGN: &str = "JSON Web Tokens are not taken here: show a key";

/// Is this no key but a JSON Web Token?
pub(crate) fn is_foreign(token: &str) -> bool {
    token.starts_with("eyJ") && token.split('.').count() == 3
}

/// The credential behind a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// What the audit log calls it.
    pub(crate) actor: String,
    /// The stored key that it showed; none for a configured root key, and for what shows no key.
    pub(crate) key: Option<KeyId>,
    /// The one workspace it may see; none for the root key, which may see all.
    pub(crate) workspace: Option<WorkspaceId>,
    pub(crate) scopes: Scopes,
}

impl Caller {
    /// The workspace a request is about: the key's own, which the body may repeat, or with the root
    /// key the one the body names.
    pub(crate) fn workspace(&self, named: Option<WorkspaceId>) -> Result<WorkspaceId, Problem> {
        match (self.workspace, named) {
            (Some(own), Some(named)) if own != named => Err(Problem::new(
                Code::WorkspaceMismatch,
                "this key is of another workspace: leave workspaceId out, or use that workspace's key",
            )),
            (Some(own), _) => Ok(own),
            (None, Some(named)) => Ok(named),
            (None, None) => Err(Problem::new(
                Code::ValidationFailed,
                "say which workspace: workspaceId is required with a root key",
            )),
        }
    }

    /// The workspace whose things are listed: the key's own, or with the root key the one named, or all.
    pub(crate) fn sees(&self, named: Option<WorkspaceId>) -> Result<Option<WorkspaceId>, Problem> {
        match (self.workspace, named) {
            (None, None) => Ok(None),
            _ => self.workspace(named).map(Some),
        }
    }

    /// Whose share of what is bounded it uses: its workspace's, however many keys that has; a root key's own.
    pub(crate) fn share(&self) -> String {
        self.workspace.map_or_else(|| self.actor.clone(), |workspace| format!("workspace:{workspace}"))
    }

    /// Only the root key goes on.
    pub(crate) fn root(&self) -> Result<(), Problem> {
        match self.workspace {
            None => Ok(()),
            Some(_) => Err(Problem::new(Code::Forbidden, "this needs a root key; yours is a workspace's")),
        }
    }
}

/// The keys of this process: configured root keys, and stored ones remembered for a moment.
#[derive(Debug)]
pub(crate) struct Keys {
    root: RootKeys,
    seen: Mutex<LruCache<Vec<u8>, (Key, Instant)>>,
}

impl Keys {
    pub(crate) fn new(root: RootKeys) -> Keys {
        Keys { root, seen: Mutex::new(LruCache::new(REMEMBERED)) }
    }

    pub(crate) async fn caller(&self, store: &Store, secret: &Secret) -> Result<Caller, Problem> {
        if self.root.contain(secret) {
            return Ok(Caller { actor: "root".to_owned(), key: None, workspace: None, scopes: Scopes::all() });
        }
        let hash = secret.hash();
        let remembered = {
            let mut seen = self.seen.lock();
            seen.get(&hash).filter(|(_, at)| at.elapsed() < FRESH).map(|(key, _)| *key)
        };
        let key = match remembered {
            Some(key) => key,
            None => {
                // Before it is looked for: what is trusted from then on may have been revoked since.
                let asked = Instant::now();
                let found = store.find_key(secret).await;
                if matches!(found, Err(store::Error::NotFound)) {
                    self.seen.lock().pop(&hash);
                }
                let key = found.map_err(|error| match error {
                    store::Error::NotFound => Problem::new(
                        Code::Unauthenticated,
                        "this key is not known here: it expired, was revoked, or belongs to another server",
                    ),
                    other => other.into(),
                })?;
                self.seen.lock().put(hash, (key, asked));
                key
            }
        };
        let actor = format!("key:{}", key.id);
        Ok(Caller { actor, key: Some(key.id), workspace: key.workspace, scopes: key.scopes })
    }

    /// Was this key good when it was last looked up here?
    fn know(&self, secret: &Secret) -> bool {
        self.root.contain(secret) || self.seen.lock().contains(&secret.hash())
    }

    /// Trusts these keys no longer without looking again.
    pub(crate) fn forget(&self, ids: &[KeyId]) {
        let mut seen = self.seen.lock();
        seen.retain(|_, (key, _)| !ids.contains(&key.id));
    }
}

/// The key that a request shows, if it shows one and no more.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Secret::parse(token.trim()).ok())?
}

/// Refuses an address from which too many bad keys came.
pub(crate) fn limit(api: &Api, from: IpAddr) -> Result<(), Problem> {
    let Err(wait) = api.failures.check(from, Instant::now()) else { return Ok(()) };
    api.failures.note(from, Reason::Limited, Instant::now());
    Err(limited("too many requests with bad keys came from this address", wait))
}

/// Who shows this key, from that address. A failure is counted; too many of an address are answered without a look.
pub(crate) async fn admit(api: &Api, from: IpAddr, secret: &Secret) -> Result<Caller, Problem> {
    if !api.keys.know(secret) {
        limit(api, from)?;
    }
    let found = api.keys.caller(&api.store, secret).await;
    if matches!(&found, Err(problem) if problem.code == Code::Unauthenticated) {
        api.failures.note(from, Reason::Unknown, Instant::now());
    }
    found
}

/// Lets a request through with its caller, or answers 401, or 403 to one without the scope it takes.
pub(crate) async fn require(State(api): State<Api>, mut request: Request, next: Next) -> Result<Response, Problem> {
    let missing = || {
        Problem::new(
            Code::Unauthenticated,
            "send `Authorization: Bearer KEY`; `forebay dev` prints a key, and `forebay workspace key` makes one",
        )
    };
    let from = client(request.extensions(), request.headers(), &api.settings.http.trusted_proxies);
    let Some(secret) = bearer(request.headers()) else {
        let shown = request.headers().contains_key(header::AUTHORIZATION);
        if shown {
            limit(&api, from)?;
        }
        api.failures.note(from, if shown { Reason::Malformed } else { Reason::Missing }, Instant::now());
        let cut_off = "the header Authorization holds no key: send `Bearer KEY` once; was the key cut off?";
        return Err(if shown { Problem::new(Code::Unauthenticated, cut_off) } else { missing() });
    };
    let caller = admit(&api, from, &secret).await?;
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let scope = access::needed(request.method(), route.as_str());
        if !caller.scopes.allow(scope) {
            let detail = format!("this needs a key with the scope {}", scope.name());
            return Err(Problem::new(Code::Forbidden, detail));
        }
    }
    let workspace = caller.workspace;
    request.extensions_mut().insert(caller);
    api.pace.run(workspace, request, next).await
}
