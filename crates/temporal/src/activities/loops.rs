//! Loops: their lists, how their items stand, and what they come to.
//!
//! Invariants
//! - The list is resolved once and stored with the loop's start; whoever performs the loop again reads it there.
//! - The list and what items produced stay here: the workflow knows how many there are, and how each ended.
//! - What items produced is put together where it is stored, when the loop is over.
//!
//! What happens if this process dies: before the loop is taken, nothing has happened; after it, the loop is performed
//! again and says how its items stand; after it was gathered, its row answers.
//!
//! Not here: which item is next (`workflow`, by `kernel::run::each`), performing one (`node`).

use std::sync::Arc;

use engine::attempt::collect;
use engine::nodes::{self, Work};
use kernel::definition::plan::NodeIx;
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{self, OnItemError};
use kernel::run::each::{self, Index};
use kernel::run::failure::{Class, Failure};
use kernel::run::node::Status;
use serde_json::Value;
use store::run::attempt::Hold;
use store::run::iteration::Looks;
use temporalio_sdk::activities::ActivityError;

use super::runs::Held;
use super::{Kit, again, or_repeat};
use crate::message::{Ended, Gather, Looping};

impl Kit {
    /// Takes a loop, with its list if it has none yet, and says how its items stand.
    pub(super) async fn begin_loop(&self, hold: Hold, held: &Held, node: NodeIx) -> Result<Ended, ActivityError> {
        let spec = &held.version.definition.nodes[node];
        let stored = self.store.node_input(hold.execution, &spec.key, 0).await.map_err(again)?;
        let (input, config) = match stored {
            Some(stored) => (None, collect::config(stored)),
            None => {
                match nodes::ready_apart(held.begun.workspace, spec, &self.scope_at(hold, held, node, 0).await?).await {
                    Ok((input, Work::ForEach(config))) => (Some(input), Ok(config)),
                    Ok(_) => (None, Err(Failure::new(Class::ExecutionError, "another kind's configuration"))),
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
        let stand = match self.standing(hold.execution, &spec.key).await? {
            Ok(stand) => stand,
            Err(failure) => return self.ended(&attempt, Err(failure)).await,
        };
        Ok(Ended::Looping(Box::new(Looping { count, parallel, on_item_error, stand })))
    }

    /// How the items that were begun stand: neighbours that stand alike are one stretch.
    async fn standing(
        &self,
        execution: ExecutionId,
        key: &NodeKey,
    ) -> Result<Result<Vec<(Index, Index, Status)>, Failure>, ActivityError> {
        let items = match or_repeat(collect::items(&self.store, execution, key).await)? {
            Ok(items) => items,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut stand = Vec::<(Index, Index, Status)>::new();
        for row in items {
            let Some(index) = each::index(row.iteration) else { continue };
            match stand.last_mut() {
                Some((_, to, status)) if *to + 1 == index && *status == row.status => *to = index,
                _ => stand.push((index, index, row.status)),
            }
        }
        Ok(Ok(stand))
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
                held.keep_list(
                    node,
                    collect::config(stored.unwrap_or_default()).map(|config| config.items).unwrap_or_default(),
                )
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
        let mode = match failed {
            Some(_) => OnItemError::default(),
            None => {
                let stored = self.store.node_input(hold.execution, &spec.key, 0).await.map_err(again)?;
                collect::config(stored.unwrap_or_default()).map(|config| config.on_item_error).unwrap_or_default()
            }
        };
        let run = (hold, hold.execution);
        let collected = collect::collect(&self.store, run, &spec.key, failed, (mode, Looks::None)).await;
        let result = match or_repeat(collected)? {
            Ok(None) => return Ok(Ended::Lost),
            Ok(Some(done)) => nodes::storable(done),
            Err(failure) => Err(failure),
        };
        self.ended(&attempt, result).await
    }
}
