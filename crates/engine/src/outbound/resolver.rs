//! From a name to addresses that may be called.
//!
//! Invariants
//! - One forbidden answer refuses the name: a mixed answer is an attack or a mistake.
//! - What is handed over is what was checked, and the connection goes there: there is no second
//!   question that could be answered otherwise.
//! - A workspace has few questions open at a time, so that slow names hold up only their owner.
//!
//! Not here: addresses written in a URL, which never come here (`guard`).

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::guard::Guard;

/// Answers a name with its addresses.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// How many names a client resolves at a time. The system's resolver blocks a thread for each,
/// and goes on doing so when nobody waits any more.
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
pub(super) struct Unknown;

/// The name has an address that may not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name has an address that is not public")]
pub(super) struct NotPublic;

/// The name has an address that is never to be called, whatever opens the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name has an address that is closed")]
pub(super) struct Closed;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A resolver that answers only with what may be called.
#[derive(Clone)]
pub(super) struct Checked {
    lookup: Lookup,
    guard: Arc<Guard>,
    /// Asked only for names that an operator's entry opens, whose addresses are not checked.
    opened: bool,
    permits: Arc<Semaphore>,
}

impl Checked {
    pub(super) fn new(lookup: Lookup, guard: Arc<Guard>, opened: bool) -> Self {
        Self { lookup, guard, opened, permits: Arc::new(Semaphore::new(MAX_OPEN_LOOKUPS)) }
    }

    async fn addresses(self, name: String) -> Result<Vec<SocketAddr>, Error> {
        let permit = Arc::clone(&self.permits).acquire_owned().await?;
        let question = (self.lookup)(name.clone());
        // In a task of its own: a caller that gives up must not free the permit of a thread in use.
        let answer = tokio::spawn(async move {
            let answer = question.await;
            drop(permit);
            answer
        });
        let addresses = answer.await?.map_err(|_| Unknown)?;
        if addresses.is_empty() {
            return Err(Unknown.into());
        }
        if addresses.iter().any(|address| self.guard.is_closed(*address)) {
            return Err(Closed.into());
        }
        if !self.opened && !addresses.iter().all(|address| self.guard.permits(*address)) {
            return Err(NotPublic.into());
        }
        Ok(addresses.into_iter().take(MAX_ADDRESSES).map(|address| SocketAddr::new(address, 0)).collect())
    }
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = self.clone().addresses(name.as_str().to_owned());
        Box::pin(async move { Ok(Box::new(addresses.await?.into_iter()) as Addrs) })
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("opened", &self.opened).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A resolver that gives each answer once, in turn.
    fn scripted(opened: bool, answers: &[&[&str]]) -> Checked {
        let answers: Vec<Vec<IpAddr>> =
            answers.iter().rev().map(|all| all.iter().map(|a| a.parse().expect("an address")).collect()).collect();
        let answers = Mutex::new(answers);
        let lookup: Lookup = Arc::new(move |_| {
            let next = answers.lock().expect("no test panics while holding it").pop();
            Box::pin(async move { next.ok_or_else(|| io::Error::other("no such name")) })
        });
        Checked::new(lookup, Arc::new(Guard::default()), opened)
    }

    async fn ask(resolver: &Checked) -> String {
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
    async fn an_answer_that_changes_is_checked_anew() {
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
