//! Authenticates requests. The workspace comes from the key, never from the request.
//!
//! Invariants
//! - A request without a valid key is refused before its body is read.
//! - A revoked or expired key stops working within `FRESH` of the time at which it was looked up.
//! - Of many requests with one key, one looks it up again before `FRESH` is over. The others do not wait for it.
//! - Keys are looked up by hash. No key is logged.
//! - Every key that a client sends passes `admit`, which counts failures and limits them by address.

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

/// How long a key that was found is trusted.
const FRESH: Duration = Duration::from_secs(3);
/// After this time, one request looks the key up again.
const REFRESH: Duration = Duration::from_secs(2);
/// The most keys remembered at once.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("greater than zero");

/// The error for a JSON Web Token.
pub(crate) const JSON_WEB_TOKEN_REFUSED: &str = "JSON Web Tokens are not accepted: send an API key (fbk_…)";

/// Whether this is a JSON Web Token instead of a key.
pub(crate) fn is_json_web_token(token: &str) -> bool {
    token.starts_with("eyJ") && token.split('.').count() == 3
}

/// The credential behind a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the caller in the activity log.
    pub(crate) actor: String,
    /// The stored key. None for a configured root key, and for a caller without a key, such as a trigger.
    pub(crate) key: Option<KeyId>,
    /// The only workspace that the caller may access. None for a root key, which may access all workspaces.
    pub(crate) workspace: Option<WorkspaceId>,
    pub(crate) scopes: Scopes,
}

impl Caller {
    /// The workspace that a request is about. With a key of a workspace it is that workspace; the request may name it
    /// too, but no other. With a root key the request must name a workspace.
    pub(crate) fn workspace(&self, named: Option<WorkspaceId>) -> Result<WorkspaceId, Problem> {
        match (self.workspace, named) {
            (Some(own), Some(named)) if own != named => Err(Problem::new(
                Code::WorkspaceMismatch,
                "this key belongs to another workspace: omit workspaceId, or use a key of that workspace",
            )),
            (Some(own), _) => Ok(own),
            (None, Some(named)) => Ok(named),
            (None, None) => Err(Problem::new(Code::ValidationFailed, "workspaceId is required with a root key")),
        }
    }

    /// The workspace to list. With a key of a workspace it is that workspace. With a root key it is the workspace that
    /// the request names; None if it names none: list all workspaces.
    pub(crate) fn listed_workspace(&self, named: Option<WorkspaceId>) -> Result<Option<WorkspaceId>, Problem> {
        match (self.workspace, named) {
            (None, None) => Ok(None),
            _ => self.workspace(named).map(Some),
        }
    }

    /// The name under which limits count the requests of this caller. All keys of a workspace share a name; a root key
    /// has its own.
    pub(crate) fn limit_name(&self) -> String {
        self.workspace.map_or_else(|| self.actor.clone(), |workspace| format!("workspace:{workspace}"))
    }

    /// Refuses every key but a root key.
    pub(crate) fn require_root(&self) -> Result<(), Problem> {
        match self.workspace {
            None => Ok(()),
            Some(_) => {
                Err(Problem::new(Code::Forbidden, "this request needs a root key; this key belongs to a workspace"))
            }
        }
    }
}

/// The keys of this process: the configured root keys, and a short-lived cache of stored keys.
#[derive(Debug)]
pub(crate) struct Keys {
    root: RootKeys,
    seen: Mutex<LruCache<Vec<u8>, KnownKey>>,
}

/// A key as it was when it was last looked up.
#[derive(Debug)]
struct KnownKey {
    key: Key,
    looked_up: Instant,
    /// A request is looking it up again.
    refreshing: bool,
}

impl KnownKey {
    /// The key, if it is fresh. None: the caller looks it up.
    fn fresh(&mut self, now: Instant) -> Option<Key> {
        let age = now.saturating_duration_since(self.looked_up);
        if age >= FRESH || (age >= REFRESH && !std::mem::replace(&mut self.refreshing, true)) {
            return None;
        }
        Some(self.key)
    }
}

impl Keys {
    pub(crate) fn new(root: RootKeys) -> Keys {
        Keys { root, seen: Mutex::new(LruCache::new(REMEMBERED)) }
    }

