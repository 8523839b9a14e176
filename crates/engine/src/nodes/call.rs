//! Work that leaves this process: what every kind that calls has in common.
//!
//!     Work::Call ──Caller──▶ Call ──prepare──▶ Prepared ──send──▶ result
//!
//! Invariants
//! - Whatever is to be waited for comes before `Prepared`: a call that may be made at most once is recorded as begun
//!   between the two.
//! - A call, and what it prepared, may be dropped at any time; that stops its work.
//!
//! Not here: the calls themselves (a file for each kind), permits and records (the engines).

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use kernel::definition::Node;
use kernel::expression::Scope;
use kernel::run::failure::Failure;
use kernel::signals::trace::TraceParent;
use store::Store;
use store::queue::claim::Begun;

use super::Done;
use crate::outbound::{Outbound, Sent};
use crate::pulse::Pulse;
use crate::vault::{self, Vault};

/// What a process calls with. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Means {
    pub store: Store,
    pub outbound: Outbound,
    pub vault: Vault,
    pub pulse: Arc<Pulse>,
}

/// The node, or the item of a loop, that a call is made for.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub spec: &'a Node,
    pub scope: &'a Scope,
    pub begun: &'a Begun,
    pub iteration: i32,
    pub trace: TraceParent,
}

/// A call to be made. It is the same at every attempt, whoever makes it.
pub trait Call: fmt::Debug + Send + Sync {
    /// Reads what takes long to read and is kept, so that no permit is held meanwhile.
    fn warm_up<'a>(&'a self, _means: &'a Means) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Makes it ready to be sent, if nothing is to be waited for.
    fn prepare_now(self: Box<Self>, means: &Means) -> Result<Prepared, Box<dyn Call>>;

    /// Makes it ready to be sent.
    fn prepare<'a>(self: Box<Self>, means: &'a Means) -> BoxFuture<'a, Result<Prepared, Unprepared>>;
}

/// Makes a call once it is known for whom.
pub struct Make(Box<Making>);

type Making = dyn FnOnce(&Caller<'_>) -> Box<dyn Call> + Send;

impl Make {
    pub(super) fn new<C: Call + 'static>(make: impl FnOnce(&Caller<'_>) -> C + Send + 'static) -> Make {
        Make(Box::new(move |caller| Box::new(make(caller))))
    }

    pub fn call(self, caller: &Caller<'_>) -> Box<dyn Call> {
        (self.0)(caller)
    }
}

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Make")
    }
}

/// Why a call was not prepared.
#[derive(Debug)]
pub enum Unprepared {
    Failed(Failure),
    /// Its secrets cannot be opened now. That is no attempt: the same call may be prepared later.
    NotNow(Box<dyn Call>, vault::Error),
}

impl From<Failure> for Unprepared {
    fn from(failure: Failure) -> Unprepared {
        Unprepared::Failed(failure)
    }
}

/// A call with all that it needs: nothing is waited for but the exchange itself.
pub struct Prepared {
    sent: Sent,
    exchange: BoxFuture<'static, Result<Done, Failure>>,
}

impl Prepared {
    pub(super) fn new(sent: Sent, exchange: impl Future<Output = Result<Done, Failure>> + Send + 'static) -> Prepared {
        Prepared { sent, exchange: Box::pin(exchange) }
    }

    /// Is set when something of it may have left this process.
    pub fn sent(&self) -> Sent {
        self.sent.clone()
    }

    /// Sends it, and takes the answer.
    pub async fn send(self) -> Result<Done, Failure> {
        self.exchange.await
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("sent", &self.sent).finish_non_exhaustive()
    }
}
