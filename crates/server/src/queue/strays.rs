//! Slots that no engine looks after: their execution is missing, or runs on an engine that is not served here.
//!
//! Invariants
//! - A slot whose execution is missing is freed only after a while, in which its run's own process has noticed too and
//!   dropped it (`run::resume`).
//! - A run of another engine keeps its slot until that engine ends it (`reconciler`), or somebody ends it by force:
//!   then it is fenced off, and ended here, whether or not that engine can be reached.
//!
//! Not here: runs of the engines that are served (`run::resume`, `run::reconcile`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use kernel::execution;
use kernel::ids::ExecutionId;
use store::Store;
use store::queue::stray::{MOST, Stray};
use store::run::{End, Ending};
use tokio::sync::watch;

use crate::config::EngineKind;
use crate::execution::waiters::Waiters;
use crate::process::heartbeat::Alive;
use crate::process::hints::Hints;

/// How often strays are looked for, and how long an execution is missing before its slot is freed. Neither follows the
/// poll interval: a slot is to be free within 60 s, whatever that is.
pub(crate) const EVERY: Duration = Duration::from_secs(10);
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// How many lost executions are ended in one commit.
const TOGETHER: usize = 50;

/// How long another engine may take to say whether it can be reached.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Which engines are served here, and what is known of runs on others. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    served: Arc<[&'static str]>,
    told: Arc<Mutex<Option<String>>>,
}

impl Foreign {
    pub(crate) fn new(kind: &EngineKind) -> Foreign {
        let served: &[&'static str] = match kind {
            EngineKind::Embedded => &[engine::embedded::NAME],
            // Runs that began before the engine was changed are resumed by those who dispatch.
            EngineKind::Temporal => &["temporal", engine::embedded::NAME],
            #[cfg(feature = "test-engine")]
            EngineKind::Test(_) => &[engine::test_engine::NAME],
        };
        Foreign { served: served.into(), told: Arc::default() }
    }

    /// Why nobody here goes on with a run of this engine, if nobody does.
    pub(crate) fn trouble_of(&self, engine: Option<&str>) -> Option<String> {
        let engine = engine.filter(|engine| !self.served.contains(engine))?;
        let ours = self.served.first().copied().unwrap_or_default();
        Some(format!("it runs on the engine {engine}, and this service now uses {ours} and does not continue it"))
    }

    /// What is known of runs on other engines, if there are any.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.told.lock().clone()
    }

    fn tell(&self, told: Option<String>) {
        *self.told.lock() = told;
    }
}

pub(crate) struct Strays {
    pub(crate) store: Store,
    pub(crate) foreign: Foreign,
    /// An engine that is not served here, to ask and to tell.
    pub(crate) other: Option<Arc<dyn Engine>>,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    pub(crate) hints: Hints,
    pub(crate) waiters: Waiters,
    /// Since when executions have been missing. In memory, because no row says it: a run that was dispatched long ago
    /// may have been deleted a moment ago, and its process must have time to drop it. After a restart the grace period
    /// begins again.
    pub(crate) missing: Mutex<BTreeMap<ExecutionId, Instant>>,
}

impl Strays {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let Some(alive) = self.alive.borrow().clone() else { return Ok(None) };
        let (mut missing, mut elsewhere) = (Vec::new(), BTreeMap::<String, usize>::new());
        let (mut from, mut trouble) = (None, None);
        loop {
            let found = self.store.strays(&alive.shards, &self.foreign.served, from).await?;
            let more = found.len() >= MOST;
            from = found.last().map(|stray| stray.execution);
            for stray in found {
                match &stray.engine {
                    _ if stray.missing => missing.push(stray.execution),
                    // One stray's trouble keeps no other's slot taken.
                    Some(_) if stray.terminating => trouble = self.end(&stray).await.err().or(trouble),
                    Some(engine) => *elsewhere.entry(engine.clone()).or_default() += 1,
                    None => {}
                }
            }
            if !more {
                break;
            }
        }
        for some in self.missing_for_long(&missing).chunks(TOGETHER) {
            trouble = self.free(some).await.err().or(trouble);
        }
        self.foreign.tell(self.describe(&elsewhere).await);
        trouble.map_or(Ok(None), Err)
    }

    /// Frees the slots of lost executions. If that fails for all together, each is tried by itself: one's trouble keeps
    /// no other's slot taken.
    async fn free(&self, lost: &[ExecutionId]) -> Result<(), store::Error> {
        let mut trouble = None;
        let freed = match self.store.lose(lost, "strays").await {
            Ok(freed) => freed,
            Err(error)
                if lost.len() == 1 || matches!(error, store::Error::Unavailable(_)) && !error.is_lock_timeout() =>
            {
                return Err(error);
            }
            Err(_) => {
                let mut freed = Vec::new();
                for one in lost {
                    match self.store.lose(&[*one], "strays").await {
                        Ok(workspaces) => freed.extend(workspaces),
                        Err(error) => trouble = Some(error),
                    }
                }
                freed
            }
        };
        freed.into_iter().for_each(|workspace| self.hints.ready(workspace));
        trouble.map_or(Ok(()), Err)
    }

    /// Those that were missing at an earlier look already, long enough ago.
    fn missing_for_long(&self, missing: &[ExecutionId]) -> Vec<ExecutionId> {
        let mut since = self.missing.lock();
        let now = Instant::now();
        let before = std::mem::take(&mut *since);
        since.extend(missing.iter().map(|id| (*id, before.get(id).copied().unwrap_or(now))));
        missing.iter().copied().filter(|id| since.get(id).is_some_and(|at| now - *at >= GRACE)).collect()
    }

    /// Ends a run that somebody ended by force, and whose engine is not there to confirm it.
    async fn end(&self, stray: &Stray) -> Result<(), store::Error> {
        if let Some(other) = &self.other {
            other.terminate(stray.execution);
        }
        for ended in
            self.store.complete(&[terminated(stray.execution)], Some(execution::Status::Running), "strays").await?
        {
            if ended.freed {
                self.hints.ready(ended.workspace);
            }
            self.waiters.wake(ended.execution);
        }
        Ok(())
    }

    async fn describe(&self, elsewhere: &BTreeMap<String, usize>) -> Option<String> {
        let (engine, runs) = elsewhere.iter().next()?;
        let ours = self.foreign.served.first().copied().unwrap_or_default();
        let reached = match &self.other {
            Some(other) => match tokio::time::timeout(ANSWERS_WITHIN, other.look()).await {
                Ok(Ok(None)) => "it can be reached".to_owned(),
                Ok(Ok(Some(trouble))) => trouble,
                Ok(Err(error)) => format!("it cannot be reached: {error}"),
                Err(_) => "it cannot be reached: it did not answer in time".to_owned(),
            },
            None => "it cannot be reached from here".to_owned(),
        };
        Some(format!(
            "executions that still run on the engine {engine}: {runs}. This service now uses {ours}; {reached}. Keep a \
             process with engine.kind={engine} until they end, or end each with `forebay terminate ID`"
        ))
    }
}

/// How a run ends that somebody ended by force.
pub(crate) fn terminated(execution: ExecutionId) -> Ending {
    let error = Some(store::queue::control::terminated());
    Ending { execution, claim: None, end: End { outcome: execution::Status::Canceled, output: None, error } }
}
