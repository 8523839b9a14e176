//! Patterns (regular expressions) that a tenant wrote, matched at a price.
//!
//! A pattern is tried as an automaton whose states are built as they are needed, in a small cache: as a rule each byte
//! costs the same. A pattern that needs too many states is stepped through instead, and that costs text × program.
//!
//! Invariants
//! - Pattern and program are bounded in bytes before anything is matched.
//! - All work is charged in steps: bytes of text, bytes of states that were built, and text × program for what is
//!   stepped through, before it is. A step is worth about a microsecond.
//! - The answer is that of the crate `regex` for the same pattern.
//!
//! Not here: who asks (`expression::function::text`, `inputs::judge`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

use crate::expression::{Budget, EvalError};

/// How much space the automaton's states may take at once.
const CACHE: usize = 64 << 10;
/// A state must serve for so many bytes on average, or the automaton is given up.
const BYTES_PER_STATE: usize = 100;
/// How often the cache may fill before that is looked at.
const CLEARS: usize = 2;
/// How deep groups may nest.
const NESTING: u32 = 50;
/// The automaton looks at each byte more thoroughly than a comparison does.
const MATCH_FACTOR: usize = 16;
/// Building so many bytes of states is one step.
const BUILD_STEP: usize = 256;
/// Looking at so many states for one byte is one step.
const STATES_STEP: usize = 64;

/// A pattern, ready to be matched. A copy is cheap.
#[derive(Clone)]
pub(crate) struct Pattern(Arc<Inner>);

struct Inner {
    source: String,
    program: NFA,
    automaton: DFA,
    /// What the last match left, for the next one to go on with.
    cache: Mutex<Option<Cache>>,
}

/// Why a text is no pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its program would be larger than it may be.
    TooLarge,
    /// It cannot be read; the reason is one line.
    Unreadable(String),
}

impl Pattern {
    /// Reads a pattern whose program takes at most `limit` bytes.
    pub(crate) fn new(source: &str, limit: usize) -> Result<Pattern, Refused> {
        let program = thompson::Compiler::new()
            .syntax(syntax::Config::new().nest_limit(NESTING))
            .configure(thompson::Config::new().nfa_size_limit(Some(limit)).which_captures(WhichCaptures::None))
            .build(source)
            .map_err(|error| refused(&error))?;
        let config = DFA::config()
            .match_kind(MatchKind::LeftmostFirst)
            .unicode_word_boundary(true)
            .cache_capacity(CACHE)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(CLEARS))
            .minimum_bytes_per_state(Some(BYTES_PER_STATE));
        let automaton = DFA::builder().configure(config).build_from_nfa(program.clone());
        let automaton = automaton.map_err(|error| Refused::Unreadable(error.to_string()))?;
        Ok(Pattern(Arc::new(Inner { source: source.to_owned(), program, automaton, cache: Mutex::default() })))
    }

    /// The bytes of its program.
    pub(crate) fn size(&self) -> usize {
        self.0.program.memory_usage()
    }

    /// Does any part of a text match?
    pub(crate) fn is_match(&self, text: &str, budget: &mut Budget) -> Result<bool, EvalError> {
        budget.read(text.len().saturating_mul(MATCH_FACTOR))?;
        let Inner { program, automaton, cache, .. } = &*self.0;
        let kept = cache.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut states = kept.unwrap_or_else(|| automaton.create_cache());
        let (before, clears) = (states.memory_usage(), states.clear_count());
        let found = automaton.try_search_fwd(&mut states, &Input::new(text).earliest(true));
        let cleared = (states.clear_count() - clears).saturating_mul(CACHE);
        let built = states.memory_usage().saturating_sub(before).saturating_add(cleared);
        if found.is_ok() {
            *cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(states);
        }
        budget.step(built / BUILD_STEP)?;
        match found {
            Ok(found) => Ok(found.is_some()),
            Err(_) => {
                budget.step(text.len().saturating_mul(program.states().len()) / STATES_STEP)?;
                let Ok(machine) = PikeVM::new_from_nfa(program.clone()) else { return Ok(false) };
                Ok(machine.is_match(&mut machine.create_cache(), text))
            }
        }
    }
}

fn refused(error: &thompson::BuildError) -> Refused {
    if error.size_limit().is_some() {
        return Refused::TooLarge;
    }
    // The reader's own words draw on several lines; the last says what is wrong.
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    Refused::Unreadable(text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.0.source).finish()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOW: &str = "(?:a?){250}a{250}";

    fn cost(pattern: &str, text: &str) -> (Result<bool, EvalError>, u64) {
        let pattern = Pattern::new(pattern, 4 << 20).expect("a pattern");
        let mut budget = Budget::new(u64::MAX, usize::MAX);
        (pattern.is_match(text, &mut budget), budget.steps_used())
    }

    #[test]
    fn what_is_stepped_through_costs_text_times_program() {
        let (found, steps) = cost(SLOW, &"a".repeat(400));
        assert_eq!(found, Ok(true));
        let nearly = format!("{}b", "a".repeat(249));
        let (_, many) = cost(SLOW, &nearly.repeat(40));
        assert!(steps > 1_000 && many > 40_000, "{steps} and {many}");
    }

    #[test]
    fn an_ordinary_pattern_costs_little() {
        for (pattern, text) in [
            (r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", "somebody@example.com"),
            (r"^\w+ [0-9]{4}-[0-9]{2}$", "Übersicht 2026-11"),
            (r"error|warning|fatal", &"all is well ".repeat(200)),
        ] {
            let (found, steps) = cost(pattern, text);
            assert!(found.is_ok() && steps < 400, "{pattern}: {steps}");
        }
    }

    #[test]
    fn a_second_match_does_not_pay_for_states_again() {
        let pattern = Pattern::new(r"^\w+@\w+$", 64 << 10).expect("a pattern");
        let mut first = Budget::new(u64::MAX, usize::MAX);
        pattern.is_match("somebody@example", &mut first).expect("a match");
        let mut second = Budget::new(u64::MAX, usize::MAX);
        pattern.is_match("somebody@example", &mut second).expect("a match");
        assert!(second.steps_used() <= 1 && first.steps_used() > 1, "{second:?} after {first:?}");
    }

    #[test]
    fn a_budget_stops_it_before_the_work_is_done() {
        let pattern = Pattern::new(SLOW, 64 << 10).expect("a pattern");
        let mut budget = Budget::new(5_000, usize::MAX);
        assert_eq!(
            pattern.is_match(&format!("{}b", "a".repeat(249)).repeat(300), &mut budget),
            Err(EvalError::Steps { limit: 5_000 })
        );
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_a_reason() {
        assert_eq!(Pattern::new(r"(\w{100}){100}", 64 << 10).err(), Some(Refused::TooLarge));
        assert_eq!(Pattern::new("(", 1 << 10).err(), Some(Refused::Unreadable("unclosed group".to_owned())));
    }

    proptest! {
        #[test]
        fn it_answers_as_the_crate_regex_does(
            pattern in r"(\^|\$|\\b|\\w|\\d|[ab.é]|[ab]\?|[ab]\*|\(a\|b\)|a\{2,3\}|\[\^a\]){0,8}",
            text in "[abé1 _]{0,24}",
        ) {
            let regex = regex::Regex::new(&pattern).expect("a pattern");
            let (found, _) = cost(&pattern, &text);
            prop_assert_eq!(found, Ok(regex.is_match(&text)));
        }
    }
}
