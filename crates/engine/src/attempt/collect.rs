//! Loops as they are stored: the list, how the items stand, and what they came to.
//!
//! Invariants
//! - What items produced is put together where it is stored; of that only what is looked at comes here.
//!
//! Not here: which item is next (`kernel::orchestration`), what a loop's configuration means
//! (`kernel::kind::for_each`).

use kernel::definition::Kind;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{self, OnItemError};
use kernel::kind::{self, Config};
use kernel::run::each::{self, Index};
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use store::Store;
use store::run::attempt::Hold;
use store::run::iteration::{Gathered, Iteration, Looks};

use super::Error;
use crate::nodes::Done;

/// How many rows are read at once.
const PAGE: i64 = 1_000;

/// A loop's stored input.
pub fn config(input: Value) -> Result<for_each::Config, Failure> {
    match kind::prepare(Kind::ForEach, input)? {
        Config::ForEach(config) => Ok(config),
        _ => Err(Failure::new(Class::ExecutionError, "another kind's configuration")),
    }
}

/// The items that were begun, in order.
pub async fn items(store: &Store, execution: ExecutionId, key: &NodeKey) -> Result<Vec<Iteration>, Error> {
    let mut items: Vec<Iteration> = Vec::new();
    loop {
        let after = items.last().map_or(0, |item| item.iteration);
        let page = store.iterations(execution, key, after, PAGE).await?;
        if page.is_empty() {
            return Ok(items);
        }
        items.extend(page);
    }
}

/// What a loop that is over came to: what its items produced, or why this one failed it. None if the run is another's
/// by now.
pub async fn collect(
    store: &Store,
    (hold, execution): (Hold, ExecutionId),
    key: &NodeKey,
    failed: Option<Index>,
    (mode, looks): (OnItemError, Looks),
) -> Result<Option<Done>, Error> {
    if let Some(index) = failed {
        let rows = store.produced(execution, key, each::iteration(index) - 1, 1).await?;
        let failure = rows.into_iter().next().and_then(|row| row.error);
        let failure = failure.unwrap_or_else(|| Failure::new(Class::ExecutionError, "it failed"));
        return Err(Failure { message: format!("item {index}: {}", failure.message), ..failure }.into());
    }
    match store.gather(hold, execution, key, mode, looks).await? {
        None => Ok(None),
        Some(Gathered::Stored(output)) => Ok(Some(Done::gathered(output.unwrap_or_default()))),
        Some(Gathered::TooLarge) => Err(for_each::too_large().into()),
    }
}
