//! Asking the store for a node: what an error that is an answer makes of it.
//!
//! Not here: repeating the question (`crate::insist`), what is asked (`children`, `loops`, `asks`).

use kernel::run::failure::{Class, Failure};
use store::Error;

/// Asks the store until it answers. What the database cannot hold is a failure of the node, and so is a stored row that
/// cannot be read.
pub(super) async fn insist<T, F>(ask: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Error>>,
{
    crate::insist::insist(ask).await.map_err(|error| match error {
        Error::Refused { .. } => Failure::new(Class::ValidationError, "the database cannot hold what it was given"),
        error => {
            tracing::error!(error = &error as &dyn std::error::Error, "A node cannot be performed");
            Failure::new(Class::ExecutionError, "what is stored of it cannot be read")
        }
    })
}
