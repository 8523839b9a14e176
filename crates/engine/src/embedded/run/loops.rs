//! Loops: one node performed for each item of a list.
//!
//! Invariants
//! - Which item is next, and when it is over, is the kernel's to say (`kernel::run::each`); an item is a node row of its own.
//! - Items are read once, and after a crash from what the loop's own row was given.
//! - What items produced is not kept here: it is put together where it is stored when the loop is over, and of that only what is looked
//!   at comes here.
//!
//! What happens if this process dies: before the loop's first record nothing has happened; after it, the loop is performed
//! again, reads how its items stand, and goes on with those that have not settled.
//!
//! Not here: performing an item (`perform`), what a loop's configuration means (`kernel::kind::for_each`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kernel::definition::plan::NodeIx;
use kernel::definition::{Kind, Node};
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{self, Config, OnItemError};
use kernel::run::each::{self, Each, End, Event, Index, Shape, Stored};
use kernel::run::failure::{Class, Failure};
use kernel::run::node;
use kernel::{kind, run};
use serde_json::Value;
use store::run::attempt::Hold;
use store::run::iteration::{Gathered, Iteration, Looks};
use tokio::time::Instant;

use super::frame::{At, Frame};
use super::insist::insist;
use super::perform::{Brought, Outgoing};
use super::timers::Due;
use super::{Driver, Order};
use crate::embedded::Shared;
use crate::nodes::Done;

/// How many rows are read at once.
const STANDING_PAGE: i64 = 1_000;

/// A loop in flight.
pub(super) struct Loop {
    /// What is done for each item.
    pub(super) action: Arc<Node>,
    pub(super) mode: OnItemError,
    items: Vec<Value>,
    each: Each,
    /// The items that wait for their next attempt.
    waiting: BTreeSet<Index>,
}

/// A loop that was begun before: what it was given, and how its items stand.
pub(super) struct Reloaded {
    config: Config,
    rows: Vec<Iteration>,
}

impl Loop {
    /// Does this item wait for its next attempt, rather than being in one?
    pub(super) fn is_waiting(&self, index: Index) -> bool {
        self.waiting.contains(&index)
    }
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
    pub(super) async fn reload(&self, execution: ExecutionId, key: &NodeKey) -> Brought {
        match self.read_loop(execution, key).await {
            Ok(reloaded) => Brought::Loop(Box::new(reloaded)),
            Err(failure) => Brought::Result(Err(failure)),
        }
    }

    async fn read_loop(&self, execution: ExecutionId, key: &NodeKey) -> Result<Reloaded, Failure> {
        let input = insist(|| self.store.node_input(execution, key, 0)).await?.unwrap_or_default();
        let kind::Config::ForEach(config) = kind::prepare(Kind::ForEach, input)? else {
            return Err(Failure::new(Class::ExecutionError, "another kind's configuration"));
        };
        let mut rows = Vec::new();
        loop {
            let after = rows.last().map_or(0, |row: &Iteration| row.iteration);
            let page = insist(|| self.store.iterations(execution, key, after, STANDING_PAGE)).await?;
            if page.is_empty() {
                return Ok(Reloaded { config, rows });
            }
            rows.extend(page);
        }
    }

    /// Gathers what the items of a loop produced, or why it failed.
    pub(super) async fn collect(
        &self,
        hold: Hold,
        execution: ExecutionId,
        key: &NodeKey,
        end: End,
        (mode, looks): (OnItemError, Looks),
    ) -> Brought {
        if let End::Failed { index } = end {
            let failure = self.item_failure(execution, key, index).await.unwrap_or_else(|failure| failure);
            return Brought::Result(Err(failure));
        }
        match insist(|| self.store.gather(hold, execution, key, mode, looks)).await {
            Ok(Some(Gathered::Stored(output))) => Brought::Result(Ok(Done::gathered(output.unwrap_or_default()))),
            Ok(Some(Gathered::TooLarge)) => Brought::Result(Err(for_each::too_large())),
            Ok(None) => Brought::Lost,
            Err(failure) => Brought::Result(Err(failure)),
        }
    }

