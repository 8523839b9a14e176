//! Authenticates requests to the table. The Supabase client sends its key in the header `apikey`, and as bearer token
//! either the same key or a second key.
//!
//! Invariants
//! - Both must be valid keys with the required scope. The second key never gives access to more than the first.

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

/// Passes a request on with its caller. Answers 401 without a valid key, and 403 without the required scope.
pub(crate) async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Result<Response, Fault> {
    let from = client(request.extensions(), request.headers(), &api.settings.http.trusted_proxies);
    let (first, second) = match keys(request.headers()) {
        Ok(keys) => keys,
        Err(fault) => {
            let shown =
                ["apikey", header::AUTHORIZATION.as_str()].iter().any(|name| request.headers().contains_key(*name));
            if shown {
                auth::check_address(&api, from)?;
            }
            api.failures.note(from, if shown { Reason::Malformed } else { Reason::Missing }, Instant::now());
            return Err(fault);
        }
    };
    let (own, shown) = callers(&api, from, first, second).await?;
    let needed = access::needed_scope(request.method(), "/rest/v1");
    // A response with the changed rows is also a read, so it needs the scope `read` too.
    let read = wants_rows(request.headers()).then_some(Scope::Read);
    for scope in [Some(needed), read].into_iter().flatten() {
        if ![&own, &shown].iter().all(|caller| caller.scopes.allows(scope)) {
            let detail = format!("this request needs a key with the scope {}", scope.name());
            return Err(Problem::new(Code::Forbidden, detail).into());
        }
    }
    let workspace = shown.workspace;
    request.extensions_mut().insert(shown);
    Ok(api.pace.run(workspace, request, next).await?)
}

/// Whether the client requests rows in the response. Invalid headers count as no; the handler refuses them.
fn wants_rows(headers: &HeaderMap) -> bool {
    super::wanted(headers).is_ok_and(|wanted| wanted.rows)
}

/// The keys of a request: that in `apikey`, and the bearer token if it is a different key.
fn keys(headers: &HeaderMap) -> Result<(Secret, Option<Secret>), Fault> {
    let first = one(headers, "apikey")?.map(key).transpose()?;
    let second = one(headers, header::AUTHORIZATION.as_str())?.map(bearer).transpose()?;
    match (first, second) {
        (None, None) => Err(Fault::unauthenticated("the request has no key")),
        (Some(own), Some(shown)) if !own.is(&shown) => Ok((own, Some(shown))),
        (Some(one), _) | (None, Some(one)) => Ok((one, None)),
    }
}

/// The caller of the key in `apikey`, and that of the bearer token. Without a second key both are the same caller.
async fn callers(api: &Api, from: IpAddr, own: Secret, shown: Option<Secret>) -> Result<(Caller, Caller), Fault> {
    let own = auth::admit(api, from, &own).await?;
    let Some(shown) = shown else { return Ok((own.clone(), own)) };
    let shown = auth::admit(api, from, &shown).await?;
    if !is_within(shown.workspace, own.workspace) {
        return Err(Fault::unauthenticated("the bearer token belongs to another workspace than the apikey"));
    }
    Ok((own, shown))
}

/// The value of a header that may occur once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Fault> {
    let mut given = headers.get_all(name).iter();
    match (given.next(), given.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            value.to_str().map(Some).map_err(|_| Fault::unauthenticated(format!("{name} is not a key")))
        }
        (Some(_), Some(_)) => Err(Fault::unauthenticated(format!("{name} was sent twice: send it once"))),
    }
}

fn bearer(value: &str) -> Result<Secret, Fault> {
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => key(token.trim()),
        _ => Err(Fault::unauthenticated("Authorization must be `Bearer KEY`")),
    }
}

fn key(text: &str) -> Result<Secret, Fault> {
    Secret::parse(text).map_err(|_| match auth::is_json_web_token(text) {
        true => Fault::unauthenticated(auth::JSON_WEB_TOKEN_REFUSED),
        false => Fault::unauthenticated("the text is not a key: a key begins with fbk_"),
    })
}
