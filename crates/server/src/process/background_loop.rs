//! The loop that runs the passes of every background loop, and the supervision of tasks that must not end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Runs `pass` repeatedly until `stop` is cancelled: when `wake` is notified, and at least once every `every`. Of
/// several errors in a row only the first is logged; the loop continues at the next wakeup. A pass may return a shorter
/// time after which the next pass runs.
async fn repeat<P, F>(name: &'static str, every: Duration, wake: &Notify, stop: &CancellationToken, pass: P)
where
    P: Fn() -> F,
    F: Future<Output = Result<Option<Duration>, store::Error>>,
{
    let mut failing = false;
    loop {
        // A panic ends only its own pass; the loop continues.
        let done = AssertUnwindSafe(pass()).catch_unwind().await;
        let next = match done.unwrap_or_else(|_| Err(store::Error::Corrupt(format!("the loop {name} panicked")))) {
            Ok(sooner) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(loop_name = name, "Background loop has recovered");
                }
                sooner.unwrap_or(every).min(every)
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        loop_name = name,
                        error = &error as &dyn std::error::Error,
                        "Background loop failed; its next pass retries"
                    );
                }
                every
            }
        };
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = wake.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

/// A background loop: its name, its poll interval (`every`), what wakes it earlier, and the work of one pass.
pub(crate) struct BackgroundLoop {
    name: &'static str,
    every: Duration,
    wake: Arc<Notify>,
    pass: Box<dyn Fn() -> PassFuture + Send + Sync>,
}

/// One pass in progress. Its result may be a time, shorter than the poll interval, after which the next pass runs.
type PassFuture = BoxFuture<'static, Result<Option<Duration>, store::Error>>;

impl BackgroundLoop {
    pub(crate) fn new<T, F>(
        name: &'static str,
        every: Duration,
        wake: &Arc<Notify>,
        worker: Arc<T>,
        pass: impl Fn(Arc<T>) -> F + Send + Sync + 'static,
    ) -> BackgroundLoop
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<Option<Duration>, store::Error>> + Send + 'static,
    {
        let pass = Box::new(move || pass(Arc::clone(&worker)).boxed());
        BackgroundLoop { name, every, wake: Arc::clone(wake), pass }
    }

    /// Runs passes until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        repeat(self.name, self.every, &self.wake, &stop, &self.pass).await;
    }
}

/// Runs a task that must not end before the service stops. If the task ends early, the whole service stops, so that
/// other processes take over its work. Otherwise its heartbeats would go on, and no process would do the work of the
/// task.
pub(crate) async fn supervise(name: &'static str, stop: CancellationToken, task: impl Future<Output = ()>) {
    let ended = AssertUnwindSafe(task).catch_unwind().await;
    if !stop.is_cancelled() {
        tracing::error!(
            part = name,
            panicked = ended.is_err(),
            "A part of the service ended unexpectedly; stopping this process"
        );
        stop.cancel();
    }
}
