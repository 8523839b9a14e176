//! What nodes of a run ask of the world outside, and when to look whether it came.
//!
//! Invariants
//! - That something came is a hint: the rows say what. A look is asked for by a signal, by the time of an ask that is
//!   up, and at last by a clock of its own, because a hint may be lost.
//! - One look at a time, and nothing else meanwhile.
//!
//! Not here: looking (`activities`), keeping answers (`store::wait`).

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use kernel::orchestration::Target;
use temporalio_sdk::{TimerResult, WorkflowCancellationToken, WorkflowTermination};

use super::drive::Driver;
use super::news::News;
use super::{WorkflowOrchestration, options};
use crate::activities::Kit;
use crate::message::{Look, Looked};

/// How long nothing may be heard before it is looked by itself; twice as long each time, up to the second. Whoever
/// calls a run that does not listen calls again (`server::wait::expire`), so this is for the day on which nobody does.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// An ask whose time is up by this clock, and not yet by the database's, is looked at again after this.
const SOON: Duration = Duration::from_millis(500);

/// The asks of a run.
#[derive(Default)]
pub(super) struct Asks {
    open: BTreeSet<Target>,
    /// Whose time is up, by this clock.
    expired: BTreeSet<Target>,
    /// It is to be looked.
    due: bool,
    /// How many signals were heard, and whether the next is waited for.
    heard: u64,
    listens: bool,
    /// How often nothing was heard, and whether the clock runs.
    silences: u32,
    ticks: bool,
}

impl Asks {
    /// Is it to be looked?
    pub(super) fn is_due(&self) -> bool {
        self.due && !self.open.is_empty()
    }

    pub(super) fn hear(&mut self, news: &News<'_>) {
        self.due = true;
        match news {
            News::Expired(at) if self.open.contains(at) => drop(self.expired.insert(*at)),
            News::Answered => self.listens = false,
            News::Unheard => {
                self.ticks = false;
                self.silences = self.silences.saturating_add(1);
            }
            _ => {}
        }
    }

    /// It is asked no more; was it?
    pub(super) fn forget(&mut self, at: Target) -> bool {
        self.expired.remove(&at);
        self.open.remove(&at)
    }

    pub(super) fn forget_all(&mut self) -> BTreeSet<Target> {
        self.expired.clear();
        std::mem::take(&mut self.open)
    }
}

impl<'a> Driver<'a> {
    /// Somebody outside is asked: it waits, and its time is up after that, if ever.
    pub(super) fn asked(&mut self, at: Target, expires: Option<Duration>) {
        let token = WorkflowCancellationToken::new();
        self.waiting.insert(at, token.clone());
        self.asks.open.insert(at);
        if let Some(wait) = expires {
            self.expire(at, wait, &token);
        }
    }

    fn expire(&mut self, at: Target, wait: Duration, token: &WorkflowCancellationToken) {
        let expiry = self.context.timer(options::timer(wait, token)).map(move |result| match result {
            TimerResult::Fired => News::Expired(at),
            TimerResult::Cancelled => News::Nothing,
        });
        self.news.push(expiry.boxed_local());
    }

    /// Listens for whatever may come, while somebody is asked.
    pub(super) fn listen(&mut self) {
        if self.asks.open.is_empty() {
            return;
        }
        let context = self.context;
        if !std::mem::replace(&mut self.asks.listens, true) {
            let heard = self.asks.heard;
            let signal = context.wait_condition(move |state: &WorkflowOrchestration| state.answered != heard);
            // Canceled, it listens no more: nobody is asked any longer.
            let signal = signal.map(|heard| if heard.is_ok() { News::Answered } else { News::Nothing });
            self.news.push(signal.boxed_local());
        }
        if !std::mem::replace(&mut self.asks.ticks, true) {
            let wait = FIRST.saturating_mul(2u32.saturating_pow(self.asks.silences)).min(LONGEST);
            let clock = context.timer(options::timer(wait, &WorkflowCancellationToken::new()));
            self.news.push(clock.map(|_| News::Unheard).boxed_local());
        }
    }

    /// Has what came settled, and hears of it.
    pub(super) async fn look(&mut self) -> Result<(), WorkflowTermination> {
        self.asks.due = false;
        self.asks.heard = self.context.state(|state| state.answered);
        let asked = self.asks.open.iter().map(|at| (at.node, at.iteration)).collect();
        let look = Look { hold: self.hold, asked };
        match self.context.execute_local_activity(Kit::look, look, options::surely()).await? {
            Looked::Lost => self.lose(),
            Looked::Done { ended, more } => {
                self.asks.due |= more;
                for (node, iteration, ended) in ended {
                    let at = Target { node, iteration };
                    if self.asks.forget(at) {
                        if let Some(token) = self.waiting.get(&at) {
                            token.cancel();
                        }
                        self.gone(at);
                        self.ended(at, ended);
                    }
                }
                for at in std::mem::take(&mut self.asks.expired) {
                    if let Some(token) = self.waiting.get(&at).cloned() {
                        self.expire(at, SOON, &token);
                    }
                }
            }
        }
        Ok(())
    }
}
