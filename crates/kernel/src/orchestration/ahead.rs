//! Looks ahead: which light nodes follow one another if each of them completes, and whether the execution then ends.
//!
//! An engine that pays for every step performs these nodes in one step, and stores them, and the end, in one commit.
//!
//! Invariants
//! - The nodes come in the order in which they would be performed one by one.
//! - A node that branches is the last one, because nobody knows yet what follows it. So is a node whose completion has
//!   any other effect than nodes that begin, such as a skip.
//! - The machine itself does not change. If a node does not complete, the nodes after it in the list are not performed.
//!
//! Not here: performing the nodes (the shells), which kinds are light (`definition::Manner`).

use std::collections::VecDeque;

use crate::orchestration::{Effect, Event, Orchestration, Target};
use crate::run::Outcome;
use crate::run::attempts::AttemptEvent;
use crate::run::node::{NodeEnd, Status};

/// What is known about a node before it is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foresight {
    /// It only computes and does not branch, so it most likely completes.
    Completes,
    /// It only computes, and it branches or may be skipped.
    Branches,
    /// It has to be performed in another way.
    Heavy,
}

/// The light nodes that may be performed in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    pub nodes: Vec<Target>,
    /// How the execution ends if all of them complete; none if it goes on.
    pub outcome: Option<Outcome>,
}

impl Orchestration {
    /// Looks ahead from these ready targets, for at most this many light nodes.
    pub fn ahead(
        &self,
        ready: impl IntoIterator<Item = Target>,
        foresight: impl Fn(Target) -> Foresight,
        most: usize,
    ) -> Ahead {
        let mut queue: VecDeque<Target> = ready.into_iter().filter(|at| foresight(*at) != Foresight::Heavy).collect();
        let (mut machine, mut ahead) = (None, Ahead::default());
        while ahead.nodes.len() < most
            && let Some(at) = queue.pop_front()
        {
            ahead.nodes.push(at);
            if foresight(at) != Foresight::Completes {
                break;
            }
            // Copied only if there is a light node at all.
            let effects = machine.get_or_insert_with(|| self.clone()).apply(completed(at));
            for effect in effects {
                match effect {
                    Effect::Settle { at: settled, end: NodeEnd::Completed { .. } } if settled == at => {}
                    Effect::Perform { at, .. } if foresight(at) == Foresight::Heavy => {}
                    Effect::Perform { at, .. } => queue.push_back(at),
                    Effect::Finish(outcome) => ahead.outcome = Some(outcome),
                    _ => return ahead,
                }
            }
        }
        ahead
    }

    /// How the execution ends if this target completes without a branch and nothing else happens before; none if it
    /// goes on.
    pub fn outcome_after(&self, at: Target) -> Option<Outcome> {
        match self.clone().apply(completed(at)).as_slice() {
            [Effect::Settle { at: settled, .. }, Effect::Finish(outcome)] if *settled == at => Some(outcome.clone()),
            _ => None,
        }
    }
}

fn completed(at: Target) -> Event {
    Event::Attempt(at, AttemptEvent::Settled { status: Status::Completed, label: None })
}
