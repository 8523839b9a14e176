//! The same ten calls in a handwritten workflow: each call is an activity that records its begin and its result in
//! PostgreSQL (`records`), and the results are in history too.
//!
//! Invariants
//! - The worker has the same configuration as the service's worker: pollers, slots, cached runs and eager activities.
//! - The last activity notifies the starter that the workflow has ended. Asking the server instead would put more load
//!   on it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use kernel::orchestration::capacity::IN_FLIGHT;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use temporalio_client::{Client, WorkflowStartOptions};
use temporalio_common::worker::WorkerDeploymentOptions;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::runtime::PollerBehavior;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, SlotSupplier, TunerHolder, WorkerTuner};
use temporalio_sdk::{ActivityOptions, Runtime, Worker, WorkerOptions, WorkflowContext, WorkflowResult};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::AT_ONCE;
use super::records::Records;
use super::server::TemporalServer;
use super::site::WIDE;
use crate::measure::world::World;

const QUEUE: &str = "bench.handwritten";
/// The name of the first call.
const FIRST: &str = "first";
/// The grace period for a worker that is asked to stop.
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    id: String,
    url: String,
    /// The name of the call.
    call: String,
}

#[workflow]
#[derive(Default)]
pub(crate) struct TenCalls;

#[workflow_methods]
impl TenCalls {
    #[run(name = "TenCalls")]
    pub(crate) async fn run(context: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<Vec<Value>> {
        let context = &*context;
        let options = || ActivityOptions::with_start_to_close_timeout(Duration::from_secs(30)).build();
        let named = |call: String| Order { call, ..order.clone() };
        let mut results = vec![context.execute_activity(Calls::call, named(FIRST.to_owned()), options()).await?];
        let wide = (0..WIDE).map(|at| context.execute_activity(Calls::call, named(format!("n{at}")), options()));
        for result in join_all(wide).await {
            results.push(result?);
        }
        results.push(context.execute_activity(Calls::last, named("last".to_owned()), options()).await?);
        Ok(results)
    }
}

pub(crate) struct Calls {
    http: reqwest::Client,
    records: Records,
    /// The senders that notify the starter, by workflow id.
    waiting: Mutex<std::collections::BTreeMap<String, oneshot::Sender<()>>>,
}

#[activities]
impl Calls {
    #[activity(name = "call")]
    pub(crate) async fn call(self: Arc<Self>, _context: ActivityContext, order: Order) -> Result<Value, ActivityError> {
        Ok(self.make(&order, false).await?)
    }

    #[activity(name = "last")]
    pub(crate) async fn last(self: Arc<Self>, _context: ActivityContext, order: Order) -> Result<Value, ActivityError> {
        let answer = self.make(&order, true).await?;
        if let Some(waiting) = self.waiting().remove(&order.id) {
            let _gone = waiting.send(());
        }
        Ok(answer)
    }
}

impl Calls {
    /// Records that the call begins, makes it, and records what it returned.
    async fn make(&self, order: &Order, is_last: bool) -> Result<Value> {
        let input = json!({ "method": "GET", "url": order.url });
        self.records.begin(&order.id, &order.call, order.call == FIRST, &input).await?;
        let answer = self.http.get(&order.url).send().await?.error_for_status()?;
        let output = json!({ "status": answer.status().as_u16(), "body": answer.json::<Value>().await? });
        self.records.end(&order.id, &order.call, is_last, &output).await?;
        Ok(output)
    }

    fn waiting(&self) -> parking_lot::MutexGuard<'_, std::collections::BTreeMap<String, oneshot::Sender<()>>> {
        self.waiting.lock()
    }
}

/// A worker in this process, and a client for it.
pub(super) struct Handwritten {
    client: Client,
    calls: Arc<Calls>,
    url: String,
    stop: CancellationToken,
    thread: std::thread::JoinHandle<Result<()>>,
}

impl Handwritten {
    pub(super) async fn start(server: &TemporalServer, world: &World, url: String) -> Result<Handwritten> {
        let records = Records::create(world).await?;
        let calls = Arc::new(Calls { http: reqwest::Client::new(), records, waiting: Mutex::default() });
        let (client, stop) = (server.client().await?, CancellationToken::new());
        let (working, worker, stopping) = (server.client().await?, Arc::clone(&calls), stop.clone());
        let thread = std::thread::Builder::new().name("handwritten".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            let worked = runtime.block_on(work(working, worker, stopping));
            runtime.shutdown_timeout(DRAIN);
            worked
        })?;
        Ok(Handwritten { client, calls, url, stop, thread })
    }

    /// Runs this many workflows. Returns the time from the first start to the last end, and the id of the last started
    /// workflow.
    pub(super) async fn run(&self, count: usize) -> Result<(Duration, String)> {
        let ids: Vec<String> = (0..count).map(|_| format!("handwritten-{}", store::new_id())).collect();
        self.calls.records.accept(&ids).await?;
        let began = Instant::now();
        let runs = ids.iter().map(|id| self.one(id.clone()));
        stream::iter(runs).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok((began.elapsed(), ids[count - 1].clone()))
    }

    async fn one(&self, id: String) -> Result<()> {
        let (sender, ended) = oneshot::channel();
        self.calls.waiting().insert(id.clone(), sender);
        let options = WorkflowStartOptions::new(QUEUE, id.clone()).build();
        let order = Order { id, url: self.url.clone(), call: String::new() };
        self.client.start_workflow(TenCalls::run, order, options).await.context("start a handwritten workflow")?;
        tokio::time::timeout(Duration::from_secs(120), ended).await.context("a handwritten workflow did not end")??;
        Ok(())
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        joined.map_err(|_| anyhow::anyhow!("the worker stopped early"))?
    }
}

async fn work(client: Client, calls: Arc<Calls>, stop: CancellationToken) -> Result<()> {
    let fixed = |size| SlotSupplier::from(FixedSizeSlotSupplier::new(size));
    let tuner = TunerHolder::builder()
        .workflow_task_slot_supplier(fixed(100))
        .activity_task_slot_supplier(fixed(256))
        .local_activity_task_slot_supplier(fixed(100))
        .nexus_task_slot_supplier(fixed(1))
        .build();
    let options = WorkerOptions::new(QUEUE)
        .deployment_options(WorkerDeploymentOptions::from_build_id("bench".to_owned()))
        .tuner(WorkerTuner::from(tuner))
        .workflow_task_poller_behavior(PollerBehavior::SimpleMaximum(10))
        .nonsticky_to_sticky_poll_ratio(0.4)
        .activity_task_poller_behavior(PollerBehavior::SimpleMaximum(5))
        .max_cached_workflows(1_000)
        .sticky_queue_schedule_to_start_timeout(Duration::from_secs(1))
        .max_eager_activity_reservations_per_workflow_task(IN_FLIGHT)
        .register_activity::<calls::Call>(Arc::clone(&calls))
        .register_activity::<calls::Last>(calls)
        .register_workflow::<TenCalls>()?
        .build();
    let runtime = Runtime::from_current_tokio(Default::default())?;
    let mut worker = Worker::new(&runtime, client, options)?;
    let quit = worker.shutdown_handle();
    let mut running = std::pin::pin!(worker.run());
    tokio::select! {
        ended = &mut running => ended.context("work")?,
        () = stop.cancelled() => {
            quit();
            let _in_time = tokio::time::timeout(DRAIN, running).await;
        }
    }
    Ok(())
}
