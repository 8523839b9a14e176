//! What nodes of this tree ask of the world outside, and what comes back.
//!
//! Invariants
//! - Asking is the node's call: its start is stored first, and asked again it hears how it stands. Whether it was
//!   answered or its time is up is the store's to say, never this clock's.
//! - That something came is a hint: the run looks, and takes what is there. What came for an ask that is still under
//!   way is kept. After a look whose reply may be lost, the next one also reads what was taken already: nothing else of
//!   the run is disturbed.
//! - A run that only waits for answers needs no process: it is parked, and an answer wakes it.
//!
//! What happens if this process dies: before the ask's commit nobody was asked; after it, or after the answer, the node
//! is performed again and is told how it stands.
//!
//! Not here: keeping asks and answers (`store::wait`), what an answer makes of its node (`kernel::kind`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::definition::plan::NodeIx;
use kernel::ids::ExecutionId;
use kernel::orchestration::Event;
use kernel::run::Stop;
use store::run::attempt::Hold;
use store::wait::{Ask, Came, Standing};
use tokio::time::Instant;

use super::flight::{Outgoing, Stage};
use super::frame::{At, FrameIx, ROOT};
use super::perform::Brought;
use super::timers::Due;
use super::{Driver, frame};
use crate::attempt::until_answered;
use crate::embedded::Shared;

/// Under this a look is in flight: no node is there.
pub(super) const LOOK: At = At { frame: ROOT, node: NodeIx::MAX, iteration: 0 };

/// An ask whose time is up here, and not yet in the database, is looked at again after this.
const AGAIN: Duration = Duration::from_millis(500);

/// What came for the tree.
pub(super) struct Look {
    came: Vec<Came>,
    /// Children that somebody asked to end.
    canceling: Vec<ExecutionId>,
}

impl Shared {
    pub(super) async fn ask(&self, hold: Hold, ask: &Ask) -> Brought {
        match until_answered(|| self.store.ask(hold, ask)).await {
            Ok(Some(standing)) => Brought::Standing(standing),
            Ok(None) => Brought::Lost,
            Err(failure) => Brought::Result(Err(failure)),
        }
    }

    /// Reads what came for a tree. `again`: an earlier look may have taken something and told nobody.
    async fn look(&self, hold: Hold, again: bool) -> Brought {
        let mut tries = 0;
        let read = || {
            tries += 1;
            self.store.answers(hold)
        };
        let Ok(Some(mut came)) = until_answered(read).await else { return Brought::Lost };
        if again || tries > 1 {
            came.extend(until_answered(|| self.store.answers_taken(hold.execution)).await.unwrap_or_default());
        }
        // After that: it counts the call as heard, and a child that is to end from now on calls again.
        let canceling = until_answered(|| self.store.canceling_below(hold.execution)).await.unwrap_or_default();
        Brought::Came(Look { came, canceling })
    }
}

impl Driver {
    /// Looks for what came, one look at a time.
    pub(super) fn look_if_told(&mut self) {
        if !self.look || self.handles.contains_key(&LOOK) {
            return;
        }
        self.look = false;
        let again = std::mem::take(&mut self.look_broke);
        let (shared, hold) = (Arc::clone(&self.shared), self.hold);
        self.launch(LOOK, Outgoing::new(Stage::Goes, async move { shared.look(hold, again).await }));
    }

    /// An ask stands so.
    pub(super) fn stands(&mut self, at: At, standing: Standing) {
        let news = self.news.remove(&at);
        let frame = self.frame(at.frame);
        let Some(asked) = frame.asks.get(&at.target()).cloned() else { return };
        let standing = match (standing, news) {
            // It was open then, and something came before this was heard.
            (Standing::Open { .. }, Some((attempt, came))) if frame.attempt(at) == Some(attempt) => came,
            (standing, _) => standing,
        };
        if let Standing::Open { expires_in } = &standing {
            if let Some(wait) = expires_in {
                self.timers.set(Due::Node(at), Instant::now() + *wait);
            }
            return;
        }
        frame.asks.remove(&at.target());
        self.ended(at, asked.over(standing));
    }

    /// Something came: answers, times that are up, children that are to end.
    pub(super) fn came(&mut self, look: Look) {
        let frames: BTreeMap<ExecutionId, FrameIx> =
            self.frames.iter().map(|(ix, frame)| (frame.execution(), *ix)).collect();
        for Came { place, attempt, standing } in look.came {
            let Some(ix) = frames.get(&place.execution) else { continue };
            let frame = frame(&mut self.frames, *ix);
            let Some(node) = frame.version.plan.index_of(&place.node) else { continue };
            let at = At { frame: *ix, node, iteration: place.iteration };
            if frame.attempt(at) != Some(attempt) {
                continue;
            }
            match self.handles.contains_key(&at) {
                true => drop(self.news.insert(at, (attempt, standing))),
                false => self.stands(at, standing),
            }
        }
        for child in look.canceling {
            match frames.get(&child) {
                Some(ix) => self.apply(*ix, Event::Stopped(Stop::Cancel)),
                // It is being found just now.
                None => drop(self.doomed.insert(child)),
            }
        }
    }

    /// The time of an ask is up by this clock: the database says whether it is, and when to look again if not.
    pub(super) fn ask_due(&mut self, at: At) {
        self.timers.set(Due::Node(at), Instant::now() + AGAIN);
        self.look = true;
    }
}
