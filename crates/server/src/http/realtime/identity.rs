//! Who a channel is: the socket's key, or another that its join or a later frame shows.
//!
//! Invariants
//! - Another key never widens what the socket's own may see.
//! - Keys that a client shows, when it joins too, count as failed authentication if they are bad.
//! - Reading is all that a socket does, so `read` is the scope it takes.

use std::net::IpAddr;
use std::time::Instant;

use kernel::access::{self, Scope};
use kernel::ids::WorkspaceId;
use store::access::key::Secret;

use crate::http::failures::Reason;
use crate::http::{Api, Code, Problem, auth};

/// A key that was looked up, and whose changes it sees.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) secret: Secret,
    pub(super) workspace: Option<WorkspaceId>,
}

/// Why a key is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Invalid,
    /// No key but a JSON Web Token, of which nobody here knows the issuer.
    Foreign,
    /// It cannot be looked up now.
    Away,
    /// Too many bad keys came from this address; it was not looked up.
    Limited,
}

impl Denied {
    pub(super) fn message(self) -> &'static str {
        match self {
            Denied::Invalid => "Token has expired or is invalid",
            Denied::Foreign => auth::FOREIGN,
            Denied::Away => "the database is not available; try again shortly",
            Denied::Limited => "too many requests with bad keys came from this address; try again in a minute",
        }
    }
}

impl Identity {
    /// The key that opens a socket, and whose share of sockets it uses. One that cannot be looked up now is let in, to
    /// nothing yet.
    pub(super) async fn open(api: &Api, from: IpAddr, key: &str) -> Result<(Secret, String), Problem> {
        let Ok(secret) = Secret::parse(key) else {
            api.failures.note(from, Reason::Malformed, Instant::now());
            return Err(Problem::new(Code::Unauthenticated, "apikey is no key"));
        };
        match auth::admit(api, from, &secret).await {
            Ok(caller) if caller.scopes.allow(Scope::Read) => Ok((secret, caller.share())),
            Ok(_) => Err(Problem::new(Code::Forbidden, "this needs a key with the scope read")),
            Err(problem) if problem.code == Code::Unavailable => Ok((secret, "unknown".to_owned())),
            Err(problem) => Err(problem),
        }
    }

    /// Who shows this token on a socket of that key; without one the socket's key itself. `from`: the client's address,
    /// whose failures are counted; none where the service looks again at what it admitted, which is never limited.
    pub(super) async fn of(
        api: &Api,
        from: Option<IpAddr>,
        socket: &Secret,
        token: Option<&str>,
    ) -> Result<Identity, Denied> {
        let own = Identity::look_up(api, from, socket.clone()).await?;
        let Some(token) = token.filter(|token| *token != socket.expose()) else { return Ok(own) };
        let unread = |_| if auth::is_foreign(token) { Denied::Foreign } else { Denied::Invalid };
        let shown = Identity::look_up(api, from, Secret::parse(token).map_err(unread)?).await?;
        if access::is_within(shown.workspace, own.workspace) { Ok(shown) } else { Err(Denied::Invalid) }
    }

    async fn look_up(api: &Api, from: Option<IpAddr>, secret: Secret) -> Result<Identity, Denied> {
        let found = match from {
            Some(from) => auth::admit(api, from, &secret).await,
            None => api.keys.caller(&api.store, &secret).await,
        };
        match found {
            Ok(caller) if caller.scopes.allow(Scope::Read) => Ok(Identity { secret, workspace: caller.workspace }),
            Err(problem) if problem.code == Code::Unavailable => Err(Denied::Away),
            Err(problem) if problem.code == Code::RateLimited => Err(Denied::Limited),
            Ok(_) | Err(_) => Err(Denied::Invalid),
        }
    }
}
