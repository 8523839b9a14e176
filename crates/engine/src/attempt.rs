//! One attempt at a node, as far as both engines do the same for it.
//!
//!     nodes::ready ──▶ a wait, a child, a loop's collection ──▶ result ──▶ fact
//!
//! Invariants
//! - A failure of the node and a database that does not answer are told apart: the first is stored, the second is
//!   repeated.
//! - Everything here may be repeated, by this process or another: it finds what it did before.
//!
//! Not here: whether there is another attempt (`kernel::run::failure`), calls (`nodes`), when something is repeated
//! (the engines).

pub mod child;
pub mod collect;
pub mod wait;

use std::time::Duration;

use kernel::definition::Kind;
use kernel::ids::NodeKey;
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use kernel::signals::metrics;
use store::run::NodeFact;

use crate::insist::Pauses;

/// Why something could not be done for a node.
#[derive(Debug)]
pub enum Error {
    /// The node fails.
    Failed(Failure),
    /// The database did not answer: it is to be done again.
    Unavailable(store::Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Failed(failure)
    }
}

impl From<store::Error> for Error {
    /// What the database cannot hold is a failure of the node, and so is a stored row that cannot be read.
    fn from(error: store::Error) -> Error {
        match error {
            error if !error.is_answer() => Error::Unavailable(error),
            store::Error::Refused { .. } => {
                Failure::new(Class::ValidationError, "the database cannot hold what it was given").into()
            }
            error => {
                tracing::error!(error = &error as &dyn std::error::Error, "A node cannot be performed");
                Failure::new(Class::ExecutionError, "what is stored of it cannot be read").into()
            }
        }
    }
}

/// Does something for a node, again and again until the database answers.
pub async fn until_answered<T, E, F>(mut ask: impl FnMut() -> F) -> Result<T, Failure>
where
    E: Into<Error>,
    F: Future<Output = Result<T, E>>,
{
    let mut pauses = Pauses::default();
    loop {
        match ask().await.map_err(Into::into) {
            Ok(answer) => return Ok(answer),
            Err(Error::Failed(failure)) => return Err(failure),
            Err(Error::Unavailable(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "The database did not answer; asking again");
                pauses.pause().await;
            }
        }
    }
}

/// A fact of a node, or of an item of a loop, with nothing said beside its status.
pub fn fact(node: &NodeKey, iteration: i32, status: Status, attempt: u32) -> NodeFact {
    NodeFact {
        node: node.clone(),
        iteration,
        status,
        attempt,
        next_in: None,
        label: None,
        input: None,
        output: None,
        error: None,
        once: false,
    }
}

/// Counts how long an attempt took.
pub fn measure(kind: Kind, outcome: &'static str, took: Duration) {
    ::metrics::histogram!(metrics::NODE_DURATION.name, "kind" => kind.name(), "outcome" => outcome).record(took);
}
