//! The worker: polls Temporal for tasks on its own thread.
//!
//! Invariants
//! - If Temporal is unavailable when the worker starts, the worker retries by itself until it can poll.
//! - A worker that stops accepts no more tasks and gives running activities a grace period. Other workers repeat the
//!   activities that did not end in time. This does not count as another attempt.
//!
//! Not here: the activities (`activities`), how workflows continue (`workflow`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::embedded::{OnReady, OnRunExit};
use engine::gather::Gather;
use engine::nodes::call::CallResources;
use engine::versions::VersionCache;
use store::run::attempt::{AttemptReport, NewAttempt};
use temporalio_common::worker::WorkerDeploymentOptions;
use temporalio_sdk::runtime::PollerBehavior;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, SlotSupplier, TunerHolder, WorkerTuner};
use temporalio_sdk::{Runtime, WorkerOptions};
use tokio_util::sync::CancellationToken;

use crate::activities::{RunActivities, registered};
use crate::connection::{chain, dial};
use crate::settings::TemporalSettings;
use crate::workflow::WorkflowOrchestration;

/// How many workflow tasks are handled at the same time. All workflows share a thread, so more would not be faster.
const TASKS: usize = 100;
/// How many local activities run at the same time. Most wait for a commit or for a short call, so as many as the calls
/// of a process by default (`engine.max_calls`).
const LOCAL: usize = 256;
/// How many runs are cached between their tasks. For a run that is not cached, Temporal sends the whole history with
/// its next task. A dispatcher starts at most as many runs at a time (`client::ROOM`).
const CACHED: usize = 1_000;
/// How many poll requests are open for tasks of workflows, and for calls. A task that finds an open request is handed
/// over at once; else Temporal writes it to the queue's backlog, and reads it again.
const TASK_POLLERS: usize = 10;
const CALL_POLLERS: usize = 5;
/// The share of the first that waits for new runs; the others wait for the next tasks of cached runs.
const FOR_NEW_RUNS: f32 = 0.4;
/// A run whose worker died goes to another worker after this time.
const STICKY: Duration = Duration::from_secs(1);
/// The pause before polling again after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for tasks that ignore the shutdown when the thread ends.
const GRACE: Duration = Duration::from_millis(500);

/// What a worker needs.
pub struct WorkerSetup {
    pub resources: CallResources,
    pub on_run_exit: OnRunExit,
    pub on_ready: OnReady,
}

