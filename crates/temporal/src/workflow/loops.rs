//! Loops of a run: `kernel::run::each::Each`, whose items are performed like nodes.
//!
//! Invariants
//! - Nothing here decides which item is next or when a loop is over; the kernel does, and both engines ask it.
//! - A loop knows how its items ended, never what they are: the list stays in its row.

use kernel::definition::plan::NodeIx;
use kernel::definition::{Delivery, Manner};
use kernel::run;
use kernel::run::each::{self, Each, Effect, End, Event, Shape, Stored};
use kernel::run::failure::Policy;
use kernel::run::node::Status;

use super::drive::{At, Driver, Ordered};
use crate::message::{LoopEnd, Looping, Order};

impl Driver<'_> {
    /// A loop begins, or goes on where its rows say.
    pub(super) fn go_on_with_loop(&mut self, node: NodeIx, looping: Looping) {
        let Looping { count, parallel, on_item_error, stand } = looping;
        // Attempts are counted, and what is lost is found out, by whoever performs an item.
        let (retry, delivery) = (Policy::ONCE, Delivery::default());
        let key = self.shape(At { node, iteration: 0 }).key.clone();
        let parallel = usize::try_from(parallel).unwrap_or(1).max(1);
        let shape = Shape { execution: self.hold.execution, key, count, parallel, on_item_error, retry, delivery };
        if self.shape(At { node, iteration: 1 }).kind.manner() == Manner::Spawns {
            let open = stand.iter().filter(|(_, _, status)| !status.is_settled());
            let begun = open.flat_map(|(from, to, _)| (*from..=*to).map(each::iteration));
            self.resumed.extend(begun.map(|iteration| At { node, iteration }));
        }
        let stored = stand.into_iter().flat_map(|(from, to, status)| {
            // One that waits for its next attempt is performed like any other: its row keeps the time.
            let status = if status == Status::Retrying { Status::Running } else { status };
            (from..=to).map(move |index| Stored { index, status, attempt: 1 })
        });
        let (each, effects) = Each::resume(shape, stored, self.stopped);
        self.loops.insert(node, each);
        self.effects.extend(effects.into_iter().map(|effect| Ordered::Each(node, effect)));
    }

    pub(super) fn apply_each(&mut self, node: NodeIx, event: Event) {
        if let Some(each) = self.loops.get_mut(&node) {
            self.effects.extend(each.apply(event).into_iter().map(|effect| Ordered::Each(node, effect)));
        }
    }

    pub(super) fn carry_out_for_a_loop(&mut self, node: NodeIx, effect: Effect) {
        let item = |index| At { node, iteration: each::iteration(index) };
        match effect {
            Effect::Perform { index, .. } => self.ready.push_back(item(index)),
            Effect::Wait { index, attempt, wait } => self.wait_for_attempt(item(index), attempt, wait),
            Effect::Settle { index, status } => self.settle_item(item(index), status),
            Effect::Abort { index } => self.abort(item(index)),
            Effect::Over(end) => self.loop_over(node, end),
        }
    }

    fn settle_item(&mut self, at: At, status: Status) {
        if self.stored.remove(&at) {
            return;
        }
        // One that is given up while it waits for its next attempt.
        if let Some(token) = self.waiting.get(&at) {
            token.cancel();
        }
        self.orders.push(Order::Settle { node: at.node, iteration: at.iteration, status });
    }

    fn loop_over(&mut self, node: NodeIx, end: End) {
        self.loops.remove(&node);
        let how = match end {
            End::Completed => LoopEnd::Completed,
            End::Failed { index } => LoopEnd::Failed { index },
            End::Lost { index } => LoopEnd::Lost { index },
            End::Stopped => return self.apply(run::Event::NodeAborted { node, begun: false }),
        };
        // Gathered when what its items came to is stored.
        self.over.insert(node, how);
        self.ready.push_back(At { node, iteration: 0 });
    }
}
