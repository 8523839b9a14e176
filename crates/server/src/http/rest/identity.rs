//! Who asks for the table: the client sends its key twice, as `apikey` and as a bearer token, or another key as the
//! second.
//!
//! Invariants
//! - Whatever is shown must be a key. The second never widens what the first may see, and both must have the scope.

use std::net::IpAddr;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use kernel::access::{Scope, is_within};
use store::access::key::Secret;

use super::fault::Fault;
use crate::http::auth::{self, Caller};
use crate::http::failures::{Reason, client};
use crate::http::{Api, Code, Problem, access};

/// Lets a request through with its caller, or answers 401, or 403 to one without the scope it takes.
pub(crate) async fn require(State(api): State<Api>, mut request: Request, next: Next) -> Result<Response, Fault> {
    let from = client(request.extensions(), request.headers(), &api.settings.http.trusted_proxies);
    let (first, second) = match keys(request.headers()) {
        Ok(keys) => keys,
        Err(fault) => {
            let shown =
                ["apikey", header::AUTHORIZATION.as_str()].iter().any(|name| request.headers().contains_key(*name));
            if shown {
                auth::limit(&api, from)?;
            }
            api.failures.note(from, if shown { Reason::Malformed } else { Reason::Missing }, Instant::now());
            return Err(fault);
        }
    };
    let (own, shown) = callers(&api, from, first, second).await?;
    let needed = access::needed(request.method(), "/rest/v1");
    // Whoever has the changed rows answered reads them.
    let read = wants_rows(request.headers()).then_some(Scope::Read);
    for scope in [Some(needed), read].into_iter().flatten() {
        if ![&own, &shown].iter().all(|caller| caller.scopes.allow(scope)) {
            let detail = format!("this needs a key with the scope {}", scope.name());
            return Err(Problem::new(Code::Forbidden, detail).into());
        }
    }
    let workspace = shown.workspace;
    request.extensions_mut().insert(shown);
    Ok(api.pace.run(workspace, request, next).await?)
}

/// Are rows to be answered? Headers that cannot be read are refused later, and answer none.
fn wants_rows(headers: &HeaderMap) -> bool {
    super::wanted(headers).is_ok_and(|wanted| wanted.rows)
}

/// The keys that a request shows: one, and perhaps another beside it.
fn keys(headers: &HeaderMap) -> Result<(Secret, Option<Secret>), Fault> {
    let first = one(headers, "apikey")?.map(key).transpose()?;
    let second = one(headers, header::AUTHORIZATION.as_str())?.map(bearer).transpose()?;
    match (first, second) {
        (None, None) => Err(Fault::unauthenticated("no key was given")),
        (Some(own), Some(shown)) if !own.is(&shown) => Ok((own, Some(shown))),
        (Some(one), _) | (None, Some(one)) => Ok((one, None)),
    }
}

/// Whose `apikey` it is, and who is meant: the bearer, if there is one.
async fn callers(api: &Api, from: IpAddr, own: Secret, shown: Option<Secret>) -> Result<(Caller, Caller), Fault> {
    let own = auth::admit(api, from, &own).await?;
    let Some(shown) = shown else { return Ok((own.clone(), own)) };
    let shown = auth::admit(api, from, &shown).await?;
    if !is_within(shown.workspace, own.workspace) {
        return Err(Fault::unauthenticated("the bearer's key is of another workspace than the apikey"));
    }
    Ok((own, shown))
}

/// The only value of a header.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Fault> {
    let mut given = headers.get_all(name).iter();
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            value.to_str().map(Some).map_err(|_| Fault::unauthenticated(format!("{name} is no key")))
        }
        (Some(_), Some(_)) => Err(Fault::unauthenticated(format!("{name} is given twice"))),
    }
}

fn bearer(value: &str) -> Result<Secret, Fault> {
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => key(token.trim()),
        _ => Err(Fault::unauthenticated("Authorization is Bearer and a key")),
    }
}

fn key(text: &str) -> Result<Secret, Fault> {
    Secret::parse(text).map_err(|_| match auth::is_foreign(text) {
        true => Fault::unauthenticated(auth::FOREIGN),
        false => Fault::unauthenticated("this is no key"),
    })
}
