//! Calls that may be made at most once: a permit, the outbound rules and the secrets first, then the record that it
//! begins, then the call.
//!
//!     perform ──permit free, rules known, no secrets──────▶ record ──commit──▶ send
//!        └────▶ read the rules, wait for the permit, open the secrets ────▲
//!
//! Invariants
//! - What only waits to be sent is not recorded as begun: a cancel, a shutdown or a crash then leaves it as if it had
//!   never been tried.
//! - After the record, a stop in this process goes by whether a byte may have left (`outbound::Sent`). After a crash
//!   the record decides.
//!
//! What happens if this process dies: before the record the next owner performs the node; after it the node's end is
//! UNKNOWN.
//!
//! Not here: calls that may be repeated (`perform`), what UNKNOWN means (`kernel::run`).

use std::sync::Arc;

use kernel::ids::WorkspaceId;
use kernel::run::failure::Failure;
use serde_json::Value;
use tokio::time::Instant;

use super::Driver;
use super::flight::{Outgoing, Stage};
use super::frame::At;
use super::perform::Brought;
use crate::embedded::Shared;
use crate::embedded::permits::Permit;
use crate::insist::Pauses;
use crate::nodes::call::{Call, Prepared, Unprepared};

/// A call with all that it needs.
pub(super) struct Ready {
    prepared: Prepared,
    permit: Permit,
    input: Value,
}

impl Shared {
    /// Waits until a call may be sent, and has all that it needs. While its secrets cannot be opened it holds no
    /// permit: that may take until the next restart, and others call meanwhile. Whoever may no longer act for the run
    /// drops this.
    async fn permitted(&self, workspace: WorkspaceId, mut call: Box<dyn Call>) -> Result<(Prepared, Permit), Failure> {
        let (mut pauses, mut warned) = (Pauses::default(), false);
        loop {
            call.warm_up(&self.means).await;
            let permit = self.permits.acquire(workspace).await;
            let error = match call.prepare(&self.means).await {
                Ok(prepared) => return Ok((prepared, permit)),
                Err(Unprepared::Failed(failure)) => return Err(failure),
                Err(Unprepared::NotNow(same, error)) => {
                    call = same;
                    error
                }
            };
            drop(permit);
            if !std::mem::replace(&mut warned, true) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "A call waits: its secrets cannot be opened");
            }
            pauses.pause().await;
        }
    }
}

impl Driver {
    /// Makes a call that may be repeated. How long it takes counts from its permit.
    pub(super) fn call(&mut self, at: At, call: Box<dyn Call>) {
        let (shared, workspace) = (Arc::clone(&self.shared), self.frame(at.frame).begun.workspace);
        let calling = async move {
            let permitted = shared.permitted(workspace, call).await;
            let since = Instant::now();
            let result = match permitted {
                Ok((prepared, _permit)) => prepared.send().await,
                Err(failure) => Err(failure),
            };
            (Brought::Result(result), since.elapsed())
        };
        self.calls.push((at, Outgoing::timed(Stage::Goes, calling)));
    }

    /// Begins a call that may be made at most once: at once if nothing is to be waited for.
    pub(super) fn call_once(&mut self, at: At, attempt: u32, call: Box<dyn Call>, input: Value) {
        let (shared, workspace) = (Arc::clone(&self.shared), self.frame(at.frame).begun.workspace);
        let call = match shared.permits.try_acquire(workspace) {
            None => call,
            Some(permit) => match call.prepare_now(&shared.means) {
                Ok(prepared) => return self.send_once(at, attempt, Ready { prepared, permit, input }),
                Err(call) => call,
            },
        };
        let preparing = async move {
            match shared.permitted(workspace, call).await {
                Ok((prepared, permit)) => Brought::Ready(Box::new(Ready { prepared, permit, input })),
                Err(failure) => Brought::Result(Err(failure)),
            }
        };
        self.calls.push((at, Outgoing::new(Stage::Waits, preparing)));
    }

    /// A call that waited may be sent now, unless this process begins nothing any more.
    pub(super) fn ready_once(&mut self, at: At, ready: Ready) {
        if self.draining {
            return;
        }
        let attempt = self.frame(at.frame).attempt(at).unwrap_or(1);
        self.send_once(at, attempt, ready);
    }

    fn send_once(&mut self, at: At, attempt: u32, ready: Ready) {
        let Ready { prepared, permit, input } = ready;
        self.running(at, attempt, Some(input), None);
        let sent = prepared.sent();
        let sending = async move {
            let _permit = permit;
            Brought::Result(prepared.send().await)
        };
        self.calls.push((at, Outgoing::new(Stage::Goes, sending).once(sent)));
    }

    /// Nothing more is begun. What only waits to be sent, or is made ready, is broken off: the run's next owner
    /// performs it. It is ready again, so that the run is not parked.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        let mut stopped = Vec::new();
        self.calls.retain(|(at, outgoing)| {
            stopped.extend(outgoing.stage.waits().then_some(*at));
            !outgoing.stage.waits()
        });
        self.handles.retain(|at, flight| {
            if flight.stage.waits() {
                flight.handle.abort();
                stopped.push(*at);
            }
            !flight.stage.waits()
        });
        for at in stopped {
            let attempt = self.frame(at.frame).attempt(at).unwrap_or(1);
            self.ready.push_back((at, attempt));
        }
    }
}
