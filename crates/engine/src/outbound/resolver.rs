//! Resolves a name to addresses that may be called.
//!
//! Invariants
//! - If one address of a name is forbidden, the whole name is refused: a mixed result is an attack or a mistake.
//! - The connection goes to the addresses that were checked. There is no second lookup that could give another result.
//! - A workspace has few lookups in progress at a time, so that slow names delay only that workspace.
//!
//! Not here: addresses in a URL, which are never resolved (`guard`).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::guard::Guard;

/// Resolves a name to its addresses.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// How many names a client resolves at a time. The system's resolver blocks a thread for each, even after the caller
/// has given up.
const MAX_OPEN_LOOKUPS: usize = 16;

/// How many of a name's addresses are tried.
const MAX_ADDRESSES: usize = 8;

/// The system's resolver.
pub(super) fn system() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let answers = tokio::net::lookup_host((name, 0)).await?;
            Ok(answers.map(|answer| answer.ip()).collect())
        })
    })
}

/// The name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name has no address")]
pub(super) struct NoAddress;

/// The name has an address that is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name has an address that is not public")]
pub(super) struct PrivateAddress;

/// The name has an address that a `deny` entry blocks, even if an `allow` entry names the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name has an address that a deny entry blocks")]
pub(super) struct ClosedAddress;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A resolver that returns only addresses that may be called.
#[derive(Clone)]
pub(super) struct GuardedResolver {
    lookup: Lookup,
    guard: Arc<Guard>,
    /// True if `allow` entries name the hosts. Their addresses need not be public then, but `deny` entries still apply.
    opened: bool,
    permits: Arc<Semaphore>,
}

impl GuardedResolver {
    pub(super) fn new(lookup: Lookup, guard: Arc<Guard>, opened: bool) -> Self {
        Self { lookup, guard, opened, permits: Arc::new(Semaphore::new(MAX_OPEN_LOOKUPS)) }
    }

    async fn addresses(self, name: String) -> Result<Vec<SocketAddr>, Error> {
        let permit = Arc::clone(&self.permits).acquire_owned().await?;
        let question = (self.lookup)(name.clone());
        // The lookup has its own task: a caller that gives up must not free the permit while the thread is busy.
        let answer = tokio::spawn(async move {
            let answer = question.await;
            drop(permit);
            answer
        });
        let addresses = answer.await?.map_err(|_| NoAddress)?;
        if addresses.is_empty() {
            return Err(NoAddress.into());
        }
        if addresses.iter().any(|address| self.guard.is_closed(*address)) {
            return Err(ClosedAddress.into());
        }
        if !self.opened && !addresses.iter().all(|address| self.guard.permits(*address)) {
            return Err(PrivateAddress.into());
        }
        Ok(addresses.into_iter().take(MAX_ADDRESSES).map(|address| SocketAddr::new(address, 0)).collect())
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = self.clone().addresses(name.as_str().to_owned());
        Box::pin(async move { Ok(Box::new(addresses.await?.into_iter()) as Addrs) })
    }
}

impl fmt::Debug for GuardedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedResolver").field("opened", &self.opened).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A resolver that returns each result once, in order.
    fn scripted(opened: bool, answers: &[&[&str]]) -> GuardedResolver {
        let answers: Vec<Vec<IpAddr>> =
            answers.iter().rev().map(|all| all.iter().map(|a| a.parse().expect("an address")).collect()).collect();
        let answers = Mutex::new(answers);
        let lookup: Lookup = Arc::new(move |_| {
            let next = answers.lock().expect("no test panics while holding it").pop();
            Box::pin(async move { next.ok_or_else(|| io::Error::other("no such name")) })
        });
        GuardedResolver::new(lookup, Arc::new(Guard::default()), opened)
    }

    async fn ask(resolver: &GuardedResolver) -> String {
        match resolver.clone().addresses("a.example".to_owned()).await {
            Ok(addresses) => addresses.iter().map(|a| a.ip().to_string()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    const REFUSED: &str = "the name has an address that is not public";

    #[tokio::test]
    async fn one_forbidden_answer_refuses_the_name() {
        for (answers, expected) in [
            (&["1.1.1.1"][..], "1.1.1.1"),
            (&["1.1.1.1", "2606:4700:4700::1111"], "1.1.1.1 2606:4700:4700::1111"),
            (&["127.0.0.1"], REFUSED),
            (&["1.1.1.1", "10.0.0.1"], REFUSED),
            (&["10.0.0.1", "1.1.1.1"], REFUSED),
            (&["1.1.1.1", "::1"], REFUSED),
            (&["::ffff:127.0.0.1"], REFUSED),
            (&["64:ff9b::a9fe:a9fe"], REFUSED),
            (&["169.254.169.254"], REFUSED),
            (&[], "the name has no address"),
        ] {
            assert_eq!(ask(&scripted(false, &[answers])).await, expected, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_changed_answer_is_checked_again() {
        let resolver = scripted(false, &[&["1.1.1.1"], &["127.0.0.1"]]);
        assert_eq!(ask(&resolver).await, "1.1.1.1");
        assert_eq!(ask(&resolver).await, REFUSED);
        assert_eq!(ask(&resolver).await, "the name has no address");
    }

    #[tokio::test]
    async fn an_opened_name_may_have_any_address() {
        assert_eq!(ask(&scripted(true, &[&["127.0.0.1", "1.1.1.1"]])).await, "127.0.0.1 1.1.1.1");
    }
}
