//! Runs whose owners keep dying. Each waits for this process's solo permit, so that only one such run is active here.
//!
//! Invariants
//! - Only one such run holds the solo permit at a time. It keeps the permit until it leaves this process.
//! - `mark_alone` stores that a run got the permit before any node of the run is performed. If the process dies after
//!   that, the death counts against the run. A death while the run waits does not (`kernel::run::crash`).
//! - A run that waits for the permit can still be canceled, be released, or pass its deadline.
//!
//! Not here: which runs need the permit (`server::run::resume`).

use std::sync::Arc;
use std::time::Duration;

use kernel::ids::ProcessId;
use store::queue::claim::Begun;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::run::RunMessage;
use super::{LONGEST_SLEEP, RunExit, Shared};
use crate::backoff::retry_until_stored;

impl Shared {
    /// Waits for the solo permit. None if the run was canceled or passed its deadline, because ending it needs no
    /// permit.
    pub(super) async fn acquire_solo_permit(
        &self,
        process: ProcessId,
        begun: &mut Begun,
        canceling: &mut bool,
        inbox: &mut mpsc::UnboundedReceiver<RunMessage>,
    ) -> Result<Option<OwnedSemaphorePermit>, RunExit> {
        let over = tokio::time::Instant::now() + begun.deadline_in.min(LONGEST_SLEEP);
        let permit = loop {
            tokio::select! {
                permit = Arc::clone(&self.suspects).acquire_owned() => break permit.ok(),
                message = inbox.recv() => match message {
                    Some(RunMessage::Drain) => return Err(RunExit::Released),
                    Some(RunMessage::Cancel) | None => {
                        *canceling = true;
                        break None;
                    }
                    // The run reads its full state when it begins, so this hint is not needed.
                    Some(RunMessage::CheckWaits) => {}
                },
                () = tokio::time::sleep_until(over) => {
                    begun.deadline_in = Duration::ZERO;
                    break None;
                }
            }
        };
        let note = || self.store.mark_alone(process, begun.execution, begun.epoch);
        match permit.is_none() || retry_until_stored(note).await.unwrap_or_default() {
            true => Ok(permit),
            false => Err(RunExit::Lost),
        }
    }
}
