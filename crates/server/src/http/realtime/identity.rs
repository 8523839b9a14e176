//! Who a channel is: the socket's key, or another that its join or a later frame shows.
//!
//! Invariants
//! - Another key never widens what the socket's own may see.
//! - Reading is all that a socket does, so `read` is the scope it takes.

use std::net::IpAddr;
use std::time::Instant;

use kernel::access::{self, Scope};
use kernel::ids::WorkspaceId;
use store::key::Secret;

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
}

impl Denied {
    pub(super) fn message(self) -> &'static str {
        match self {
            Denied::Invalid => "Token has expired or is invalid",
            Denied::Foreign => auth::FOREIGN,
            Denied::Away => "the database is not available; try again shortly",
        }
    }
}

impl Identity {
    /// The key that opens a socket, and whose share of sockets it uses. One that cannot be looked up now is let in, to nothing yet.
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

    /// Who shows this token on a socket of that key; without one the socket's key itself.
    pub(super) async fn of(api: &Api, socket: &Secret, token: Option<&str>) -> Result<Identity, Denied> {
        let own = Identity::look_up(api, socket.clone()).await?;
        let Some(token) = token.filter(|token| *token != socket.expose()) else { return Ok(own) };
        let unread = |_| if auth::is_foreign(token) { Denied::Foreign } else { Denied::Invalid };
        let shown = Identity::look_up(api, Secret::parse(token).map_err(unread)?).await?;
        if access::is_within(shown.workspace, own.workspace) { Ok(shown) } else { Err(Denied::Invalid) }
    }

    async fn look_up(api: &Api, secret: Secret) -> Result<Identity, Denied> {
        match api.keys.caller(&api.store, &secret).await {
            Ok(caller) if caller.scopes.allow(Scope::Read) => Ok(Identity { secret, workspace: caller.workspace }),
            Err(problem) if problem.code == Code::Unavailable => Err(Denied::Away),
            Ok(_) | Err(_) => Err(Denied::Invalid),
        }
    }
}
