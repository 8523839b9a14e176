//! Patterns: regular expressions by untrusted authors, which are matched with a budget.
//!
//! First, a pattern is matched with a lazy automaton (DFA): its states are built when they are needed, in a small
//! cache. Each byte then usually costs the same. If the automaton needs too many states, the compiled program of the
//! pattern is simulated instead, which costs the length of the text × the size of the program.
//!
//! Invariants
//! - The sizes of the pattern and of its program are limited before anything is matched.
//! - All work is charged in steps: the bytes of the text, the bytes of the states that were built, and text × program
//!   for a simulation, before it begins. A step is about a microsecond of work.
//! - The result is the same as that of the crate `regex` for the same pattern.
//!
//! Not here: the callers (`expression::function::text`, `definition::inputs::judge`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

use crate::expression::{Budget, EvalError};

/// The size of the cache for the automaton's states, in bytes.
const CACHE: usize = 64 << 10;
/// If the automaton matches fewer bytes than this for each state that it builds, the program is simulated instead.
const BYTES_PER_STATE: usize = 100;
/// `BYTES_PER_STATE` is checked only after the cache has been cleared this often.
const CLEARS: usize = 2;
/// How deep groups may nest.
const NESTING: u32 = 50;
/// Matching a byte costs this many times as much as comparing a byte of text.
const MATCH_FACTOR: usize = 16;
/// Building this many bytes of states costs one step.
const BUILD_STEP: usize = 256;
/// Simulating this many states for one byte costs one step.
const STATES_STEP: usize = 64;

/// A pattern, ready to be matched. A copy is cheap.
#[derive(Clone)]
pub(crate) struct Pattern(Arc<Inner>);

struct Inner {
    source: String,
    program: NFA,
    automaton: DFA,
    /// The states that the last match built, for reuse by the next match.
    cache: Mutex<Option<Cache>>,
}

/// Why a text is not a valid pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The program of the pattern would exceed the limit.
    TooLarge,
    /// The pattern cannot be parsed. The reason is one line of text.
    Unreadable(String),
}

impl Pattern {
    /// Compiles a pattern. Its program may take at most `limit` bytes.
    pub(crate) fn new(source: &str, limit: usize) -> Result<Pattern, PatternError> {
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
        let automaton = automaton.map_err(|error| PatternError::Unreadable(error.to_string()))?;
        Ok(Pattern(Arc::new(Inner { source: source.to_owned(), program, automaton, cache: Mutex::default() })))
    }

    /// The size of the pattern's program, in bytes.
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

fn refused(error: &thompson::BuildError) -> PatternError {
    if error.size_limit().is_some() {
        return PatternError::TooLarge;
    }
    // The library's message has several lines, with a drawing. Only the last line says what is wrong.
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let text = cause.to_string();
    PatternError::Unreadable(text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
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
        assert_eq!(Pattern::new(r"(\w{100}){100}", 64 << 10).err(), Some(PatternError::TooLarge));
        assert_eq!(Pattern::new("(", 1 << 10).err(), Some(PatternError::Unreadable("unclosed group".to_owned())));
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