    /// Why an item failed, and which it was.
    async fn item_failure(&self, execution: ExecutionId, key: &NodeKey, index: Index) -> Result<Failure, Failure> {
        let before = each::iteration(index) - 1;
        let rows = insist(|| self.store.produced(execution, key, before, 1)).await?;
        let failure = rows.into_iter().next().and_then(|row| row.error);
        let failure = failure.unwrap_or_else(|| Failure::new(Class::ExecutionError, "it failed"));
        Ok(Failure { message: format!("item {index}: {}", failure.message), ..failure })
    }
}

impl Driver {
    /// Begins a loop: its list is stored with its start.
    pub(super) fn begin_loop(&mut self, at: At, attempt: u32, input: Value, config: Config) {
        self.running(at, attempt, Some(input), None);
        self.go_on_with_loop(at, config, &[]);
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
            let frame = self.frame(at.frame);
            frame.attempted(item, row.attempt);
            if row.status == node::Status::Running {
                frame.resumed.insert((item.node, item.iteration));
            }
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
        let (each, effects) = Each::resume(shape, stored, frame.stop.is_some());
        let waits = rows.iter().filter(|row| row.status == node::Status::Retrying);
        let waiting = waits.filter_map(|row| each::index(row.iteration)).collect();
        frame.loops.insert(at.node, Loop { action: Arc::new(action), mode, items, each, waiting });
        self.order(at, effects);
    }

    pub(super) fn apply_each(&mut self, at: At, event: Event) {
        let Some(each) = self.frame(at.frame).loops.get_mut(&at.node) else { return };
        if let Event::RetryDue { index, .. } = event {
            each.waiting.remove(&index);
        }
        let effects = each.each.apply(event);
        self.order(at, effects);
    }

    fn order(&mut self, at: At, effects: Vec<each::Effect>) {
        self.orders.extend(effects.into_iter().map(|effect| (at.frame, Order::Each(at.node, effect))));
    }

    pub(super) fn carry_out_item(&mut self, at: At, effect: each::Effect) {
        match effect {
            each::Effect::Perform { index, attempt } => self.ready.push_back((at.item(index), attempt)),
            each::Effect::Wait { index, attempt, wait } => self.wait_for_item(at, index, attempt, wait),
            each::Effect::Settle { index, status } => self.settle_item(at.item(index), status),
            each::Effect::Abort { index } => self.abort(at.item(index)),
            each::Effect::Over(end) => self.loop_over(at, end),
        }
    }

    fn wait_for_item(&mut self, at: At, index: Index, attempt: u32, wait: Duration) {
        if let Some(each) = self.frame(at.frame).loops.get_mut(&at.node) {
            each.waiting.insert(index);
        }
        self.retry_later(at.item(index), attempt, wait);
    }

    /// An item's end is recorded, and forgotten here.
    fn settle_item(&mut self, at: At, status: node::Status) {
        self.timers.remove(Due::Node(at));
        let frame = self.frame(at.frame);
        let mut fact = frame.fact(at, status);
        match (frame.results.remove(&(at.node, at.iteration)), status) {
            (Some(Ok(done)), node::Status::Completed) => fact.output = Some(done.output),
            (Some(Err(failure)), node::Status::Failed) => fact.error = Some(failure.at(frame.key(at).clone())),
            (result, node::Status::Unknown) => {
                let failure = result.and_then(Result::err).unwrap_or_else(Failure::unknown);
                fact.error = Some(failure.at(frame.key(at).clone()));
            }
            _ => {}
        }
        frame.forget(at);
        self.note(at.frame, fact);
    }

    fn loop_over(&mut self, at: At, end: End) {
        match end {
            // Once their ends are stored.
            End::Completed | End::Failed { .. } => self.calls.push((at, Outgoing::Collect(end))),
            End::Stopped => {
                self.tell(at, "canceled", None);
                self.aborted(at, false);
            }
            End::Lost { .. } => {
                self.tell(at, "failed", None);
                self.leave(at);
                self.frame(at.frame).loops.remove(&at.node);
                self.apply(at.frame, run::Event::NodeSettled { node: at.node, end: node::End::Lost });
            }
        }
    }
}
