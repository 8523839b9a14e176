//! Asking the store for a node, however long it takes to answer.
//!
//! Not here: what is asked (`children`, `loops`, `asks`).

use std::time::Duration;

use kernel::failure::{Class, Failure};
use store::Error;

/// How long a database that is away is left alone.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// Asks the store until it answers; whoever may no longer act for the run drops this. What the database cannot hold is a
/// failure, and so is what it holds and nobody can read.
pub(super) async fn insist<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_unavailable() => {
                tracing::warn!(error = &error as &dyn std::error::Error, "A node waits for the database");
                tokio::time::sleep(PAUSE).await;
            }
            Err(Error::Refused { .. }) => {
                return Err(Failure::new(Class::ValidationError, "the database cannot hold what it was given"));
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "A node cannot be performed");
                return Err(Failure::new(Class::ExecutionError, "what is stored of it cannot be read"));
            }
        }
    }
}
