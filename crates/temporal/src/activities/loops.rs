//! Loops: their lists, how their items stand, and what they come to.
//!
//! Invariants
//! - The list is resolved once and stored with the loop's start; whoever performs the loop again reads it there.
//! - The list and what items produced stay here: the workflow knows how many there are, and how each ended.
//! - What items produced is put together where it is stored, when the loop is over.
//!
//! What happens if this process dies: before the loop is taken, nothing has happened; after it, the loop is performed again and says
//! how its items stand; after it was gathered, its row answers.
//!
//! Not here: which item is next (`workflow`, by `kernel::run::each`), performing one (`node`).

use std::sync::Arc;

use engine::nodes::{self, Done, Work};
use kernel::definition::Kind;
use kernel::definition::plan::NodeIx;
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each;
use kernel::kind::{self, Config};
use kernel::run::each::{self, Index};
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use serde_json::Value;
use store::run::attempt::Hold;
use store::run::iteration::{Gathered, Looks};
use temporalio_sdk::activities::ActivityError;

use super::runs::Held;
use super::{Kit, again};
use crate::message::{Ended, Gather, Looping};

/// How many rows are read at once.
const STANDING_PAGE: i64 = 1_000;

impl Kit {
    /// Takes a loop, with its list if it has none yet, and says how its items stand.
    pub(super) async fn begin_loop(&self, hold: Hold, held: &Held, node: NodeIx) -> Result<Ended, ActivityError> {
        let spec = &held.version.definition.nodes[node];
        let stored = self.store.node_input(hold.execution, &spec.key, 0).await.map_err(again)?;
        let (input, config) = match stored {
            Some(stored) => (None, read(stored)),
            None => {
                match nodes::ready_apart(held.begun.workspace, spec, &self.scope_at(hold, held, node, 0).await?).await {
                    Ok((input, Work::ForEach(config))) => (Some(input), Ok(config)),
                    Ok(_) => (None, Err(another())),
                    Err(failure) => (None, Err(failure)),
                }
            }
        };
        let attempt = match self.take(hold, spec, 0, input.as_ref()).await? {
            Ok((attempt, _)) => attempt,
            Err(ended) => return Ok(ended),
        };
        let config = match config {
            Ok(config) if for_each::action(spec).is_some() => config,
            Ok(_) => {
                let failure = Failure::new(Class::BadGraph, "what is to be done for each item cannot be read");
                return self.ended(&attempt, Err(failure)).await;
            }
            Err(failure) => return self.ended(&attempt, Err(failure)).await,
        };
        let (parallel, on_item_error) = (config.parallel, config.on_item_error);
        let count = held.keep_list(node, config.items).len();
        let stand = self.standing(hold.execution, &spec.key).await?;
        Ok(Ended::Looping(Box::new(Looping { count, parallel, on_item_error, stand })))
    }

    /// How the items that were begun stand: neighbours that stand alike are one stretch.
    async fn standing(
        &self,
        execution: ExecutionId,
        key: &NodeKey,
    ) -> Result<Vec<(Index, Index, Status)>, ActivityError> {
        let (mut stand, mut after) = (Vec::<(Index, Index, Status)>::new(), 0);
        loop {
            let page = self.store.iterations(execution, key, after, STANDING_PAGE).await.map_err(again)?;
            let Some(last) = page.last() else { return Ok(stand) };
            after = last.iteration;
            for row in page {
                let Some(index) = each::index(row.iteration) else { continue };
                match stand.last_mut() {
                    Some((_, to, status)) if *to + 1 == index && *status == row.status => *to = index,
                    _ => stand.push((index, index, row.status)),
                }
            }
        }
    }

    /// The same scope, with an item of a loop to look at.
    pub(super) async fn with_item(
        &self,
        hold: Hold,
        held: &Held,
        node: NodeIx,
        index: Index,
        scope: Scope,
    ) -> Result<Scope, ActivityError> {
        let items = match held.list(node) {
            Some(items) => items,
            None => {
                let key = &held.version.definition.nodes[node].key;
                let stored = self.store.node_input(hold.execution, key, 0).await.map_err(again)?;
                held.keep_list(node, read(stored.unwrap_or_default()).map(|config| config.items).unwrap_or_default())
            }
        };
        let item = items.get(index).cloned().unwrap_or_default();
        Ok(Scope { item: Arc::new(item), index: Value::from(index), ..scope })
    }

    /// Settles a loop that is over.
    pub(super) async fn gather_loop(&self, gather: Gather) -> Result<Ended, ActivityError> {
        let Gather { hold, node, failed } = gather;
        let Some(held) = self.held(hold).await? else { return Ok(Ended::Lost) };
        let spec = &held.version.definition.nodes[node];
        let attempt = match self.take(hold, spec, 0, None).await? {
            Ok((attempt, _)) => attempt,
            Err(ended) => return Ok(ended),
        };
        let result = match failed {
            Some(index) => Err(self.item_failure(hold.execution, &spec.key, index).await?),
            None => {
                let stored = self.store.node_input(hold.execution, &spec.key, 0).await.map_err(again)?;
                let mode = read(stored.unwrap_or_default()).map(|config| config.on_item_error).unwrap_or_default();
                let gathered = self.store.gather(hold, hold.execution, &spec.key, mode, Looks::None).await;
                match gathered.map_err(again)? {
                    None => return Ok(Ended::Lost),
                    Some(Gathered::Stored(_)) => Ok(Done::gathered(Value::Null)),
                    Some(Gathered::TooLarge) => Err(for_each::too_large()),
                }
            }
        };
        self.ended(&attempt, result.and_then(nodes::storable)).await
    }

    /// Why an item failed, and which it was.
    async fn item_failure(
        &self,
        execution: ExecutionId,
        key: &NodeKey,
        index: Index,
    ) -> Result<Failure, ActivityError> {
        let rows = self.store.produced(execution, key, each::iteration(index) - 1, 1).await.map_err(again)?;
        let failure = rows.into_iter().next().and_then(|row| row.error);
        let failure = failure.unwrap_or_else(|| Failure::new(Class::ExecutionError, "it failed"));
        Ok(Failure { message: format!("item {index}: {}", failure.message), ..failure })
    }
}

/// A loop's stored input.
fn read(input: Value) -> Result<for_each::Config, Failure> {
    match kind::prepare(Kind::ForEach, input)? {
        Config::ForEach(config) => Ok(config),
        _ => Err(another()),
    }
}

fn another() -> Failure {
    Failure::new(Class::ExecutionError, "another kind's configuration")
}
