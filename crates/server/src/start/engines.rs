//! Makes the engine that the settings name.

use std::sync::Arc;
use std::time::Instant;

use engine::Engine;
use engine::embedded::{self, Embedded, Left};
use engine::outbound::{self, Outbound};
use engine::pulse::Pulse;
use store::Store;
use tokio::sync::mpsc;

use super::StartError;
use crate::config::{EngineKind, Settings};
use crate::hints::Hint;
use crate::waiters::Waiters;

/// The engine of a process; none in one that runs nothing.
#[derive(Default)]
pub(super) struct Engines {
    pub(super) engine: Option<Arc<dyn Engine>>,
    /// The same, if this process itself is the one that runs.
    pub(super) embedded: Option<Embedded>,
}

pub(super) fn make(
    settings: &Settings,
    work: &Store,
    pulse: &Arc<Pulse>,
    hints: &mpsc::UnboundedSender<Hint>,
    waiters: &Waiters,
) -> Result<Engines, StartError> {
    let (hints, waiters) = (hints.clone(), waiters.clone());
    let on_left: embedded::OnLeft = Arc::new(move |execution, left| {
        waiters.wake(execution);
        // The one that ends an execution claims its workspace's next itself: hints on or off.
        let hint = match left {
            Left::Ended { freed: Some(workspace) } => Hint::Freed(workspace, Instant::now()),
            Left::Ended { freed: None } | Left::Parked | Left::Released | Left::Lost => Hint::Room,
        };
        let _stopping = hints.send(hint);
    });
    match &settings.engine.kind {
        EngineKind::Embedded => {
            let allow = settings.outbound.allow.clone();
            let outbound = Outbound::new(outbound::Settings { allow, ..Default::default() })?;
            let limits =
                embedded::Settings { max_runs: settings.engine.max_runs, max_calls: settings.engine.max_calls };
            let embedded = Embedded::new(work.clone(), outbound, limits, Arc::clone(pulse), on_left);
            Ok(Engines { engine: Some(Arc::new(embedded.clone())), embedded: Some(embedded) })
        }
        #[cfg(feature = "test-engine")]
        EngineKind::Test(directory) => {
            let engine = engine::test_engine::TestEngine::open(directory, work.clone(), on_left);
            Ok(Engines { engine: Some(Arc::new(engine.map_err(StartError::TestEngine)?)), embedded: None })
        }
    }
}
