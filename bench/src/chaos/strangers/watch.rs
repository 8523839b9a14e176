//! Measures how other clients are served: the health check, the executions of other workspaces, and the memory of the
//! process.
//!
//! Invariants
//! - The watcher sends requests from 127.0.0.1, at a rate that does not depend on the responses.
//! - A request that gets no response in time counts with the whole time limit.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ground::Ground;
use crate::measure::stats::Sample;
use crate::report::resident_mb;

const HEALTH_EVERY: Duration = Duration::from_millis(20);
const START_EVERY: Duration = Duration::from_millis(50);
const MEMORY_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(20);

/// What was seen during one part of a run.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) health: Sample,
    /// The time from a start request until the client knows the end of the execution.
    pub(super) others: Sample,
    /// How many of these executions did not complete.
    pub(super) failed: usize,
    /// The maximum memory at any time, in MB.
    pub(super) memory_mb: f64,
}

#[derive(Debug, Default)]
struct Notes {
    health: Vec<f64>,
    others: Vec<f64>,
    failed: usize,
    memory_mb: f64,
}

pub(super) struct Watch {
    notes: Arc<Mutex<Notes>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Watch {
    pub(super) fn start(ground: &Arc<Ground>, pid: u32) -> Watch {
        let notes = Arc::new(Mutex::new(Notes::default()));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(health(Arc::clone(ground), Arc::clone(&notes), stop.clone()));
        tasks.spawn(others(Arc::clone(ground), Arc::clone(&notes), stop.clone()));
        tasks.spawn(memory(pid, Arc::clone(&notes), stop.clone()));
        Watch { notes, stop, tasks }
    }

    /// Everything seen since the last call.
    pub(super) fn take(&self) -> Observed {
        let notes = std::mem::take(&mut *locked(&self.notes));
        Observed {
            health: Sample::new(notes.health),
            others: Sample::new(notes.others),
            failed: notes.failed,
            memory_mb: notes.memory_mb.round(),
        }
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
    }
}

/// Repeats this at a steady rate, in parallel.
async fn steadily<F: Future<Output = ()> + Send + 'static>(
    every: Duration,
    stop: CancellationToken,
    act: impl Fn() -> F,
) {
    let mut ticks = tokio::time::interval(every);
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! { _ = ticks.tick() => {}, () = stop.cancelled() => break }
        under_way.spawn(act());
        while under_way.try_join_next().is_some() {}
    }
    under_way.join_all().await;
}

async fn health(ground: Arc<Ground>, notes: Arc<Mutex<Notes>>, stop: CancellationToken) {
    steadily(HEALTH_EVERY, stop, || {
        let (ground, notes) = (Arc::clone(&ground), Arc::clone(&notes));
        async move {
            let asked = Instant::now();
            let answer = tokio::time::timeout(PATIENCE, ground.honest.get(ground.url("/healthz")).send()).await;
            let good = matches!(answer, Ok(Ok(answer)) if answer.status().is_success());
            let took = if good { asked.elapsed() } else { PATIENCE };
            locked(&notes).health.push(took.as_secs_f64() * 1_000.0);
        }
    })
    .await;
}

async fn others(ground: Arc<Ground>, notes: Arc<Mutex<Notes>>, stop: CancellationToken) {
    steadily(START_EVERY, stop, || {
        let (ground, notes) = (Arc::clone(&ground), Arc::clone(&notes));
        async move {
            let asked = Instant::now();
            let completed = tokio::time::timeout(PATIENCE, ground.run_one()).await.unwrap_or(false);
            let mut notes = locked(&notes);
            notes.failed += usize::from(!completed);
            let took = if completed { asked.elapsed() } else { PATIENCE };
            notes.others.push(took.as_secs_f64() * 1_000.0);
        }
    })
    .await;
}

async fn memory(pid: u32, notes: Arc<Mutex<Notes>>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let now = resident_mb(pid).unwrap_or_default();
        {
            let mut notes = locked(&notes);
            notes.memory_mb = notes.memory_mb.max(now);
        }
        tokio::time::sleep(MEMORY_EVERY).await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}
