//! The shape that background loops share.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Runs `pass` over and over: when `wake` rings, and at least every `every`, until `stop`. An error
/// is logged once and the loop goes on at the next wake; the answer of a pass may ask to be run
/// again sooner.
async fn repeat<P, F>(name: &'static str, every: Duration, wake: &Notify, stop: &CancellationToken, pass: P)
where
    P: Fn() -> F,
    F: Future<Output = Result<Option<Duration>, store::Error>>,
{
    let mut failing = false;
    loop {
        // A panic is that pass's: the loop goes on.
        let done = AssertUnwindSafe(pass()).catch_unwind().await;
        let next = match done.unwrap_or_else(|_| Err(store::Error::Corrupt(format!("the loop {name} panicked")))) {
            Ok(sooner) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(name, "The loop works again");
                }
                sooner.unwrap_or(every).min(every)
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        name,
                        error = &error as &dyn std::error::Error,
                        "A pass failed, going on at the next"
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

/// A background loop: its name, how often it looks, what wakes it before, and one look.
pub(crate) struct Loop {
    name: &'static str,
    every: Duration,
    wake: Arc<Notify>,
    pass: Box<dyn Fn() -> Passing + Send + Sync>,
}

/// A look under way; it may ask for the next one sooner.
type Passing = BoxFuture<'static, Result<Option<Duration>, store::Error>>;

impl Loop {
    pub(crate) fn new<T, F>(
        name: &'static str,
        every: Duration,
        wake: &Arc<Notify>,
        it: Arc<T>,
        pass: impl Fn(Arc<T>) -> F + Send + Sync + 'static,
    ) -> Loop
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<Option<Duration>, store::Error>> + Send + 'static,
    {
        Loop { name, every, wake: Arc::clone(wake), pass: Box::new(move || pass(Arc::clone(&it)).boxed()) }
    }

    /// Looks until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        repeat(self.name, self.every, &self.wake, &stop, &self.pass).await;
    }
}

/// Runs what must not end before the service does. If it ends all the same, the service stops: better
/// gone, and taken over, than half alive.
pub(crate) async fn keep(name: &'static str, stop: CancellationToken, task: impl Future<Output = ()>) {
    let ended = AssertUnwindSafe(task).catch_unwind().await;
    if !stop.is_cancelled() {
        tracing::error!(name, panicked = ended.is_err(), "A part of the service ended unasked; stopping all of it");
        stop.cancel();
    }
}
