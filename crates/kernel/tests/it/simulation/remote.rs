//! An engine on other machines. It may run an execution that it reported as unknown, and it outlives the service.
//!
//! Invariants
//! - A start is permanent: under an id that the engine has seen, it never starts another run.
//! - An answer may be lost, with or without its start request. A request may arrive long after its sender gave up. A
//!   request may be refused although an earlier request started the run. The engine may be unreachable for a while.
//! - Its runs are durable: a step whose answer was lost is repeated.
//!
//! Not here: what follows from an answer (`queue::after_start`), activities (`machine`).

use std::collections::{BTreeMap, BTreeSet};

use kernel::execution::BeginDecision;
use kernel::queue::StartOutcome;

use super::judge::Promise;
use super::machine::{Machine, StepContext, StepOutcome};
use super::store::{Fence, Ix};

#[derive(Debug)]
enum Phase {
    Begins,
    Runs(Box<Machine>),
}

#[derive(Debug, Default)]
pub(crate) struct Remote {
    /// Every id ever started, and the run it got.
    known: BTreeMap<(Ix, u32), u64>,
    open: BTreeMap<u64, (Ix, Phase)>,
    /// Starts still on their way: when they arrive, and under which id.
    on_the_way: Vec<(u64, Ix, u32)>,
    pub(crate) out_of_reach_until: u64,
    /// Executions it will never take.
    pub(crate) poison: BTreeSet<Ix>,
    /// How often it refused each.
    pub(crate) refusals: BTreeMap<Ix, u32>,
    next_run: u64,
}

impl Remote {
    /// Asks for a run under an id: the execution's, and a number that is always the same.
    pub(crate) fn start(&mut self, context: &mut StepContext<'_>, ix: Ix, id: u32) -> StartOutcome {
        let answer = self.answer_start(context, ix, id);
        let now = context.store.now;
        context.store.judge.note(|| format!("{now:>7} start e{ix}: {answer:?}"));
        answer
    }

    /// Does it know the execution? None: no answer.
    pub(crate) fn describe(&self, context: &mut StepContext<'_>, ix: Ix) -> Option<bool> {
        let reached = context.store.now >= self.out_of_reach_until && !context.answer_is_lost();
        reached.then(|| self.known.keys().any(|(known, _)| *known == ix))
    }

    /// One step of one of its runs.
    pub(crate) fn step(&mut self, context: &mut StepContext<'_>) {
        self.late_arrivals(context);
        let at = context.random.below(self.open.len());
        let Some(run) = self.open.keys().nth(at).copied() else { return };
        let Some((ix, phase)) = self.open.get_mut(&run) else { return };
        let ix = *ix;
        let after = match phase {
            Phase::Runs(machine) => machine.step(context),
            Phase::Begins => match context.store.begin(ix, run, None) {
                _ if context.answer_is_lost() => StepOutcome::Going,
                BeginDecision::Granted => {
                    *phase = Phase::Runs(Box::new(Machine::from_rows(context.store, ix, Fence::Run(run))));
                    StepOutcome::Going
                }
                BeginDecision::Ended => StepOutcome::Closed,
                BeginDecision::NotYet => StepOutcome::Going,
            },
        };
        if after != StepOutcome::Going
            && let Some((_, Phase::Runs(mut machine))) = self.open.remove(&run)
        {
            machine.drop_work(context.receiver);
        }
    }

    /// A worker of it falls silent.
    pub(crate) fn silence(&mut self, context: &mut StepContext<'_>) {
        let at = context.random.below(self.open.len());
        if let Some((_, Phase::Runs(machine))) = self.open.values_mut().nth(at) {
            machine.silence(context.random);
        }
    }

    fn answer_start(&mut self, context: &mut StepContext<'_>, ix: Ix, id: u32) -> StartOutcome {
        if context.store.now < self.out_of_reach_until {
            return StartOutcome::Unavailable("out of reach".to_owned());
        }
        let lost = context.faults && context.random.one_in(4);
        if lost && context.random.one_in(2) {
            if context.random.one_in(2) {
                self.on_the_way.push((context.store.now + context.random.between(500, 10_000), ix, id));
            }
            return StartOutcome::Ambiguous("the request was lost".to_owned());
        }
        if self.poison.contains(&ix) || (context.faults && context.random.one_in(8)) {
            if lost {
                return StartOutcome::Ambiguous("the refusal was lost".to_owned());
            }
            *self.refusals.entry(ix).or_default() += 1;
            return StartOutcome::Refused("too large".to_owned());
        }
        match (lost, self.open_run(context, ix, id)) {
            (true, _) => StartOutcome::Ambiguous("the answer was lost".to_owned()),
            (false, false) => StartOutcome::AlreadyStarted,
            (false, true) => StartOutcome::Started,
        }
    }

    fn late_arrivals(&mut self, context: &mut StepContext<'_>) {
        let now = context.store.now;
        let arrived: Vec<_> = self.on_the_way.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, ix, id) in arrived {
            if !self.poison.contains(&ix) {
                self.open_run(context, ix, id);
            }
        }
    }

    /// Opens a run under an id it has not seen. False: it has.
    fn open_run(&mut self, context: &mut StepContext<'_>, ix: Ix, id: u32) -> bool {
        if self.known.contains_key(&(ix, id)) {
            return false;
        }
        self.next_run += 1;
        self.known.insert((ix, id), self.next_run);
        self.open.insert(self.next_run, (ix, Phase::Begins));
        if self.known.keys().filter(|(known, _)| *known == ix).count() > 1 {
            context.store.judge.breaks(Promise::P3Once, || format!("e{ix} has a second engine run"));
        }
        true
    }
}
