//! The worker: polls Temporal for what is to be done, on a thread of its own.
//!
//! Invariants
//! - It comes back by itself, however often Temporal is away when it begins.
//! - Told to stop, it takes nothing more and gives what it performs a while; what is left then is another worker's, at
//!   the expense of no attempt.
//!
//! Not here: what is done (`activities`), how workflows go on (`workflow`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::embedded::{OnLeft, OnReady};
use engine::nodes::call::Means;
use engine::versions::Versions;
use temporalio_common::worker::WorkerDeploymentOptions;
use temporalio_sdk::runtime::PollerBehavior;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, SlotSupplier, TunerHolder, WorkerTuner};
use temporalio_sdk::{Runtime, WorkerOptions};
use tokio_util::sync::CancellationToken;

use crate::activities::{Kit, registered};
use crate::connection::{chain, dial};
use crate::settings::Settings;
use crate::workflow::WorkflowOrchestration;

/// How many workflows go on at once, and how many local activities.
const AT_ONCE: usize = 100;
/// How many runs stay in memory between their tasks.
const CACHED: usize = 1_000;
/// How many requests for work are open.
const POLLERS: usize = 5;
/// A run whose worker died is given to another after this long.
const STICKY: Duration = Duration::from_secs(1);
/// How long to wait before polling again after it failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How long what ignores everything is waited for when the thread ends.
const GRACE: Duration = Duration::from_millis(500);

/// What a worker works with.
pub struct Hands {
    pub means: Means,
    pub on_left: OnLeft,
    pub on_ready: OnReady,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").finish_non_exhaustive()
    }
}

/// A worker of this process.
#[derive(Debug)]
pub struct Worker {
    stop: CancellationToken,
    polls: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    /// Begins to poll, now or as soon as Temporal is there.
    pub fn start(settings: Settings, hands: Hands) -> std::io::Result<Worker> {
        let (stop, polls) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let kit = Arc::new(Kit {
            store: hands.means.store.clone(),
            means: hands.means,
            on_left: hands.on_left,
            on_ready: hands.on_ready,
            versions: Versions::default(),
            runs: crate::activities::Runs::default(),
            place: settings.place(),
            local_below: settings.local_below,
            max_generations: settings.max_generations,
            heartbeat: settings.heartbeat,
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (stopping, polling) = (stop.clone(), Arc::clone(&polls));
        let thread = std::thread::Builder::new().name("temporal-worker".to_owned()).spawn(move || {
            runtime.block_on(work(&settings, kit, &stopping, &polling));
            runtime.shutdown_timeout(GRACE);
        })?;
        Ok(Worker { stop, polls, thread: Some(thread) })
    }

    /// Does it poll? Not while Temporal cannot be reached at its beginning.
    pub fn polls(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.polls)
    }

    /// Takes nothing more, and ends when what it performs has.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn work(settings: &Settings, kit: Arc<Kit>, stop: &CancellationToken, polls: &AtomicBool) {
    while !stop.is_cancelled() {
        let ended = serve(settings, Arc::clone(&kit), stop, polls).await;
        polls.store(false, Ordering::Relaxed);
        if let Err(reason) = ended {
            tracing::warn!(reason, "The Temporal worker cannot work; trying again");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

async fn serve(settings: &Settings, kit: Arc<Kit>, stop: &CancellationToken, polls: &AtomicBool) -> Result<(), String> {
    let client = tokio::select! {
        client = dial(settings) => client?,
        () = stop.cancelled() => return Ok(()),
    };
    let runtime = Runtime::from_current_tokio(Default::default()).map_err(|error| error.to_string())?;
    let options = worker_options(settings, kit)?;
    let mut worker = temporalio_sdk::Worker::new(&runtime, client, options).map_err(|error| error.to_string())?;
    let quit = worker.shutdown_handle();
    let mut running = std::pin::pin!(worker.run());
    polls.store(true, Ordering::Relaxed);
    tracing::info!(task_queue = settings.task_queue, place = settings.place(), "The Temporal worker polls");
    tokio::select! {
        ended = &mut running => ended.map_err(|error| chain(&error)),
        () = stop.cancelled() => {
            quit();
            if tokio::time::timeout(settings.drain, running).await.is_err() {
                tracing::info!("Some nodes did not end in time; other workers take them up");
            }
            Ok(())
        }
    }
}

fn worker_options(settings: &Settings, kit: Arc<Kit>) -> Result<WorkerOptions, String> {
    let fixed = |size| SlotSupplier::from(FixedSizeSlotSupplier::new(size));
    let tuner = TunerHolder::builder()
        .workflow_task_slot_supplier(fixed(AT_ONCE))
        .activity_task_slot_supplier(fixed(settings.max_calls))
        .local_activity_task_slot_supplier(fixed(AT_ONCE))
        .nexus_task_slot_supplier(fixed(1))
        .build();
    let options = WorkerOptions::new(settings.task_queue.clone())
        .deployment_options(WorkerDeploymentOptions::from_build_id(env!("CARGO_PKG_VERSION").to_owned()))
        .tuner(WorkerTuner::from(tuner))
        .workflow_task_poller_behavior(PollerBehavior::SimpleMaximum(POLLERS))
        .activity_task_poller_behavior(PollerBehavior::SimpleMaximum(POLLERS))
        .max_cached_workflows(CACHED)
        .sticky_queue_schedule_to_start_timeout(STICKY)
        // What is dispatched eagerly passes by priority and fairness.
        .max_eager_activity_reservations_per_workflow_task(0)
        .graceful_shutdown_period(settings.drain / 2)
        .register_activity::<registered::Begin>(Arc::clone(&kit))
        .register_activity::<registered::Step>(Arc::clone(&kit))
        .register_activity::<registered::Node>(Arc::clone(&kit))
        .register_activity::<registered::Gather>(Arc::clone(&kit))
        .register_activity::<registered::Look>(Arc::clone(&kit))
        .register_activity::<registered::Report>(Arc::clone(&kit))
        .register_activity::<registered::Complete>(Arc::clone(&kit))
        .register_activity::<registered::GiveWay>(kit)
        .register_workflow::<WorkflowOrchestration>()
        .map_err(|error| error.to_string())?;
    Ok(options.build())
}
