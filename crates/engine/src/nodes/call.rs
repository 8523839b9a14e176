//! Calls: work of a node that leaves this process. This file has the parts that all node kinds with calls share.
//!
//!     Work::Call ──Caller──▶ Call ──prepare──▶ PreparedCall ──send──▶ result
//!
//! Invariants
//! - A call waits for everything except the exchange itself in `prepare`, before there is a `PreparedCall`. The engine
//!   records that an at-most-once call has begun between `prepare` and `send`.
//! - A call, prepared or not, may be dropped at any time. Dropping it stops its work.
//!
//! Not here: the calls themselves (a file for each kind), permits and the record that a call has begun (the engines).

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use kernel::definition::Node;
use kernel::expression::Scope;
use kernel::run::failure::Failure;
use kernel::signals::trace::TraceParent;
use store::Store;
use store::queue::claim::Begun;

use super::NodeOutput;
use crate::liveness::Liveness;
use crate::outbound::{Outbound, SentFlag};
use crate::vault::{self, Vault};

/// The clients and the store that a process uses for calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CallResources {
    pub store: Store,
    pub outbound: Outbound,
    pub vault: Vault,
    pub liveness: Arc<Liveness>,
}

/// The node, or the loop item, for which a call is made.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub spec: &'a Node,
    pub scope: &'a Scope,
    pub begun: &'a Begun,
    pub iteration: i32,
    pub trace: TraceParent,
}

/// A call to be made. It is the same at every attempt, in any process.
pub trait Call: fmt::Debug + Send + Sync {
    /// Loads slow data into a cache, so that no permit is held during the load.
    fn warm_up<'a>(&'a self, _resources: &'a CallResources) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Prepares the call for sending. Returns the call itself if the preparation would have to wait.
    fn prepare_now(self: Box<Self>, resources: &CallResources) -> Result<PreparedCall, Box<dyn Call>>;

    /// Prepares the call for sending.
    fn prepare<'a>(self: Box<Self>, resources: &'a CallResources) -> BoxFuture<'a, Result<PreparedCall, PrepareError>>;
}

/// Builds a call once its node is known.
pub struct CallBuilder(Box<BuildCall>);

type BuildCall = dyn FnOnce(&Caller<'_>) -> Box<dyn Call> + Send;

impl CallBuilder {
    pub(super) fn new<C: Call + 'static>(make: impl FnOnce(&Caller<'_>) -> C + Send + 'static) -> CallBuilder {
        CallBuilder(Box::new(move |caller| Box::new(make(caller))))
    }

    pub fn call(self, caller: &Caller<'_>) -> Box<dyn Call> {
        (self.0)(caller)
    }
}

impl fmt::Debug for CallBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallBuilder")
    }
}

/// Why a call was not prepared.
#[derive(Debug)]
pub enum PrepareError {
    Failed(Failure),
    /// The secrets of the call cannot be decrypted at the moment. This does not count as an attempt: the same call may
    /// be prepared later.
    SecretsUnavailable(Box<dyn Call>, vault::Error),
}

impl From<Failure> for PrepareError {
    fn from(failure: Failure) -> PrepareError {
        PrepareError::Failed(failure)
    }
}

/// A call that is ready to be sent. Only the exchange itself may still wait.
pub struct PreparedCall {
    sent: SentFlag,
    exchange: BoxFuture<'static, Result<NodeOutput, Failure>>,
}

impl PreparedCall {
    pub(super) fn new(
        sent: SentFlag,
        exchange: impl Future<Output = Result<NodeOutput, Failure>> + Send + 'static,
    ) -> PreparedCall {
        PreparedCall { sent, exchange: Box::pin(exchange) }
    }

    /// A flag that is set when part of the request may have left this process.
    pub fn sent(&self) -> SentFlag {
        self.sent.clone()
    }

    /// Sends the request and reads the response.
    pub async fn send(self) -> Result<NodeOutput, Failure> {
        self.exchange.await
    }
}

impl fmt::Debug for PreparedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedCall").field("sent", &self.sent).finish_non_exhaustive()
    }
}
