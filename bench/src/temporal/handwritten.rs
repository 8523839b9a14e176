//! The same ten calls in a workflow as one would write it by hand: each an activity, their results in history, nothing
//! kept elsewhere.
//!
//! Invariants
//! - Its worker is set up like the service's: as many pollers, slots and cached runs, no activity dispatched eagerly.
//! - Whoever starts hears of an end from the last activity, not from the server: that would cost the server more.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
use super::server::Server;
use super::site::WIDE;

const QUEUE: &str = "bench.handwritten";
/// How long a worker that is to stop is waited for.
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    id: String,
    url: String,
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
        let mut results = vec![context.execute_activity(Calls::call, order.clone(), options()).await?];
        let wide = join_all((0..WIDE).map(|_| context.execute_activity(Calls::call, order.clone(), options()))).await;
        for result in wide {
            results.push(result?);
        }
        results.push(context.execute_activity(Calls::last, order, options()).await?);
        Ok(results)
    }
}

pub(crate) struct Calls {
    http: reqwest::Client,
    /// Who waits for an end.
    waiting: Mutex<std::collections::BTreeMap<String, oneshot::Sender<()>>>,
}

#[activities]
impl Calls {
    #[activity(name = "call")]
    pub(crate) async fn call(self: Arc<Self>, _context: ActivityContext, order: Order) -> Result<Value, ActivityError> {
        Ok(self.http.get(&order.url).send().await?.error_for_status()?.json().await?)
    }

    #[activity(name = "last")]
    pub(crate) async fn last(self: Arc<Self>, _context: ActivityContext, order: Order) -> Result<Value, ActivityError> {
        let answer = self.http.get(&order.url).send().await?.error_for_status()?.json().await?;
        if let Some(waiting) = self.waiting().remove(&order.id) {
            let _gone = waiting.send(());
        }
        Ok(answer)
    }
}

impl Calls {
    fn waiting(&self) -> parking_lot::MutexGuard<'_, std::collections::BTreeMap<String, oneshot::Sender<()>>> {
        self.waiting.lock()
    }
}

/// A worker of this process, and a client beside it.
pub(super) struct Handwritten {
    client: Client,
    calls: Arc<Calls>,
    url: String,
    stop: CancellationToken,
    thread: std::thread::JoinHandle<Result<()>>,
}

impl Handwritten {
    pub(super) async fn start(server: &Server, url: String) -> Result<Handwritten> {
        let calls = Arc::new(Calls { http: reqwest::Client::new(), waiting: Mutex::default() });
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

    /// Runs so many; answers how long it took from the first start to the last end, and the last one started.
    pub(super) async fn run(&self, count: usize) -> Result<(Duration, String)> {
        let ids: Vec<String> = (0..count).map(|_| format!("handwritten-{}", store::new_id())).collect();
        let began = Instant::now();
        let runs = ids.iter().map(|id| self.one(id.clone()));
        stream::iter(runs).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok((began.elapsed(), ids[count - 1].clone()))
    }

    async fn one(&self, id: String) -> Result<()> {
        let (sender, ended) = oneshot::channel();
        self.calls.waiting().insert(id.clone(), sender);
        let options = WorkflowStartOptions::new(QUEUE, id.clone()).build();
        let order = Order { id, url: self.url.clone() };
        self.client.start_workflow(TenCalls::run, order, options).await.context("start a workflow by hand")?;
        tokio::time::timeout(Duration::from_secs(120), ended).await.context("a workflow by hand did not end")??;
        Ok(())
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await?;
        joined.map_err(|_| anyhow::anyhow!("the worker broke off"))?
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
        .workflow_task_poller_behavior(PollerBehavior::SimpleMaximum(5))
        .activity_task_poller_behavior(PollerBehavior::SimpleMaximum(5))
        .max_cached_workflows(1_000)
        .max_eager_activity_reservations_per_workflow_task(0)
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
