//! What leaves a run for a while, and comes back: calls, looks, children that are made or found.
//!
//! Invariants
//! - Nothing is launched before the record that starts it is committed. What is only made ready, or waits to be sent,
//!   has no record yet, and may be dropped as if it had never been tried.
//!
//! Not here: what comes back (`perform`), calls made at most once (`once`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use store::run::attempt::Hold;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::Driver;
use super::frame::At;
use super::perform::Brought;
use crate::embedded::Shared;
use crate::outbound::Sent;

/// How far something in flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The node is made ready, on a thread apart.
    Computes,
    /// It waits to be sent.
    Waits,
    /// It is on its way, and recorded.
    Goes,
}

impl Stage {
    /// Is a node only made ready?
    pub(super) fn computes(self) -> bool {
        self == Stage::Computes
    }

    /// Is nothing recorded of it yet?
    pub(super) fn waits(self) -> bool {
        self != Stage::Goes
    }
}

/// What leaves this process for a node, once its start is recorded.
pub(super) struct Outgoing {
    pub(super) stage: Stage,
    /// Set when a call that may be made at most once is sent; none for everything else.
    sent: Option<Sent>,
    /// What comes back, and how long it took.
    work: BoxFuture<'static, (Brought, Duration)>,
}

/// Something in flight.
pub(super) struct Flight {
    pub(super) handle: AbortHandle,
    sent: Option<Sent>,
    pub(super) stage: Stage,
}

impl Outgoing {
    pub(super) fn new(stage: Stage, work: impl Future<Output = Brought> + Send + 'static) -> Outgoing {
        let timed = async move {
            let since = Instant::now();
            (work.await, since.elapsed())
        };
        Outgoing::timed(stage, timed)
    }

    /// The same for work that says itself how long it took.
    pub(super) fn timed(stage: Stage, work: impl Future<Output = (Brought, Duration)> + Send + 'static) -> Outgoing {
        Outgoing { stage, sent: None, work: Box::pin(work) }
    }

    /// The same for a call that may be made at most once.
    pub(super) fn once(self, sent: Sent) -> Outgoing {
        Outgoing { sent: Some(sent), ..self }
    }
}

impl Flight {
    /// May something have been done for it?
    pub(super) fn has_begun(&self) -> bool {
        !self.stage.waits() && self.sent.as_ref().is_none_or(Sent::is_set)
    }
}

impl Driver {
    /// Has something done for a node after the next commit.
    pub(super) fn go<F>(&mut self, at: At, work: impl FnOnce(Arc<Shared>, Hold) -> F)
    where
        F: Future<Output = Brought> + Send + 'static,
    {
        let work = work(Arc::clone(&self.shared), self.hold);
        self.calls.push((at, Outgoing::new(Stage::Goes, work)));
    }

    pub(super) fn launch(&mut self, at: At, outgoing: Outgoing) {
        let span = self.spans.get(&at).map_or_else(tracing::Span::none, |(span, _)| span.clone());
        let Outgoing { stage, sent, work } = outgoing;
        let work = async move {
            let (brought, took) = work.await;
            (at, brought, took)
        };
        let handle = self.in_flight.spawn(work.instrument(span));
        self.handles.insert(at, Flight { handle, sent, stage });
    }

    /// How many nodes are being made ready in flight.
    pub(super) fn computing(&self) -> usize {
        let waiting = self.calls.iter().filter(|(_, outgoing)| outgoing.stage.computes()).count();
        waiting + self.handles.values().filter(|flight| flight.stage.computes()).count()
    }

    /// A node came to its end while it was made ready: nobody needs that any more.
    pub(super) fn stop_computing(&mut self, at: At) {
        self.calls.retain(|(call, outgoing)| *call != at || !outgoing.stage.computes());
        if self.handles.get(&at).is_some_and(|flight| flight.stage.computes())
            && let Some(flight) = self.handles.remove(&at)
        {
            flight.handle.abort();
        }
    }
}
