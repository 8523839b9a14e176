//! Loops: one node performed for each item of a list.
//!
//! Invariants
//! - Which item is next, and when it is over, is the kernel's to say (`kernel::orchestration`); an item is a node row
//!   of its own.
//! - Items are read once, and after a crash from what the loop's own row was given.
//! - What items produced is not kept here: it is put together where it is stored when the loop is over, and of that
//!   only what is looked at comes here.
//!
//! What happens if this process dies: before the loop's first record nothing has happened; after it, the loop is
//! performed again, reads how its items stand, and goes on with those that have not settled.
//!
//! Not here: performing an item (`perform`), what a loop's configuration means (`kernel::kind::for_each`).

use std::sync::Arc;

use kernel::definition::Node;
use kernel::definition::plan::NodeIx;
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{self, Config, OnItemError};
use kernel::orchestration::Event;
use kernel::run::each::{self, Index, Shape, Stored};
use kernel::run::failure::{Class, Failure};
use kernel::run::node;
use serde_json::Value;
use store::run::attempt::Hold;
use store::run::iteration::{Iteration, Looks};
use tokio::time::Instant;

use super::Driver;
use super::frame::{At, Frame};
use super::perform::Brought;
use super::timers::Due;
use crate::attempt::{collect, until_answered};
use crate::embedded::Shared;

/// A loop in flight.
pub(super) struct Loop {
    /// What is done for each item.
    pub(super) action: Arc<Node>,
    mode: OnItemError,
    items: Vec<Value>,
}

/// A loop that was begun before: what it was given, and how its items stand.
pub(super) struct Reloaded {
    config: Config,
    rows: Vec<Iteration>,
}

impl Frame {
    /// What is done for an item sees what the loop sees, the item, and its place.
    pub(super) fn item_scope(&self, node: NodeIx, index: Index) -> Scope {
        let item = self.loops.get(&node).and_then(|each| each.items.get(index)).cloned().unwrap_or_default();
        let scope = self.version.view(node, &self.scope).into_owned();
        Scope { item: Arc::new(item), index: Value::from(index), ..scope }
    }
}

impl Shared {
    /// Reads a loop that was begun before.
    async fn reload(&self, execution: ExecutionId, key: &NodeKey) -> Brought {
        match self.read_loop(execution, key).await {
            Ok(reloaded) => Brought::Loop(Box::new(reloaded)),
            Err(failure) => Brought::Result(Err(failure)),
        }
    }

    async fn read_loop(&self, execution: ExecutionId, key: &NodeKey) -> Result<Reloaded, Failure> {
        let input = until_answered(|| self.store.node_input(execution, key, 0)).await?.unwrap_or_default();
        let rows = until_answered(|| collect::items(&self.store, execution, key)).await?;
        Ok(Reloaded { config: collect::config(input)?, rows })
    }

    /// Gathers what the items of a loop produced, or why it failed.
    async fn collect(
        &self,
        hold: Hold,
        execution: ExecutionId,
        key: &NodeKey,
        failed: Option<Index>,
        modes: (OnItemError, Looks),
    ) -> Brought {
        match until_answered(|| collect::collect(&self.store, (hold, execution), key, failed, modes)).await {
            Ok(Some(done)) => Brought::Result(Ok(done)),
            Ok(None) => Brought::Lost,
            Err(failure) => Brought::Result(Err(failure)),
        }
    }
}

impl Driver {
    /// Begins a loop: its list is stored with its start.
    pub(super) fn begin_loop(&mut self, at: At, attempt: u32, input: Value, config: Config) {
        self.running(at, attempt, Some(input), None);
        self.go_on_with_loop(at, config, &[]);
    }

    /// How the items of a loop stand that was begun before is read first.
    pub(super) fn reload(&mut self, at: At, attempt: u32) {
        self.running(at, attempt, None, None);
        let frame = self.frame(at.frame);
        let (execution, key) = (frame.execution(), frame.key(at).clone());
        self.go(at, |shared, _| async move { shared.reload(execution, &key).await });
    }

    /// A loop is over: what its items produced is gathered, or why this one failed.
    pub(super) fn collect(&mut self, at: At, failed: Option<Index>) {
        let frame = self.frame(at.frame);
        let (execution, key) = (frame.execution(), frame.key(at).clone());
        let mode = frame.loops.get(&at.node).map(|each| each.mode).unwrap_or_default();
        let modes = (mode, frame.version.looks_at_loop(&key));
        self.go(at, |shared, hold| async move { shared.collect(hold, execution, &key, failed, modes).await });
    }

    /// A loop that was begun before goes on.
    pub(super) fn reloaded(&mut self, at: At, reloaded: Reloaded) {
        let Reloaded { config, rows } = reloaded;
        let now = Instant::now();
        for row in &rows {
            let item = At { iteration: row.iteration, ..at };
            if row.status.is_settled() {
                continue;
            }
            self.frame(at.frame).attempted(item, row.attempt);
            if let Some(wait) = row.next_in {
                self.timers.set(Due::Node(item), now + wait);
            }
        }
        self.go_on_with_loop(at, config, &rows);
        let begun = rows.iter().filter(|row| row.status == node::Status::Running);
        for item in begun.map(|row| At { iteration: row.iteration, ..at }) {
            if self.frame(at.frame).kind(item).makes_more() {
                self.turns.seek(item);
            }
        }
        self.ready.extend(self.turns.found(at));
    }

    fn go_on_with_loop(&mut self, at: At, config: Config, rows: &[Iteration]) {
        let frame = self.frame(at.frame);
        let Some(action) = for_each::action(&frame.version.definition.nodes[at.node]) else {
            let failure = Failure::new(Class::BadGraph, "what is to be done for each item cannot be read");
            return self.ended(at, Err(failure));
        };
        let Config { items, parallel, on_item_error: mode } = config;
        let shape = Shape::new(frame.execution(), &action, items.len(), parallel, mode);
        let stored = rows.iter().filter_map(|row| {
            Some(Stored { index: each::index(row.iteration)?, status: row.status, attempt: row.attempt })
        });
        let does = action.kind;
        frame.loops.insert(at.node, Loop { action: Arc::new(action), mode, items });
        self.apply(at.frame, Event::LoopOpened { node: at.node, shape, does, items: stored.collect() });
    }
}
