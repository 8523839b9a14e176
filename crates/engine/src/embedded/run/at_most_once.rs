//! Makes calls that may be made at most once. The process first gets a permit, the outbound rules and the secrets, then
//! records that the call begins, and then sends it.
//!
//!     perform ──permit free, rules known, no secrets──────▶ record ──commit──▶ send
//!        └────▶ read the rules, wait for the permit, open the secrets ────▲
//!
//! Invariants
//! - A call that only waits to be sent is not recorded as begun. After a cancel, a shutdown or a crash, it is as if the
//!   call had never been tried.
//! - If the call is stopped after the record, it counts as begun only if a byte may have left this process
//!   (`outbound::SentFlag`). After a crash, every recorded call counts as begun.
//!
//! What happens if this process dies: before the record, the next owner makes the call. After it, the node ends as
//! UNKNOWN.
//!
//! Not here: calls that may be repeated (`perform`), what UNKNOWN means (`kernel::run`).

use std::sync::Arc;

use kernel::ids::WorkspaceId;
use kernel::run::failure::Failure;
use serde_json::Value;
use tokio::time::Instant;

use super::TreeDriver;
use super::frame::NodeRef;
use super::in_flight::{DeferredWork, FlightStage};
use super::perform::FlightResult;
use crate::backoff::Backoff;
use crate::embedded::Shared;
use crate::embedded::permits::Permit;
use crate::nodes::call::{Call, PrepareError, PreparedCall};

/// A prepared call with its permit.
pub(super) struct ReadyCall {
    prepared: PreparedCall,
    permit: Permit,
    input: Value,
}

impl Shared {
    /// Waits until a call is prepared and has a permit. While the call's secrets cannot be decrypted, it holds no
    /// permit: that may last until the next restart, and other calls need the permit. A process that may no longer act
    /// for the run drops this future.
    async fn prepare_with_permit(
        &self,
        workspace: WorkspaceId,
        mut call: Box<dyn Call>,
    ) -> Result<(PreparedCall, Permit), Failure> {
        let (mut backoff, mut warned) = (Backoff::default(), false);
        loop {
            call.warm_up(&self.resources).await;
            let permit = self.permits.acquire(workspace).await;
            let error = match call.prepare(&self.resources).await {
                Ok(prepared) => return Ok((prepared, permit)),
                Err(PrepareError::Failed(failure)) => return Err(failure),
                Err(PrepareError::SecretsUnavailable(same, error)) => {
                    call = same;
                    error
                }
            };
            drop(permit);
            if !std::mem::replace(&mut warned, true) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "Call waits: its secrets cannot be decrypted; check secrets.key_file");
            }
            backoff.wait().await;
        }
    }
}

impl TreeDriver {
    /// Makes a call that may be repeated. Its duration is measured from the moment when it has a permit.
    pub(super) fn call_repeatable(&mut self, at: NodeRef, call: Box<dyn Call>) {
        let (shared, workspace) = (Arc::clone(&self.shared), self.frame(at.frame).begun.workspace);
        let calling = async move {
            let prepared = shared.prepare_with_permit(workspace, call).await;
            let since = Instant::now();
            let result = match prepared {
                Ok((prepared, _permit)) => prepared.send().await,
                Err(failure) => Err(failure),
            };
            (FlightResult::Result(result), since.elapsed())
        };
        self.calls.push((at, DeferredWork::timed(FlightStage::Running, calling)));
    }

    /// Begins a call that may be made at most once: immediately if a permit is free and the call can be prepared
    /// without waiting.
    pub(super) fn call_at_most_once(&mut self, at: NodeRef, attempt: u32, call: Box<dyn Call>, input: Value) {
        let (shared, workspace) = (Arc::clone(&self.shared), self.frame(at.frame).begun.workspace);
        let call = match shared.permits.try_acquire(workspace) {
            None => call,
            Some(permit) => match call.prepare_now(&shared.resources) {
                Ok(prepared) => return self.send_once(at, attempt, ReadyCall { prepared, permit, input }),
                Err(call) => call,
            },
        };
        let preparing = async move {
            match shared.prepare_with_permit(workspace, call).await {
                Ok((prepared, permit)) => FlightResult::Ready(Box::new(ReadyCall { prepared, permit, input })),
                Err(failure) => FlightResult::Result(Err(failure)),
            }
        };
        self.calls.push((at, DeferredWork::new(FlightStage::WaitingToSend, preparing)));
    }

    /// Sends a call that waited, unless this process is draining.
    pub(super) fn send_once_ready(&mut self, at: NodeRef, ready: ReadyCall) {
        if self.draining {
            return;
        }
        let attempt = self.frame(at.frame).attempt(at).unwrap_or(1);
        self.send_once(at, attempt, ready);
    }

    fn send_once(&mut self, at: NodeRef, attempt: u32, ready: ReadyCall) {
        let ReadyCall { prepared, permit, input } = ready;
        self.record_running(at, attempt, Some(input), None);
        let sent = prepared.sent();
        let sending = async move {
            let _permit = permit;
            FlightResult::Result(prepared.send().await)
        };
        self.calls.push((at, DeferredWork::new(FlightStage::Running, sending).once(sent)));
    }

    /// Starts no further work. Preparations and calls that wait to be sent are dropped: the run's next owner performs
    /// their nodes. These nodes count as ready again, so that the run is not parked.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        let mut stopped = Vec::new();
        self.calls.retain(|(at, work)| {
            stopped.extend(work.stage.is_unrecorded().then_some(*at));
            !work.stage.is_unrecorded()
        });
        self.handles.retain(|at, flight| {
            if flight.stage.is_unrecorded() {
                flight.handle.abort();
                stopped.push(*at);
            }
            !flight.stage.is_unrecorded()
        });
        for at in stopped {
            let attempt = self.frame(at.frame).attempt(at).unwrap_or(1);
            self.ready.push_back((at, attempt));
        }
    }
}
