//! Loops: their lists, the states of their items, and their outputs.
//!
//! Invariants
//! - The list is resolved once and stored with the loop's start. Every later attempt reads it from there.
//! - The list and the items' outputs stay with the activities. The workflow knows only the number of items, and how
//!   each ended.
//! - The store combines the items' outputs when the loop is over.
//!
//! What happens if this process dies: before the loop begins, nothing has happened. After it, the loop is performed
//! again and returns the states of its items. After it was collected, its row returns the result.
//!
//! Not here: which item is next (`workflow`, by `kernel::run::item_loop`), performing an item (`node`).

use std::sync::Arc;

use engine::attempt::collect;
use engine::nodes::{self, Work};
use kernel::definition::plan::NodeIx;
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{self, OnItemError};
use kernel::run::failure::Failure;
use kernel::run::item_loop::{self, Index};
use kernel::run::node::Status;
use serde_json::Value;
use store::run::attempt::Ownership;
use store::run::iteration::OutputUse;

use super::runs::LoadedRun;
use super::{Activity, RunActivities, failure_or_repeat, repeat_on, resumed};
use crate::message::{CollectRequest, LoopState, PerformResult};

impl RunActivities {
    /// Begins a loop, stores its list if that is not stored yet, and returns the states of its items.
    pub(super) async fn begin_loop(&self, hold: Ownership, run: &LoadedRun, node: NodeIx) -> Activity<PerformResult> {
        let spec = &run.version.definition.nodes[node];
        let stored = self.store.node_input(hold.execution, &spec.key, 0).await.map_err(repeat_on)?;
        let (input, config) = match stored {
            Some(stored) => (None, collect::config(stored)),
            None => {
                let scope = self.scope_at(hold, run, node, 0).await?;
                match nodes::prepare_on_thread(run.begun.workspace, spec, &scope).await {
                    Ok((input, Work::ForEach(config))) => (Some(input), Ok(config)),
                    Ok(_) => (None, Err(nodes::of_another_kind())),
                    Err(failure) => (None, Err(failure)),
                }
            }
        };
        let attempt = match self.begin_attempt(hold, spec, 0, input.as_ref()).await? {
            Ok((attempt, _)) => attempt,
            Err(ended) => return Ok(ended),
        };
        let config = match config.and_then(|config| for_each::readable_action(spec).map(|_| config)) {
            Ok(config) => config,
            Err(failure) => return self.end_attempt(&attempt, Err(failure)).await,
        };
        let (parallel, on_item_error) = (config.parallel, config.on_item_error);
        let count = run.cache_list(node, config.items).len();
        let items = match self.item_states(hold.execution, &spec.key).await? {
            Ok(items) => items,
            Err(failure) => return self.end_attempt(&attempt, Err(failure)).await,
        };
        Ok(PerformResult::Loop(Box::new(LoopState { count, parallel, on_item_error, items })))
    }

    /// The statuses with which the items that were begun are resumed. Neighbours with the same status are one range.
    async fn item_states(
        &self,
        execution: ExecutionId,
        key: &NodeKey,
    ) -> Activity<Result<Vec<(Index, Index, Status)>, Failure>> {
        let items = match failure_or_repeat(collect::items(&self.store, execution, key).await)? {
            Ok(items) => items,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut ranges = Vec::<(Index, Index, Status)>::new();
        for row in items {
            let Some(index) = item_loop::index(row.iteration) else { continue };
            let resumed = resumed(row.status);
            match ranges.last_mut() {
                Some((_, to, status)) if *to + 1 == index && *status == resumed => *to = index,
                _ => ranges.push((index, index, resumed)),
            }
        }
        Ok(Ok(ranges))
    }

    /// Adds an item of a loop, and its index, to a scope.
    pub(super) async fn with_item(
        &self,
        hold: Ownership,
        run: &LoadedRun,
        node: NodeIx,
        index: Index,
        scope: Scope,
    ) -> Activity<Scope> {
        let items = match run.list(node) {
            Some(items) => items,
            None => {
                let key = &run.version.definition.nodes[node].key;
                let stored = self.store.node_input(hold.execution, key, 0).await.map_err(repeat_on)?;
                run.cache_list(
                    node,
                    collect::config(stored.unwrap_or_default()).map(|config| config.items).unwrap_or_default(),
                )
            }
        };
        let item = items.get(index).cloned().unwrap_or_default();
        Ok(Scope { item: Arc::new(item), index: Value::from(index), ..scope })
    }

    /// Collects the outputs of a loop that is over, and settles it.
    pub(super) async fn collect_loop(&self, request: CollectRequest) -> Activity<PerformResult> {
        let CollectRequest { hold, node, failed } = request;
        let Some(run) = self.load_run(hold).await? else { return Ok(PerformResult::Lost) };
        let spec = &run.version.definition.nodes[node];
        let attempt = match self.begin_attempt(hold, spec, 0, None).await? {
            Ok((attempt, _)) => attempt,
            Err(ended) => return Ok(ended),
        };
        let mode = match failed {
            Some(_) => OnItemError::default(),
            None => {
                let stored = self.store.node_input(hold.execution, &spec.key, 0).await.map_err(repeat_on)?;
                collect::config(stored.unwrap_or_default()).map(|config| config.on_item_error).unwrap_or_default()
            }
        };
        let owner = (hold, hold.execution);
        let collected = collect::collect(&self.store, owner, &spec.key, failed, (mode, OutputUse::None)).await;
        let result = match failure_or_repeat(collected)? {
            Ok(None) => return Ok(PerformResult::Lost),
            Ok(Some(done)) => Ok(done),
            Err(failure) => Err(failure),
        };
        self.end_attempt(&attempt, result).await
    }
}
