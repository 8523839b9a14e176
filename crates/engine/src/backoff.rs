//! Repeats a database request until the database answers.
//!
//! Invariants
//! - The error of an unavailable database is not an answer. The request is repeated, with growing pauses, until the
//!   caller drops the future. A process does so when it may no longer act for the run.
//!
//! Not here: which errors count as answers (`store::Error`), whether a request may be repeated (documented on each
//! function of the store).

use std::time::Duration;

use store::Error;

/// The first and the longest pause between two requests to an unavailable database.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// The pause between two attempts. Each pause is twice as long as the one before, up to the maximum.
#[derive(Clone, Copy, Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(FIRST)
    }
}

impl Backoff {
    /// Waits after an attempt that got no answer.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}

/// Repeats the request until the database answers. An error is returned only if it is an answer (`Error::is_answer`).
pub async fn retry_until_stored<T, F>(ask: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    retry_while_unavailable(ask, |error| if error.is_answer() { Err(error) } else { Ok(error) }).await
}

/// Repeats the request until the database answers. `unavailable` returns an error that is no answer as `Ok`, and any
/// other error as what the caller gets.
pub(crate) async fn retry_while_unavailable<T, E, R, F>(
    mut ask: impl FnMut() -> F,
    unavailable: impl Fn(E) -> Result<Error, R>,
) -> Result<T, R>
where
    F: Future<Output = Result<T, E>>,
{
    let mut backoff = Backoff::default();
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => unavailable(error)?,
        };
        tracing::warn!(error = &error as &dyn std::error::Error, "Database request failed; retrying");
        backoff.wait().await;
    }
}
