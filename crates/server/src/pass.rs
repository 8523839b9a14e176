//! The shape that background loops share.

use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Runs `pass` over and over: when `wake` rings, and at least every `every`, until `stop`. An error
/// is logged once and the loop goes on at the next wake; the answer of a pass may ask to be run
/// again sooner.
pub(crate) async fn repeat<P, F>(
    name: &'static str,
    every: Duration,
    wake: &Notify,
    stop: &CancellationToken,
    mut pass: P,
) where
    P: FnMut() -> F,
    F: Future<Output = Result<Option<Duration>, store::Error>>,
{
    let mut failing = false;
    loop {
        let next = match pass().await {
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
