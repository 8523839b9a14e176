//! An engine on other machines: it may run what it says it does not know, and it outlives us.
//!
//! Invariants
//! - A start is for ever: under an id it has seen it starts nothing.
//! - An answer may be lost with or without the start, and a start may arrive long after its sender
//!   has given it up; a refusal may come though an earlier start
//!   went through; for a while it may be out of reach altogether.
//! - Its runs are durable: a step whose answer was lost is repeated.
//!
//! Not here: what to make of an answer (`queue::decide`), activities (`machine`).

use std::collections::{BTreeMap, BTreeSet};

use kernel::execution::Begin;
use kernel::queue::Answer;

use super::judge::Promise;
use super::machine::{After, Hands, Machine};
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
    pub(crate) fn start(&mut self, hands: &mut Hands<'_>, ix: Ix, id: u32) -> Answer {
        let answer = self.start_heard(hands, ix, id);
        let now = hands.store.now;
        hands.store.judge.note(|| format!("{now:>7} start e{ix}: {answer:?}"));
        answer
    }

    /// Does it know the execution? None: no answer.
    pub(crate) fn describe(&self, hands: &mut Hands<'_>, ix: Ix) -> Option<bool> {
        let reached = hands.store.now >= self.out_of_reach_until && !hands.answer_is_lost();
        reached.then(|| self.known.keys().any(|(known, _)| *known == ix))
    }

    /// One step of one of its runs.
    pub(crate) fn step(&mut self, hands: &mut Hands<'_>) {
        self.late_arrivals(hands);
        let at = hands.random.below(self.open.len());
        let Some(run) = self.open.keys().nth(at).copied() else { return };
        let Some((ix, phase)) = self.open.get_mut(&run) else { return };
        let ix = *ix;
        let after = match phase {
            Phase::Runs(machine) => machine.step(hands),
            Phase::Begins => match hands.store.begin(ix, run, None) {
                _ if hands.answer_is_lost() => After::Going,
                Begin::Granted => {
                    *phase = Phase::Runs(Box::new(Machine::from_rows(hands.store, ix, Fence::Run(run))));
                    After::Going
                }
                Begin::Ended => After::Closed,
                Begin::NotYet => After::Going,
            },
        };
        if after != After::Going
            && let Some((_, Phase::Runs(mut machine))) = self.open.remove(&run)
        {
            machine.drop_work(hands.receiver);
        }
    }

    /// A worker of it falls silent.
    pub(crate) fn silence(&mut self, hands: &mut Hands<'_>) {
        let at = hands.random.below(self.open.len());
        if let Some((_, Phase::Runs(machine))) = self.open.values_mut().nth(at) {
            machine.silence(hands.random);
        }
    }

    fn start_heard(&mut self, hands: &mut Hands<'_>, ix: Ix, id: u32) -> Answer {
        if hands.store.now < self.out_of_reach_until {
            return Answer::Unavailable("out of reach".to_owned());
        }
        let lost = hands.faults && hands.random.one_in(4);
        if lost && hands.random.one_in(2) {
            if hands.random.one_in(2) {
                self.on_the_way.push((hands.store.now + hands.random.between(500, 10_000), ix, id));
            }
            return Answer::Ambiguous("the request was lost".to_owned());
        }
        if self.poison.contains(&ix) || (hands.faults && hands.random.one_in(8)) {
            if lost {
                return Answer::Ambiguous("the refusal was lost".to_owned());
            }
            *self.refusals.entry(ix).or_default() += 1;
            return Answer::Refused("too large".to_owned());
        }
        match (lost, self.open_run(hands, ix, id)) {
            (true, _) => Answer::Ambiguous("the answer was lost".to_owned()),
            (false, false) => Answer::AlreadyThere,
            (false, true) => Answer::Started,
        }
    }

    fn late_arrivals(&mut self, hands: &mut Hands<'_>) {
        let now = hands.store.now;
        let arrived: Vec<_> = self.on_the_way.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, ix, id) in arrived {
            if !self.poison.contains(&ix) {
                self.open_run(hands, ix, id);
            }
        }
    }

    /// Opens a run under an id it has not seen. False: it has.
    fn open_run(&mut self, hands: &mut Hands<'_>, ix: Ix, id: u32) -> bool {
        if self.known.contains_key(&(ix, id)) {
            return false;
        }
        self.next_run += 1;
        self.known.insert((ix, id), self.next_run);
        self.open.insert(self.next_run, (ix, Phase::Begins));
        if self.known.keys().filter(|(known, _)| *known == ix).count() > 1 {
            hands.store.judge.breaks(Promise::P3Once, || format!("e{ix} has a second engine run"));
        }
        true
    }
}
