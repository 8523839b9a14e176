//! Work in flight: calls, reads of answers, children being started or loaded.
//!
//! Invariants
//! - Work that leaves this process is launched only after the record that starts its node is committed. A preparation
//!   and a call that waits to be sent have no such record yet. If they are dropped, they count as never tried.
//!
//! Not here: handling the results (`perform`), calls made at most once (`at_most_once`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kernel::run::failure::Failure;
use store::run::attempt::Ownership;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::TreeDriver;
use super::frame::NodeRef;
use super::perform::FlightResult;
use crate::embedded::Shared;
use crate::outbound::SentFlag;

/// How far work in flight has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlightStage {
    /// The node is being prepared on its own thread.
    Preparing,
    /// The call waits to be sent.
    WaitingToSend,
    /// The work runs, and its start is recorded.
    Running,
}

impl FlightStage {
    /// True while the node is only being prepared.
    pub(super) fn is_preparing(self) -> bool {
        self == FlightStage::Preparing
    }

    /// True while its start is not recorded.
    pub(super) fn is_unrecorded(self) -> bool {
        self != FlightStage::Running
    }
}

/// Work for a node that is launched after the next commit.
pub(super) struct DeferredWork {
    pub(super) stage: FlightStage,
    /// Set when a call that may be made at most once is sent. None for all other work.
    sent: Option<SentFlag>,
    /// The result, and how long it took.
    work: BoxFuture<'static, (FlightResult, Duration)>,
}

/// Work in flight.
pub(super) struct InFlight {
    pub(super) handle: AbortHandle,
    sent: Option<SentFlag>,
    pub(super) stage: FlightStage,
}

impl DeferredWork {
    pub(super) fn new(stage: FlightStage, work: impl Future<Output = FlightResult> + Send + 'static) -> DeferredWork {
        let timed = async move {
            let since = Instant::now();
            (work.await, since.elapsed())
        };
        DeferredWork::timed(stage, timed)
    }

    /// Like `new`, for work that measures its own duration.
    pub(super) fn timed(
        stage: FlightStage,
        work: impl Future<Output = (FlightResult, Duration)> + Send + 'static,
    ) -> DeferredWork {
        DeferredWork { stage, sent: None, work: Box::pin(work) }
    }

    /// Marks this work as a call that may be made at most once. `sent` is set when the call is sent.
    pub(super) fn once(self, sent: SentFlag) -> DeferredWork {
        DeferredWork { sent: Some(sent), ..self }
    }
}

impl InFlight {
    /// True if the work may have had an effect outside this process.
    pub(super) fn has_begun(&self) -> bool {
        !self.stage.is_unrecorded() && self.sent.as_ref().is_none_or(SentFlag::is_set)
    }
}

impl TreeDriver {
    /// Launches work for a node after the next commit.
    pub(super) fn launch_after_commit<F>(&mut self, at: NodeRef, work: impl FnOnce(Arc<Shared>, Ownership) -> F)
    where
        F: Future<Output = Result<FlightResult, Failure>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.shared), self.hold);
        let work = work.map(|done| done.unwrap_or_else(|failure| FlightResult::Result(Err(failure))));
        self.calls.push((at, DeferredWork::new(FlightStage::Running, work)));
    }

    pub(super) fn launch(&mut self, at: NodeRef, work: DeferredWork) {
        let span = self.spans.get(&at).map_or_else(tracing::Span::none, |(span, _)| span.clone());
        let DeferredWork { stage, sent, work } = work;
        let work = async move {
            let (result, took) = work.await;
            (at, result, took)
        };
        let handle = self.in_flight.spawn(work.instrument(span));
        self.handles.insert(at, InFlight { handle, sent, stage });
    }

    /// How many nodes are being prepared on threads.
    pub(super) fn computing(&self) -> usize {
        let waiting = self.calls.iter().filter(|(_, work)| work.stage.is_preparing()).count();
        waiting + self.handles.values().filter(|flight| flight.stage.is_preparing()).count()
    }

    /// Drops the preparation of a node, if there is one, because its result is no longer needed.
    pub(super) fn stop_computing(&mut self, at: NodeRef) {
        self.calls.retain(|(call, work)| *call != at || !work.stage.is_preparing());
        if self.handles.get(&at).is_some_and(|flight| flight.stage.is_preparing())
            && let Some(flight) = self.handles.remove(&at)
        {
            flight.handle.abort();
        }
    }
}
