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

use kernel::ids::WorkspaceId;
use kernel::run::failure::Failure;
use serde_json::Value;
use tokio::task::AbortHandle;

use super::Driver;
use super::frame::At;
use super::perform::{Brought, Outgoing};
use crate::embedded::Shared;
use crate::embedded::permits::Permit;
use crate::insist::Pauses;
use crate::nodes::{Call, Prepared, Unprepared};
use crate::outbound::Sent;

/// Something in flight.
pub(super) struct Flight {
    pub(super) handle: AbortHandle,
    /// Set when a call that may be made at most once is sent; none for everything else.
    sent: Option<Sent>,
    /// It only waits to be sent or is made ready, and nothing is recorded of it.
    waits: bool,
    /// It is made ready.
    computes: bool,
}

/// A call that is not recorded yet, with what its record is to show.
pub(super) struct Unsent {
    call: Call,
    input: Value,
}

/// A call with all that it needs.
pub(super) struct Ready {
    prepared: Prepared,
    permit: Permit,
    input: Value,
}

impl Flight {
    pub(super) fn new(handle: AbortHandle) -> Flight {
        Flight { handle, sent: None, waits: false, computes: false }
    }

    /// The flight of what goes out; told apart before it leaves.
    pub(super) fn of(outgoing: &Outgoing) -> impl FnOnce(AbortHandle) -> Flight + use<> {
        let sent = match outgoing {
            Outgoing::Send(prepared, _) => Some(prepared.sent()),
            _ => None,
        };
        let computes = matches!(outgoing, Outgoing::Compute(_));
        let waits = computes || matches!(outgoing, Outgoing::Prepare(_));
        move |handle| Flight { handle, sent, waits, computes }
    }

    /// Is a node only made ready by it?
    pub(super) fn computes(&self) -> bool {
        self.computes
    }

    /// May something have been done for it?
    pub(super) fn has_begun(&self) -> bool {
        !self.waits && self.sent.as_ref().is_none_or(Sent::is_set)
    }
}

impl Shared {
    /// A permit for a call. The rules of the workspace are read first, so that no permit is held while the database
    /// does not answer.
    async fn permit_to_call(&self, workspace: WorkspaceId) -> Permit {
        // Rules that cannot be read fail the call when it is prepared.
        drop(self.outbound.policy(workspace).await);
        self.permits.acquire(workspace).await
    }

    /// Waits until a call may be sent, and has all that it needs. While its secrets cannot be opened it holds no
    /// permit: that may take until the next restart, and others call meanwhile. Whoever may no longer act for the run
    /// drops this.
    pub(super) async fn permitted(&self, mut call: Call) -> Result<(Prepared, Permit), Failure> {
        let (mut pauses, mut warned) = (Pauses::default(), false);
        loop {
            let permit = self.permit_to_call(call.workspace).await;
            let error = match call.prepare(&self.outbound, &self.vault).await {
                Ok(prepared) => return Ok((prepared, permit)),
                Err(Unprepared::Failed(failure)) => return Err(failure),
                Err(Unprepared::NotNow(same, error)) => {
                    call = *same;
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

    /// The same for a call whose record comes next.
    pub(super) async fn prepare(&self, unsent: Unsent) -> Brought {
        let Unsent { call, input } = unsent;
        match self.permitted(call).await {
            Ok((prepared, permit)) => Brought::Ready(Box::new(Ready { prepared, permit, input })),
            Err(failure) => Brought::Result(Err(failure)),
        }
    }
}

impl Driver {
    /// Begins a call that may be made at most once: at once if nothing is to be waited for.
    pub(super) fn call_once(&mut self, at: At, attempt: u32, call: Call, input: Value) {
        let policy = if call.takes_secrets() { None } else { self.shared.outbound.known_policy(call.workspace) };
        let permitted = policy.and_then(|policy| Some((policy, self.shared.permits.try_acquire(call.workspace)?)));
        match permitted {
            Some((policy, permit)) => {
                let prepared = call.prepare_plain(policy);
                self.send_once(at, attempt, Ready { prepared, permit, input });
            }
            None => self.calls.push((at, Outgoing::Prepare(Box::new(Unsent { call, input })))),
        }
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
        self.calls.push((at, Outgoing::Send(Box::new(prepared), permit)));
    }

    /// Nothing more is begun. What only waits to be sent, or is made ready, is broken off: the run's next owner
    /// performs it. It is ready again, so that the run is not parked.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        let mut stopped = Vec::new();
        self.calls.retain(|(at, outgoing)| {
            let waits = matches!(outgoing, Outgoing::Prepare(_) | Outgoing::Compute(_));
            stopped.extend(waits.then_some(*at));
            !waits
        });
        self.handles.retain(|at, flight| {
            if flight.waits {
                flight.handle.abort();
                stopped.push(*at);
            }
            !flight.waits
        });
        for at in stopped {
            let attempt = self.frame(at.frame).attempt(at).unwrap_or(1);
            self.ready.push_back((at, attempt));
        }
    }
}