impl std::fmt::Debug for WorkerSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerSetup").finish_non_exhaustive()
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
    /// Starts polling, now or as soon as Temporal is available.
    pub fn start(settings: TemporalSettings, setup: WorkerSetup) -> std::io::Result<Worker> {
        let (stop, polls) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let store = setup.resources.store.clone();
        let (starting, reporting) = (store.clone(), store.clone());
        let activities = Arc::new(RunActivities {
            starts: Gather::new(Duration::ZERO, move |attempts: Vec<NewAttempt>| {
                let store = starting.clone();
                async move { store.start_attempts(&attempts).await }
            }),
            reports: Gather::new(Duration::ZERO, move |reports: Vec<AttemptReport>| {
                let store = reporting.clone();
                async move { store.report_attempts(&reports).await }
            }),
            store,
            resources: setup.resources,
            on_run_exit: setup.on_run_exit,
            on_ready: setup.on_ready,
            versions: VersionCache::default(),
            runs: crate::activities::RunCache::default(),
            location: settings.location(),
            local_below: settings.local_below,
            max_generations: settings.max_generations,
            heartbeat: settings.heartbeat,
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (stopping, polling) = (stop.clone(), Arc::clone(&polls));
        let thread = std::thread::Builder::new().name("temporal-worker".to_owned()).spawn(move || {
            runtime.block_on(work(&settings, activities, &stopping, &polling));
            runtime.shutdown_timeout(GRACE);
        })?;
        Ok(Worker { stop, polls, thread: Some(thread) })
    }

    /// True while the worker polls. False before it has reached Temporal for the first time.
    pub fn polls(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.polls)
    }

    /// Accepts no more tasks, and returns when the worker's thread has ended.
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

async fn work(
    settings: &TemporalSettings,
    activities: Arc<RunActivities>,
    stop: &CancellationToken,
    polls: &AtomicBool,
) {
    while !stop.is_cancelled() {
        let ended = serve(settings, Arc::clone(&activities), stop, polls).await;
        polls.store(false, Ordering::Relaxed);
        if let Err(reason) = ended {
            tracing::warn!(reason, "The Temporal worker failed to start; retrying");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

async fn serve(
    settings: &TemporalSettings,
    activities: Arc<RunActivities>,
    stop: &CancellationToken,
    polls: &AtomicBool,
) -> Result<(), String> {
    let client = tokio::select! {
        client = dial(settings) => client?,
        () = stop.cancelled() => return Ok(()),
    };
    let runtime = Runtime::from_current_tokio(Default::default()).map_err(|error| error.to_string())?;
    let options = worker_options(settings, activities)?;
    let mut worker = temporalio_sdk::Worker::new(&runtime, client, options).map_err(|error| error.to_string())?;
    let quit = worker.shutdown_handle();
    let mut running = std::pin::pin!(worker.run());
    polls.store(true, Ordering::Relaxed);
    tracing::info!(task_queue = settings.task_queue, location = settings.location(), "Temporal worker started polling");
    tokio::select! {
        ended = &mut running => ended.map_err(|error| chain(&error)),
        () = stop.cancelled() => {
            quit();
            if tokio::time::timeout(settings.drain, running).await.is_err() {
                tracing::info!("Some nodes did not end within the grace period; other workers perform them");
            }
            Ok(())
        }
    }
}

fn worker_options(settings: &TemporalSettings, activities: Arc<RunActivities>) -> Result<WorkerOptions, String> {
    let fixed = |size| SlotSupplier::from(FixedSizeSlotSupplier::new(size));
    let tuner = TunerHolder::builder()
        .workflow_task_slot_supplier(fixed(TASKS))
        .activity_task_slot_supplier(fixed(settings.max_calls))
        .local_activity_task_slot_supplier(fixed(LOCAL))
        .nexus_task_slot_supplier(fixed(1))
        .build();
    let options = WorkerOptions::new(settings.task_queue.clone())
        .deployment_options(WorkerDeploymentOptions::from_build_id(env!("CARGO_PKG_VERSION").to_owned()))
        .tuner(WorkerTuner::from(tuner))
        .workflow_task_poller_behavior(PollerBehavior::SimpleMaximum(TASK_POLLERS))
        .activity_task_poller_behavior(PollerBehavior::SimpleMaximum(CALL_POLLERS))
        .nonsticky_to_sticky_poll_ratio(FOR_NEW_RUNS)
        .max_cached_workflows(CACHED)
        .sticky_queue_schedule_to_start_timeout(STICKY)
        // A worker with free places performs the calls of the runs that it drives: Temporal then hands them out with
        // the answer to the run's task, instead of through the task queue. This bypasses nobody in the queue: a worker
        // whose places are all taken has pollers that wait for the next free one, and they come first.
        .max_eager_activity_reservations_per_workflow_task(kernel::orchestration::capacity::IN_FLIGHT)
        .graceful_shutdown_period(settings.drain / 2)
        .register_activity::<registered::Begin>(Arc::clone(&activities))
        .register_activity::<registered::Step>(Arc::clone(&activities))
        .register_activity::<registered::Node>(Arc::clone(&activities))
        .register_activity::<registered::Collect>(Arc::clone(&activities))
        .register_activity::<registered::CheckWaits>(Arc::clone(&activities))
        .register_activity::<registered::Report>(Arc::clone(&activities))
        .register_activity::<registered::Complete>(Arc::clone(&activities))
        .register_activity::<registered::EndIfTerminated>(activities)
        .register_workflow::<WorkflowOrchestration>()
        .map_err(|error| error.to_string())?;
    Ok(options.build())
}
