//! The identity of a channel: the key of its socket, or another key that the join or a later frame contains.
//!
//! Invariants
//! - Another key never gives access to more than the key of the socket does.
//! - Every invalid key that a client sends counts as failed authentication, also in a join.
//! - A socket only reads, so it needs the scope `read`.

use std::net::IpAddr;
use std::time::Instant;

use kernel::access::{self, Scope};
use kernel::ids::WorkspaceId;
use store::access::key::Secret;

use crate::http::failures::Reason;
use crate::http::{Api, Code, Problem, auth};

/// A key that was looked up, and the workspace whose changes it sees.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) secret: Secret,
    pub(super) workspace: Option<WorkspaceId>,
}

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Invalid,
    /// A JSON Web Token instead of a key.
    JsonWebToken,
    /// The database is unavailable, so the key cannot be looked up now.
    Unavailable,
    /// Too many invalid keys came from this address, so the key was not looked up.
    Limited,
}

impl Denied {
    pub(super) fn message(self) -> &'static str {
        match self {
            Denied::Invalid => "Token has expired or is invalid",
            Denied::JsonWebToken => auth::JSON_WEB_TOKEN_REFUSED,
            Denied::Unavailable => "the database is unavailable: try again in a few seconds",
            Denied::Limited => "too many requests with invalid keys came from this address: try again in a minute",
        }
    }
}

impl Identity {
    /// Checks the key that opens a socket. Returns the key and the name under which the limit counts the socket. If the
    /// key cannot be looked up now, the socket opens, but its joins fail until the lookup succeeds.
    pub(super) async fn open(api: &Api, from: IpAddr, key: &str) -> Result<(Secret, String), Problem> {
        let Ok(secret) = Secret::parse(key) else {
            api.failures.note(from, Reason::Malformed, Instant::now());
            return Err(Problem::new(Code::Unauthenticated, "apikey: not a key; a key begins with fbk_"));
        };
        match auth::admit(api, from, &secret).await {
            Ok(caller) if caller.scopes.allows(Scope::Read) => Ok((secret, caller.limit_name())),
            Ok(_) => Err(Problem::new(Code::Forbidden, "this request needs a key with the scope read")),
            Err(problem) if problem.code == Code::Unavailable => Ok((secret, "unknown".to_owned())),
            Err(problem) => Err(problem),
        }
    }

    /// The identity of a channel: that of `token`, or without a token that of the socket's key. `from` is the address
    /// of the client, whose failures are counted. None: a repeated check of a key that was accepted before, which is
    /// neither counted nor limited.
    pub(super) async fn of(
        api: &Api,
        from: Option<IpAddr>,
        socket: &Secret,
        token: Option<&str>,
    ) -> Result<Identity, Denied> {
        let own = Identity::look_up(api, from, socket.clone()).await?;
        let Some(token) = token.filter(|token| *token != socket.expose()) else { return Ok(own) };
        let unread = |_| if auth::is_json_web_token(token) { Denied::JsonWebToken } else { Denied::Invalid };
        let shown = Identity::look_up(api, from, Secret::parse(token).map_err(unread)?).await?;
        if access::is_within(shown.workspace, own.workspace) { Ok(shown) } else { Err(Denied::Invalid) }
    }

    async fn look_up(api: &Api, from: Option<IpAddr>, secret: Secret) -> Result<Identity, Denied> {
        let found = match from {
            Some(from) => auth::admit(api, from, &secret).await,
            None => api.keys.caller(&api.store, &secret).await,
        };
        match found {
            Ok(caller) if caller.scopes.allows(Scope::Read) => Ok(Identity { secret, workspace: caller.workspace }),
            Err(problem) if problem.code == Code::Unavailable => Err(Denied::Unavailable),
            Err(problem) if problem.code == Code::RateLimited => Err(Denied::Limited),
            Ok(_) | Err(_) => Err(Denied::Invalid),
        }
    }
}