    pub(crate) async fn caller(&self, store: &Store, secret: &Secret) -> Result<Caller, Problem> {
        if self.root.contains(secret) {
            return Ok(Caller { actor: "root".to_owned(), key: None, workspace: None, scopes: Scopes::all() });
        }
        let hash = secret.hash();
        let remembered = {
            let mut seen = self.seen.lock();
            seen.get_mut(&hash).and_then(|known| known.fresh(Instant::now()))
        };
        let key = match remembered {
            Some(key) => key,
            None => {
                // Taken before the lookup: the key may be revoked while it is looked up.
                let asked = Instant::now();
                let found = store.find_key(secret).await;
                if matches!(found, Err(store::Error::NotFound)) {
                    self.seen.lock().pop(&hash);
                }
                let key = found.map_err(|error| match error {
                    store::Error::NotFound => Problem::new(
                        Code::Unauthenticated,
                        "unknown key: it expired, was revoked, or belongs to another server",
                    ),
                    other => other.into(),
                })?;
                self.seen.lock().put(hash, KnownKey { key, looked_up: asked, refreshing: false });
                key
            }
        };
        let actor = format!("key:{}", key.id);
        Ok(Caller { actor, key: Some(key.id), workspace: key.workspace, scopes: key.scopes })
    }

    /// Whether the cache has this key as valid: it was valid when this process last looked it up.
    fn know(&self, secret: &Secret) -> bool {
        self.root.contains(secret) || self.seen.lock().contains(&secret.hash())
    }

    /// Removes these keys from the cache, so that the next request with one of them looks it up again.
    pub(crate) fn forget(&self, ids: &[KeyId]) {
        let mut seen = self.seen.lock();
        seen.retain(|_, known| !ids.contains(&known.key.id));
    }
}

/// The key of a request, if the request has exactly one bearer token in the form of a key.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Secret::parse(token.trim()).ok())?
}

/// Fails if this address sent too many invalid keys.
pub(crate) fn check_address(api: &Api, from: IpAddr) -> Result<(), Problem> {
    let Err(wait) = api.failures.check(from, Instant::now()) else { return Ok(()) };
    api.failures.note(from, Reason::Limited, Instant::now());
    Err(limited("too many requests with invalid keys came from this address: wait, then send a valid key", wait))
}

/// Authenticates a key and returns its caller. A failure counts against the address. After too many failures from an
/// address, keys that this process does not have in its cache are refused without a lookup.
pub(crate) async fn admit(api: &Api, from: IpAddr, secret: &Secret) -> Result<Caller, Problem> {
    if !api.keys.know(secret) {
        check_address(api, from)?;
    }
    let found = api.keys.caller(&api.store, secret).await;
    if matches!(&found, Err(problem) if problem.code == Code::Unauthenticated) {
        api.failures.note(from, Reason::Unknown, Instant::now());
    }
    found
}

/// Passes a request on with its caller. Answers 401 without a valid key, and 403 without the required scope.
pub(crate) async fn authenticate(
    State(api): State<Api>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let missing = || {
        Problem::new(
            Code::Unauthenticated,
            "send `Authorization: Bearer KEY`; `forebay dev` prints a key, and `forebay key create` creates one",
        )
    };
    let from = client(request.extensions(), request.headers(), &api.settings.http.trusted_proxies);
    let Some(secret) = bearer(request.headers()) else {
        let shown = request.headers().contains_key(header::AUTHORIZATION);
        if shown {
            check_address(&api, from)?;
        }
        api.failures.note(from, if shown { Reason::Malformed } else { Reason::Missing }, Instant::now());
        let cut_off = "the key in the header Authorization is not complete: send `Authorization: Bearer KEY` once, \
                       with the whole key";
        return Err(if shown { Problem::new(Code::Unauthenticated, cut_off) } else { missing() });
    };
    let caller = admit(&api, from, &secret).await?;
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let scope = access::needed_scope(request.method(), route.as_str());
        if !caller.scopes.allows(scope) {
            let detail = format!("this request needs a key with the scope {}", scope.name());
            return Err(Problem::new(Code::Forbidden, detail));
        }
    }
    let workspace = caller.workspace;
    request.extensions_mut().insert(caller);
    api.pace.run(workspace, request, next).await
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn one_request_looks_a_key_up_again_before_it_is_too_old() {
        let (key, looked_up) = (Key { id: KeyId(Uuid::nil()), workspace: None, scopes: Scopes::all() }, Instant::now());
        let mut known = KnownKey { key, looked_up, refreshing: false };
        let mut is_fresh = |ms| known.fresh(looked_up + Duration::from_millis(ms)).is_some();
        assert!(is_fresh(0) && is_fresh(1_999));
        assert!(!is_fresh(2_000), "this request looks it up");
        assert!(is_fresh(2_001) && is_fresh(2_999), "the others use what is known");
        assert!(!is_fresh(3_000) && !is_fresh(3_001), "too old, whoever looks it up");
    }
}
