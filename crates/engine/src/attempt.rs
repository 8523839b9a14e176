//! One attempt at a node: the parts that both engines share.
//!
//!     nodes::prepare ──▶ a wait, a child, a loop's outputs ──▶ result ──▶ fact
//!
//! Invariants
//! - A value that the database cannot store fails its node, or its execution if it is the execution's output.
//! - A failure of the node is stored. A request to an unavailable database is repeated and does not fail the node.
//! - Every function here may be repeated, by this process or another. A repeated call finds the first call's result.
//!
//! Not here: whether a node gets another attempt (`kernel::run::failure`), the calls of nodes (`nodes`), when an
//! operation is repeated (the engines).

pub mod child;
pub mod collect;
pub mod wait;

use std::time::Duration;

use kernel::definition::Kind;
use kernel::ids::NodeKey;
use kernel::run::failure::Failure;
use kernel::run::node::Status;
use kernel::signals::metrics;
use kernel::storable;
use store::run::NodeFact;

use crate::backoff::retry_while_unavailable;
use crate::nodes::NodeOutput;

/// Why an operation for a node failed.
#[derive(Debug)]
pub enum Error {
    /// The node fails.
    Failed(Failure),
    /// The database did not answer. The operation must be repeated.
    Unavailable(store::Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Failed(failure)
    }
}

impl From<store::Error> for Error {
    /// A value that the database cannot store fails the node, and so does a stored row that cannot be read.
    fn from(error: store::Error) -> Error {
        match error {
            error if !error.is_answer() => Error::Unavailable(error),
            store::Error::Refused { .. } => Failure::unstorable_input().into(),
            error => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "Node failed: its stored data cannot be read"
                );
                Failure::unreadable_state().into()
            }
        }
    }
}

/// Repeats an operation for a node until the database answers.
pub async fn retry_until_answered<T, E, F>(ask: impl FnMut() -> F) -> Result<T, Failure>
where
    E: Into<Error>,
    F: Future<Output = Result<T, E>>,
{
    retry_while_unavailable(ask, |error| match error.into() {
        Error::Failed(failure) => Err(failure),
        Error::Unavailable(error) => Ok(error),
    })
    .await
}

/// The result of an attempt, or a failure if the database cannot store it. The output of a loop is already stored.
pub fn check_output(result: Result<NodeOutput, Failure>) -> Result<NodeOutput, Failure> {
    let done = result?;
    if !done.stored {
        storable::check_output(&done.output)?;
    }
    Ok(done)
}

/// The fact to store instead of one that the database refused: the node fails, and says why.
pub fn refused(fact: &NodeFact) -> NodeFact {
    let failure = if fact.output.is_some() { Failure::unstorable_output() } else { Failure::unstorable_input() };
    let error = Some(failure.at(fact.node.clone()));
    NodeFact { error, ..self::fact(&fact.node, fact.iteration, Status::Failed, fact.attempt) }
}

/// The database's answer to the write of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactWrite {
    Stored,
    /// Another process owns the run.
    Lost,
    /// The database refused a value.
    Refused,
}

/// What was stored of several facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EachStored {
    All,
    /// The database refused the fact at this index, so its node failed. The facts after it are not stored.
    FailedAt(usize),
    Lost,
    /// The database refused even the failure.
    Nothing,
}

/// Stores facts that the database refused together, one after the other. The first that it refuses again fails its
/// node. What follows that fact may be its consequence, so it is not stored.
pub async fn store_each<E, F>(facts: Vec<NodeFact>, mut store: impl FnMut(NodeFact) -> F) -> Result<EachStored, E>
where
    F: Future<Output = Result<FactWrite, E>>,
{
    for (at, fact) in facts.into_iter().enumerate() {
        let failed = refused(&fact);
        let answer = match store(fact).await? {
            FactWrite::Stored => continue,
            FactWrite::Lost => return Ok(EachStored::Lost),
            FactWrite::Refused => store(failed).await?,
        };
        return Ok(match answer {
            FactWrite::Stored => EachStored::FailedAt(at),
            FactWrite::Lost => EachStored::Lost,
            FactWrite::Refused => EachStored::Nothing,
        });
    }
    Ok(EachStored::All)
}

/// A fact of a node, or of an item of a loop, that contains only its status.
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

/// Records the duration of an attempt in the metrics.
pub fn measure(kind: Kind, outcome: &'static str, took: Duration) {
    ::metrics::histogram!(metrics::NODE_DURATION.name, "kind" => kind.name(), "outcome" => outcome).record(took);
}
