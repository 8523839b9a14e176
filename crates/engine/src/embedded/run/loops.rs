//! Loops: a loop performs one node for each item of a list.
//!
//! Invariants
//! - The kernel decides which item is next and when the loop is over (`kernel::orchestration`). Each item has its own
//!   node row.
//! - The list is resolved once. After a crash it is read from the input on the loop's own row.
//! - The items' outputs are not kept in memory. The store combines them when the loop is over, and returns only the
//!   parts that later nodes read.
//!
//! What happens if this process dies: before the loop's first record, nothing has happened. After it, the loop is
//! performed again, reads the state of its items, and continues with those that have not settled.
//!
//! Not here: performing an item (`perform`), what a loop's configuration means (`kernel::kind::for_each`).

use std::sync::Arc;

use kernel::definition::Node;
use kernel::definition::plan::NodeIx;
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{self, Config, OnItemError};
use kernel::orchestration::Event;
use kernel::run::failure::Failure;
use kernel::run::item_loop::{self, Index, LoopSpec, StoredItem};
use kernel::run::node;
use serde_json::Value;
use store::run::attempt::Ownership;
use store::run::iteration::{Iteration, OutputUse};
use tokio::time::Instant;

use super::TreeDriver;
use super::frame::{ExecutionFrame, NodeRef};
use super::perform::FlightResult;
use super::timers::TimerKey;
use crate::attempt::{collect, retry_until_answered};
use crate::embedded::Shared;

/// A loop in flight.
pub(super) struct RunningLoop {
    /// The node that is performed for each item.
    pub(super) action: Arc<Node>,
    mode: OnItemError,
    items: Vec<Value>,
}

/// A loop that was begun earlier, as stored: its input and the state of its items.
pub(super) struct StoredLoop {
    config: Config,
    rows: Vec<Iteration>,
}

impl ExecutionFrame {
    /// The scope of an item: the scope of the loop, plus the item and its index.
    pub(super) fn item_scope(&self, node: NodeIx, index: Index) -> Scope {
        let item = self.loops.get(&node).and_then(|running| running.items.get(index)).cloned().unwrap_or_default();
        let scope = self.version.view(node, &self.scope).into_owned();
        Scope { item: Arc::new(item), index: Value::from(index), ..scope }
    }
}

impl Shared {
    /// Reads a loop that was begun earlier.
    async fn read_stored_loop(&self, execution: ExecutionId, key: &NodeKey) -> Result<FlightResult, Failure> {
        let input = retry_until_answered(|| self.store.node_input(execution, key, 0)).await?.unwrap_or_default();
        let rows = retry_until_answered(|| collect::items(&self.store, execution, key)).await?;
        Ok(FlightResult::Loop(Box::new(StoredLoop { config: collect::config(input)?, rows })))
    }

    /// Combines the outputs of a loop's items, or returns why the loop failed.
    async fn collect(
        &self,
        hold: Ownership,
        execution: ExecutionId,
        key: &NodeKey,
        failed: Option<Index>,
        modes: (OnItemError, OutputUse),
    ) -> Result<FlightResult, Failure> {
        let collect = || collect::collect(&self.store, (hold, execution), key, failed, modes);
        let collected = retry_until_answered(collect).await?;
        Ok(collected.map_or(FlightResult::Lost, |done| FlightResult::Result(Ok(done))))
    }
}

impl TreeDriver {
    /// Begins a loop. Its list is stored with its start.
    pub(super) fn begin_loop(&mut self, at: NodeRef, attempt: u32, input: Value, config: Config) {
        self.record_running(at, attempt, Some(input), None);
        self.open_loop(at, config, &[]);
    }

    /// Reads the items of a loop that was begun earlier, before it continues.
    pub(super) fn reload(&mut self, at: NodeRef, attempt: u32) {
        self.record_running(at, attempt, None, None);
        let frame = self.frame(at.frame);
        let (execution, key) = (frame.execution(), frame.key(at).clone());
        self.launch_after_commit(at, |shared, _| async move { shared.read_stored_loop(execution, &key).await });
    }

    /// Collects the outputs of a loop that is over, or the failure of the item `failed`.
    pub(super) fn collect(&mut self, at: NodeRef, failed: Option<Index>) {
        let frame = self.frame(at.frame);
        let (execution, key) = (frame.execution(), frame.key(at).clone());
        let mode = frame.loops.get(&at.node).map(|running| running.mode).unwrap_or_default();
        let modes = (mode, frame.version.loop_parts_read(&key));
        self.launch_after_commit(at, |shared, hold| async move {
            shared.collect(hold, execution, &key, failed, modes).await
        });
    }

    /// Continues a loop that was begun earlier.
    pub(super) fn resume_loop(&mut self, at: NodeRef, stored_loop: StoredLoop) {
        let StoredLoop { config, rows } = stored_loop;
        let now = Instant::now();
        for row in &rows {
            let item = NodeRef { iteration: row.iteration, ..at };
            if row.status.is_settled() {
                continue;
            }
            self.frame(at.frame).set_attempt(item, row.attempt);
            if let Some(wait) = row.next_in {
                self.timers.set(TimerKey::Node(item), now + wait);
            }
        }
        self.open_loop(at, config, &rows);
        let begun = rows.iter().filter(|row| row.status == node::Status::Running);
        for item in begun.map(|row| NodeRef { iteration: row.iteration, ..at }) {
            if self.frame(at.frame).kind(item).makes_more() {
                self.child_slots.expect_existing(item);
            }
        }
        self.ready.extend(self.child_slots.found_existing(at));
    }

    fn open_loop(&mut self, at: NodeRef, config: Config, rows: &[Iteration]) {
        let frame = self.frame(at.frame);
        let action = match for_each::readable_action(&frame.version.definition.nodes[at.node]) {
            Ok(action) => action,
            Err(failure) => return self.attempt_ended(at, Err(failure)),
        };
        let Config { items, parallel, on_item_error: mode } = config;
        let shape = LoopSpec::new(frame.execution(), &action, items.len(), parallel, mode);
        let stored = rows.iter().filter_map(|row| {
            Some(StoredItem { index: item_loop::index(row.iteration)?, status: row.status, attempt: row.attempt })
        });
        let does = action.kind;
        frame.loops.insert(at.node, RunningLoop { action: Arc::new(action), mode, items });
        self.apply(at.frame, Event::LoopOpened { node: at.node, shape, does, items: stored.collect() });
    }
}
