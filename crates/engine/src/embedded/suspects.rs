//! Runs that their processes keep dying of: each waits for its turn to run alone.
//!
//! Invariants
//! - One has the turn at a time, until it leaves this process.
//! - That its turn came is stored before anything of it is performed: a death after that is its own, one
//!   before is not (`kernel::run::crash`).
//! - While it waits it can still be canceled, let go, or run out of time.
//!
//! Not here: who is a suspect (`server::run::resume`).

use std::sync::Arc;
use std::time::Duration;

use kernel::ids::ProcessId;
use store::queue::claim::Begun;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::run::Message;
use super::{LONGEST_SLEEP, Left, Shared};
use crate::insist::insist;

impl Shared {
    /// Waits for a suspect's turn. None: it is to end, which needs none.
    pub(super) async fn turn(
        &self,
        process: ProcessId,
        begun: &mut Begun,
        canceling: &mut bool,
        inbox: &mut mpsc::UnboundedReceiver<Message>,
    ) -> Result<Option<OwnedSemaphorePermit>, Left> {
        let over = tokio::time::Instant::now() + begun.deadline_in.min(LONGEST_SLEEP);
        let turn = loop {
            tokio::select! {
                turn = Arc::clone(&self.suspects).acquire_owned() => break turn.ok(),
                message = inbox.recv() => match message {
                    Some(Message::Drain) => return Err(Left::Released),
                    Some(Message::Cancel) | None => {
                        *canceling = true;
                        break None;
                    }
                    // It asks anew how everything stands when it begins.
                    Some(Message::Look) => {}
                },
                () = tokio::time::sleep_until(over) => {
                    begun.deadline_in = Duration::ZERO;
                    break None;
                }
            }
        };
        let note = || self.store.note_alone(process, begun.execution, begun.epoch);
        match turn.is_none() || insist(note).await.unwrap_or_default() {
            true => Ok(turn),
            false => Err(Left::Lost),
        }
    }
}
