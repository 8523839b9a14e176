//! Reads stored loops: the configuration, the states of the items, and the combined output.
//!
//! Invariants
//! - The store combines the items' outputs. Only the parts that later nodes read are loaded.
//!
//! Not here: which item is next (`kernel::orchestration`), what a loop's configuration means
//! (`kernel::kind::for_each`).

use kernel::definition::Kind;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{self, OnItemError};
use kernel::kind::{self, Config};
use kernel::run::failure::{Class, Failure};
use kernel::run::item_loop::{self, Index};
use serde_json::Value;
use store::Store;
use store::run::attempt::Ownership;
use store::run::iteration::{CollectedOutput, Iteration, OutputUse};

use super::Error;
use crate::nodes::{self, NodeOutput};

/// How many rows are read at once.
const PAGE: i64 = 1_000;

/// Reads a loop's configuration from the loop's stored input.
pub fn config(input: Value) -> Result<for_each::Config, Failure> {
    match kind::prepare(Kind::ForEach, &input)? {
        Config::ForEach(config) => Ok(config),
        _ => Err(nodes::of_another_kind()),
    }
}

/// Reads all items of the loop that have begun, in order.
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

/// The output of a loop that has ended, or the failure of the item that made the loop fail. None if another process
/// owns the run.
pub async fn collect(
    store: &Store,
    (hold, execution): (Ownership, ExecutionId),
    key: &NodeKey,
    failed: Option<Index>,
    (mode, looks): (OnItemError, OutputUse),
) -> Result<Option<NodeOutput>, Error> {
    if let Some(index) = failed {
        let rows = store.iteration_results(execution, key, item_loop::iteration(index) - 1, 1).await?;
        let failure = rows.into_iter().next().and_then(|row| row.error);
        let failure =
            failure.unwrap_or_else(|| Failure::new(Class::ExecutionError, "the item failed; no reason was stored"));
        return Err(Failure { message: format!("item {index}: {}", failure.message), ..failure }.into());
    }
    match store.collect_iterations(hold, execution, key, mode, looks).await? {
        None => Ok(None),
        Some(CollectedOutput::Stored(output)) => Ok(Some(NodeOutput::already_stored(output.unwrap_or_default()))),
        Some(CollectedOutput::TooLarge) => Err(for_each::too_large().into()),
    }
}
