//! The part that tells webhooks of ends, in a process that dispatches.
//!
//! Not here: what it does (`webhooks`).

use std::sync::Arc;
use std::time::Duration;

use engine::outbound::Outbound;
use engine::vault::Vault;
use store::Store;

use super::Parts;
use super::engines::{self, Duties};
use crate::config::{Settings, ms};
use crate::process::pass::repeat;
use crate::start::StartError;
use crate::webhook::Webhooks;

/// It looks at least so often: whoever waits to be told waits for this, not for the dispatcher's poll.
const EVERY: Duration = Duration::from_secs(1);

/// What telling takes.
pub(super) struct Teller {
    outbound: Outbound,
    vault: Vault,
}

/// With what this process tells webhooks, if it does. The engine's guard is used if it has one here.
pub(super) fn teller(
    settings: &Settings,
    work: &Store,
    duties: Duties,
    outbound: Option<Outbound>,
) -> Result<Option<Teller>, StartError> {
    if !duties.dispatches {
        return Ok(None);
    }
    let outbound = match outbound {
        Some(outbound) => outbound,
        None => engines::outbound(settings, work)?,
    };
    let vault = Vault::new(work.clone(), crate::access::secrets::keys(settings)?);
    Ok(Some(Teller { outbound, vault }))
}

impl Parts {
    /// From an execution's end to whoever wants to know.
    pub(super) fn spawn_webhooks(&mut self) {
        let Some(Teller { outbound, vault }) = self.teller.take() else { return };
        let every = ms(self.settings.dispatch.poll_interval_ms).min(EVERY);
        let (wake, stop) = (Arc::clone(&self.deliveries), self.stop.clone());
        let over = (stop.clone(), self.tasks.clone());
        let webhooks = Arc::new(Webhooks::new(self.work.clone(), outbound, vault, Arc::clone(&wake), over));
        self.tasks.spawn(async move { repeat("webhooks", every, &wake, &stop, || webhooks.pass()).await });
    }
}
