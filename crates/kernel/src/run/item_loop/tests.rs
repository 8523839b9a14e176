//! What a loop does, event by event, and what holds whatever happens.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::run::failure::{Class, Failure};

fn shape(count: usize, parallel: usize, on_item_error: OnItemError) -> LoopSpec {
    LoopSpec {
        execution: ExecutionId(Uuid::nil()),
        key: NodeKey::new("each").expect("a good name"),
        count,
        parallel,
        on_item_error,
        retry: Policy { max_attempts: 2, ..Policy::DEFAULT },
        delivery: Delivery::default(),
    }
}

fn begin(shape: LoopSpec) -> (ItemLoop, Vec<Effect>) {
    ItemLoop::resume(shape, [], false)
}

fn failed(index: Index, attempt: u32, class: Class) -> (Index, AttemptEvent) {
    (index, AttemptEvent::Failed { attempt, failure: Failure::new(class, "no") })
}

fn apply(each: &mut ItemLoop, (index, fact): (Index, AttemptEvent)) -> Vec<Effect> {
    each.apply(index, fact)
}

fn shown(effects: &[Effect]) -> String {
    let line = |effect: &Effect| match effect {
        Effect::Item(index, AttemptEffect::Perform { attempt }) => format!("perform {index}#{attempt}"),
        Effect::Item(index, AttemptEffect::Wait { attempt, .. }) => format!("wait {index}#{attempt}"),
        Effect::Item(index, AttemptEffect::Settle(end)) => format!("{index} {}", end.status().name()),
        Effect::Item(index, AttemptEffect::Abort) => format!("abort {index}"),
        Effect::Finish(end) => format!("over {end:?}"),
    };
    effects.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[test]
fn an_empty_list_is_over_at_once() {
    assert_eq!(shown(&begin(shape(0, 5, OnItemError::Fail)).1), "over Completed");
}

#[test]
fn items_begin_in_order_as_there_is_room() {
    let (mut each, effects) = begin(shape(4, 2, OnItemError::Fail));
    assert_eq!(shown(&effects), "perform 0#1, perform 1#1");
    assert_eq!(shown(&each.apply(1, AttemptEvent::Succeeded { attempt: 1, took: None })), "1 COMPLETED, perform 2#1");
    assert_eq!(shown(&each.apply(1, AttemptEvent::Succeeded { attempt: 1, took: None })), "", "a repeated event");
    assert_eq!(shown(&each.apply(0, AttemptEvent::Skipped { attempt: 1 })), "0 SKIPPED, perform 3#1");
    assert_eq!(shown(&each.apply(3, AttemptEvent::Succeeded { attempt: 1, took: None })), "3 COMPLETED");
    assert_eq!(
        shown(&each.apply(2, AttemptEvent::Succeeded { attempt: 1, took: None })),
        "2 COMPLETED, over Completed"
    );
}

#[test]
fn an_item_is_tried_again_and_keeps_its_place_among_the_open() {
    let (mut each, _) = begin(shape(2, 1, OnItemError::Continue));
    assert_eq!(shown(&apply(&mut each, failed(0, 1, Class::Timeout))), "wait 0#2");
    assert_eq!(shown(&each.apply(0, AttemptEvent::RetryDue { attempt: 2 })), "perform 0#2");
    assert_eq!(shown(&apply(&mut each, failed(0, 2, Class::Timeout))), "0 FAILED, perform 1#1");
    assert_eq!(
        shown(&each.apply(1, AttemptEvent::Succeeded { attempt: 1, took: None })),
        "1 COMPLETED, over Completed"
    );
}

#[test]
fn a_failure_begins_nothing_more_and_waits_for_what_is_in_flight() {
    let (mut each, _) = begin(shape(9, 3, OnItemError::Fail));
    apply(&mut each, failed(2, 1, Class::Timeout));
    assert_eq!(shown(&apply(&mut each, failed(1, 1, Class::ValidationError))), "1 FAILED, 2 CANCELED");
    assert_eq!(shown(&apply(&mut each, failed(0, 1, Class::Timeout))), "0 FAILED, over Failed { index: 0 }");
}

#[test]
fn a_stop_aborts_what_is_in_flight() {
    let (mut each, _) = begin(shape(9, 2, OnItemError::Collect));
    apply(&mut each, failed(0, 1, Class::Timeout));
    assert_eq!(shown(&each.stop()), "0 CANCELED, abort 1");
    assert_eq!(shown(&each.stop()), "");
    assert_eq!(shown(&each.apply(1, AttemptEvent::Aborted { begun: true })), "1 CANCELED, over Stopped");
}

#[test]
fn what_may_be_performed_once_is_lost_in_a_crash_and_fails_the_loop_whatever_its_mode() {
    let once = LoopSpec { delivery: Delivery::AtMostOnce, ..shape(5, 2, OnItemError::Continue) };
    let stored = [
        StoredItem { index: 0, status: Status::Completed, attempt: 1 },
        StoredItem { index: 1, status: Status::Running, attempt: 1 },
    ];
    let (_, effects) = ItemLoop::resume(once, stored, false);
    assert_eq!(shown(&effects), "1 UNKNOWN, over Lost { index: 1 }");
}

#[test]
fn a_stop_loses_what_may_be_performed_once_and_had_begun() {
    let (mut each, _) = begin(LoopSpec { delivery: Delivery::AtMostOnce, ..shape(9, 2, OnItemError::Collect) });
    assert_eq!(shown(&each.stop()), "abort 0, abort 1");
    assert_eq!(shown(&each.apply(0, AttemptEvent::Aborted { begun: true })), "0 UNKNOWN");
    assert_eq!(shown(&each.apply(1, AttemptEvent::Aborted { begun: false })), "1 CANCELED, over Lost { index: 0 }");
}

#[test]
fn an_item_whose_child_is_not_known_is_not_known_and_ends_the_loop() {
    let (mut each, _) = begin(shape(9, 2, OnItemError::Continue));
    assert_eq!(shown(&apply(&mut each, failed(1, 1, Class::ResultUnknown))), "1 UNKNOWN");
    assert_eq!(
        shown(&each.apply(0, AttemptEvent::Succeeded { attempt: 1, took: None })),
        "0 COMPLETED, over Lost { index: 1 }"
    );
}

#[test]
fn a_loop_that_is_resumed_to_be_stopped_performs_nothing() {
    let stored = |status| {
        let stored = [
            StoredItem { index: 0, status: Status::Completed, attempt: 1 },
            StoredItem { index: 1, status, attempt: 1 },
            StoredItem { index: 2, status: Status::Retrying, attempt: 2 },
        ];
        stored.into_iter()
    };
    let (mut each, effects) = ItemLoop::resume(shape(9, 3, OnItemError::Fail), stored(Status::Running), true);
    assert_eq!(shown(&effects), "2 CANCELED, abort 1");
    assert_eq!(shown(&each.apply(1, AttemptEvent::Aborted { begun: true })), "1 CANCELED, over Stopped");
    let once = LoopSpec { delivery: Delivery::AtMostOnce, ..shape(9, 3, OnItemError::Fail) };
    let (_, effects) = ItemLoop::resume(once, stored(Status::Running), true);
    assert_eq!(shown(&effects), "1 UNKNOWN, 2 CANCELED, over Lost { index: 1 }");
}

proptest! {
    /// Whatever happens, in whatever order, with a crash at any moment: every item is settled once, at most `parallel`
    /// are open, and what is settled is never performed again.
    #[test]
    fn a_loop_comes_to_its_end_across_crashes(
        count in 0usize..12, parallel in 1usize..5, mode in 0usize..3,
        script in prop::collection::vec((0usize..12, 0u8..6), 0..120),
    ) {
        let mode = [OnItemError::Fail, OnItemError::Continue, OnItemError::Collect][mode];
        let (mut each, effects) = begin(shape(count, parallel, mode));
        let mut world = World::default();
        world.take(effects)?;
        for (pick, what) in script {
            if what == 5 {
                let (resumed, effects) = ItemLoop::resume(shape(count, parallel, mode), world.rows(), false);
                each = resumed;
                world.running.clear();
                world.over = None;
                world.take(effects)?;
            } else if let Some(event) = world.event(pick, what) {
                world.take(apply(&mut each, event))?;
            }
            prop_assert!(world.running.len() + world.waiting.len() <= parallel);
        }
        for _ in 0..100 {
            let Some(event) = world.event(0, 0) else { break };
            world.take(apply(&mut each, event))?;
        }
        let end = world.over;
        prop_assert!(end.is_some());
        if end == Some(LoopEnd::Completed) {
            prop_assert_eq!(world.settled.len(), count);
        }
    }
}

#[derive(Default)]
struct World {
    running: BTreeMap<Index, u32>,
    waiting: BTreeMap<Index, u32>,
    settled: BTreeMap<Index, Status>,
    once: BTreeSet<Index>,
    over: Option<LoopEnd>,
}

impl World {
    fn take(&mut self, effects: Vec<Effect>) -> Result<(), TestCaseError> {
        for effect in effects {
            prop_assert!(self.over.is_none());
            match effect {
                Effect::Item(index, AttemptEffect::Perform { attempt }) => {
                    prop_assert!(!self.settled.contains_key(&index));
                    self.waiting.remove(&index);
                    self.running.insert(index, attempt);
                }
                Effect::Item(index, AttemptEffect::Wait { attempt, .. }) => {
                    self.running.remove(&index);
                    self.waiting.insert(index, attempt);
                }
                Effect::Item(index, AttemptEffect::Settle(end)) => {
                    prop_assert!(self.once.insert(index));
                    self.running.remove(&index);
                    self.waiting.remove(&index);
                    self.settled.insert(index, end.status());
                }
                Effect::Item(_, AttemptEffect::Abort) => {}
                Effect::Finish(end) => {
                    prop_assert!(self.running.is_empty() && self.waiting.is_empty());
                    self.over = Some(end);
                }
            }
        }
        Ok(())
    }

    fn event(&self, pick: usize, what: u8) -> Option<(Index, AttemptEvent)> {
        let open: Vec<(Index, u32, bool)> = self
            .running
            .iter()
            .map(|(index, attempt)| (*index, *attempt, false))
            .chain(self.waiting.iter().map(|(index, attempt)| (*index, *attempt, true)))
            .collect();
        let (index, attempt, waits) = *open.get(pick % open.len().max(1))?;
        Some(match what {
            _ if waits => (index, AttemptEvent::RetryDue { attempt }),
            0 | 1 => (index, AttemptEvent::Succeeded { attempt, took: None }),
            2 => failed(index, attempt, Class::Timeout),
            3 => failed(index, attempt, Class::ValidationError),
            _ => (index, AttemptEvent::Skipped { attempt }),
        })
    }

    fn rows(&self) -> Vec<StoredItem> {
        let settled =
            self.settled.iter().map(|(index, status)| StoredItem { index: *index, status: *status, attempt: 1 });
        let running = self.running.iter().map(|(index, attempt)| StoredItem {
            index: *index,
            status: Status::Running,
            attempt: *attempt,
        });
        let waiting = self.waiting.iter().map(|(index, attempt)| StoredItem {
            index: *index,
            status: Status::Retrying,
            attempt: *attempt,
        });
        settled.chain(running).chain(waiting).collect()
    }
}
