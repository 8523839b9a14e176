//! Asking the store until it answers.
//!
//! Invariants
//! - Trouble with the database is never an answer: the question is repeated, with growing pauses, for as long as
//!   somebody waits for it. Whoever may no longer act for the run drops the future.
//!
//! Not here: which errors are answers (`store::Error`), whether a question may be repeated (each function of the store
//! says so).

use std::time::Duration;

use store::Error;

/// How long a database that is away is left alone, at first and at most.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

/// The pauses between two tries: each twice as long as the one before, up to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(FIRST)
    }
}

impl Pauses {
    /// Waits, after a try that got no answer.
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}

/// Asks until the database answers. An error that is returned is an answer.
pub async fn insist<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pauses = Pauses::default();
    loop {
        match ask().await {
            Err(error) if !error.is_answer() => {
                tracing::warn!(error = &error as &dyn std::error::Error, "The database did not answer; asking again");
                pauses.pause().await;
            }
            answer => return answer,
        }
    }
}
