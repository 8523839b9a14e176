//! Who asks for the table: the client sends its key twice, as `apikey` and as a bearer token, or another key as the second.
//!
//! Invariants
//! - Whatever is shown must be a key. The second never widens what the first may see, and both must have the scope.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use kernel::access::is_within;
use store::key::Secret;

use super::fault::Fault;
use crate::http::auth::{self, Caller};
use crate::http::{Api, Code, Problem, access};

/// Lets a request through with its caller, or answers 401, or 403 to one without the scope it takes.
pub(crate) async fn require(State(api): State<Api>, mut request: Request, next: Next) -> Result<Response, Fault> {
    let (own, shown) = callers(&api, request.headers()).await?;
    let scope = access::needed(request.method(), "/rest/v1");
    if ![&own, &shown].iter().all(|caller| caller.scopes.allow(scope)) {
        let detail = format!("this needs a key with the scope {}", scope.name());
        return Err(Problem::new(Code::Forbidden, detail).into());
    }
    request.extensions_mut().insert(shown);
    Ok(next.run(request).await)
}

/// Whose `apikey` it is, and who is meant: the bearer, if there is one.
async fn callers(api: &Api, headers: &HeaderMap) -> Result<(Caller, Caller), Fault> {
    let first = one(headers, "apikey")?.map(key).transpose()?;
    let second = one(headers, header::AUTHORIZATION.as_str())?.map(bearer).transpose()?;
    let (own, shown) = match (first, second) {
        (None, None) => return Err(Fault::unauthenticated("no key was given")),
        (Some(own), Some(shown)) if !own.is(&shown) => (own, shown),
        (Some(one), _) | (None, Some(one)) => {
            let caller = api.keys.caller(&api.store, &one).await?;
            return Ok((caller.clone(), caller));
        }
    };
    let own = api.keys.caller(&api.store, &own).await?;
    let shown = api.keys.caller(&api.store, &shown).await?;
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
