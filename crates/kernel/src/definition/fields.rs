//! Reads an object field by field, and reports every problem.
//!
//! Invariants
//! - Reading continues after a problem, so that one response names all problems.
//! - A message contains names and types, never a value, because a resolved value may be a secret.
//! - Suggestions (`did you mean …?`) stop after a number of problems, so that a hostile document with many unknown
//!   words does not cost much time.
//!
//! Not here: which fields an object may have (`parse`, `kind`).

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value};

pub(crate) use crate::definition::problem::{Code, Problem};
use crate::duration;
use crate::expression::template::{is_templated, push_segment};
use crate::expression::{Fault, ParseError, type_name};

/// Whether a configuration is read at publishing or at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckTime {
    /// Templates are unresolved, so a field that contains a template cannot be checked yet.
    Publish,
    /// Templates are resolved, so every value is final.
    Run,
}

/// An object being read.
#[derive(Debug)]
pub(crate) struct Fields<'a, 'p> {
    map: &'a Map<String, Value>,
    at: String,
    stage: CheckTime,
    /// The index in `problems` at which the problems of this object begin.
    first: usize,
    pub(crate) problems: &'p mut Vec<Problem>,
}

impl<'a, 'p> Fields<'a, 'p> {
    /// Starts to read a value at a pointer; fields that are not among `known` are problems.
    pub(crate) fn open(
        value: &'a Value,
        at: &str,
        known: &[&str],
        stage: CheckTime,
        problems: &'p mut Vec<Problem>,
    ) -> Option<Self> {
        let at = at.to_owned();
        let Value::Object(map) = value else {
            let message = format!("must be an object, not {}", type_name(value));
            problems.push(Problem::new(Code::WrongType, at, message));
            return None;
        };
        let first = problems.len();
        for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
            let problem = unknown(Code::UnknownField, "field", child(&at, name), name, known.iter().copied(), problems);
            problems.push(problem);
        }
        Some(Self { map, at, stage, first, problems })
    }

    /// The pointer of a field.
    pub(crate) fn pointer(&self, name: &str) -> String {
        child(&self.at, name)
    }

    /// Does the field exist, even with the value null?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// A field's value; `None` if the field is null or absent.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A field's value, null included.
    pub(crate) fn any(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    /// A field's value; `None` if the field contains a template that must be resolved first.
    pub(crate) fn value(&self, name: &str) -> Option<&'a Value> {
        self.get(name).filter(|value| !self.is_late(value))
    }

    /// Does this value contain an unresolved template?
    pub(crate) fn is_late(&self, value: &Value) -> bool {
        self.stage == CheckTime::Publish && value.as_str().is_some_and(is_templated)
    }

    /// Is every value final?
    pub(crate) fn is_final(&self) -> bool {
        self.stage == CheckTime::Run
    }

    /// Reports that a field is missing, unless a misspelled name of the field was reported already.
    pub(crate) fn require(&mut self, name: &str) {
        let is_slip = |found: &Problem| found.code == Code::UnknownField && found.suggestion.as_deref() == Some(name);
        if self.get(name).is_none() && !self.problems[self.first..].iter().any(is_slip) {
            let how = if self.has(name) { "is null" } else { "is missing" };
            // A null field has a location of its own. A missing field is reported at the object that it should be in.
            let pointer = if self.has(name) { self.pointer(name) } else { self.at.clone() };
            self.problems.push(Problem::new(Code::MissingField, pointer, format!("{name} {how}")));
        }
    }

    /// Reports a problem of a field's value, with the code `bad_value`.
    pub(crate) fn wrong(&mut self, name: &str, message: impl Into<String>) {
        self.refuse(Code::BadValue, name, message);
    }

    /// Reports that one of several fields is required, and none of them exists. `names` lists the fields for people.
    pub(crate) fn lacks(&mut self, names: &str) {
        self.problems.push(Problem::new(Code::MissingField, self.at.clone(), format!("{names} is missing")));
    }

    /// Reports a problem of a field, with this code.
    pub(crate) fn refuse(&mut self, code: Code, name: &str, message: impl Into<String>) {
        let pointer = self.pointer(name);
        self.problems.push(Problem::new(code, pointer, message));
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.value(name)?;
        if value.as_str().is_none() {
            self.refuse(Code::WrongType, name, format!("must be text, not {}", type_name(value)));
        }
        value.as_str()
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        let value = self.value(name)?;
        if value.as_bool().is_none() {
            self.refuse(Code::WrongType, name, format!("must be true or false, not {}", type_name(value)));
        }
        value.as_bool()
    }

    pub(crate) fn object(&mut self, name: &str) -> Option<&'a Map<String, Value>> {
        let value = self.value(name)?;
        if value.as_object().is_none() {
            self.refuse(Code::WrongType, name, format!("must be an object, not {}", type_name(value)));
        }
        value.as_object()
    }

    pub(crate) fn integer(&mut self, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(name)?;
        let number = value.as_u64().filter(|number| range.contains(number));
        if number.is_none() {
            let code = if value.is_number() { Code::BadValue } else { Code::WrongType };
            self.refuse(code, name, format!("must be a whole number from {} to {}", range.start(), range.end()));
        }
        number
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn count(&mut self, name: &str, most: u32) -> Option<u32> {
        self.integer(name, 1..=u64::from(most)).and_then(|number| u32::try_from(number).ok())
    }

    /// The values of a field that takes one value or a list of them, each with its pointer.
    pub(crate) fn each(&self, name: &str) -> Option<Vec<(String, &'a Value)>> {
        let at = self.pointer(name);
        Some(match self.get(name)? {
            Value::Array(list) => {
                list.iter().enumerate().map(|(place, item)| (child(&at, &place.to_string()), item)).collect()
            }
            one => vec![(at, one)],
        })
    }

    pub(crate) fn duration(&mut self, name: &str, longest: Duration) -> Option<Duration> {
        let value = self.value(name)?;
        let Some(text) = value.as_str() else {
            let message = format!("must be a duration such as 5s, 1m30s or 250ms, not {}", type_name(value));
            self.refuse(Code::WrongType, name, message);
            return None;
        };
        match duration::parse(text) {
            Ok(duration) if duration <= longest => Some(duration),
            Ok(_) => {
                self.wrong(name, format!("is longer than {}", duration::format(longest)));
                None
            }
            Err(invalid) => {
                self.wrong(name, invalid.to_string());
                None
            }
        }
    }

    /// A field whose value must be one of these words.
    pub(crate) fn choice<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let meant = guess(text, all.iter().copied()).map(str::to_owned);
            let problem =
                Problem::new(Code::BadValue, self.pointer(name), format!("must be one of {}", all.join(", ")));
            self.problems.push(problem.suggest(meant));
        }
        found
    }
}

/// The pointer of a field or item below the value at another pointer.
pub(crate) fn child(at: &str, segment: &str) -> String {
    let mut pointer = at.to_owned();
    push_segment(&mut pointer, segment);
    pointer
}

/// The problem of an expression that cannot be parsed.
pub(crate) fn unreadable(pointer: String, error: &ParseError) -> Problem {
    let code = match error.fault {
        Fault::Syntax => Code::BadExpression,
        Fault::UnknownRoot => Code::UnknownRoot,
        Fault::UnknownFunction => Code::UnknownFunction,
    };
    Problem::new(code, pointer, error.to_string()).suggest(error.meant.clone()).within(error.offset, None)
}

/// Suggestions are made only while there are fewer problems than this.
pub(crate) const GUESSES: usize = 100;

/// The problem of an unknown word, with a suggestion.
pub(crate) fn unknown<'k>(
    code: Code,
    what: &str,
    pointer: String,
    word: &str,
    known: impl Iterator<Item = &'k str> + Clone,
    problems: &[Problem],
) -> Problem {
    if problems.len() >= GUESSES {
        let shown: String = word.chars().take(80).collect();
        return Problem::new(code, pointer, format!("unknown {what} {shown}"));
    }
    let (message, guess) = unknown_word(what, word, known);
    Problem::new(code, pointer, message).suggest(guess)
}

/// The message for an unknown word, and a suggestion.
pub(crate) fn unknown_word<'k>(
    what: &str,
    word: &str,
    known: impl Iterator<Item = &'k str> + Clone,
) -> (String, Option<String>) {
    let shown: String = word.chars().take(80).collect();
    if let Some(guess) = guess(word, known.clone()) {
        return (format!("unknown {what} {shown}, did you mean {guess}?"), Some(guess.to_owned()));
    }
    let message = match known.take(20).collect::<Vec<_>>().as_slice() {
        [] => format!("unknown {what} {shown}"),
        some => format!("unknown {what} {shown}: use one of {}", some.join(", ")),
    };
    (message, None)
}

/// Field names that other products use, and the name of the same field here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("type", "kind"),
    ("config", "with"),
    ("parameters", "with"),
    ("params", "with"),
    ("depends_on", "needs"),
    ("steps", "nodes"),
    ("tasks", "nodes"),
    ("retries", "retry"),
    ("json", "body"),
];

fn guess<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    if word.len() > 64 {
        return None;
    }
    let ours = ELSEWHERE.iter().filter(|(theirs, _)| *theirs == word).map(|(_, ours)| *ours);
    if let Some(ours) = ours.filter_map(|ours| known.clone().find(|name| *name == ours)).next() {
        return Some(ours);
    }
    let most = (word.len() / 3).max(1);
    let near = known.clone().filter(|name| name.len().abs_diff(word.len()) <= most);
    let near = near.map(|name| (distance(word.as_bytes(), name.to_ascii_lowercase().as_bytes()), name));
    // A suggestion shares at least one letter with the word.
    let alike = |distance: usize, name: &str| distance <= most && distance < word.len().max(name.len());
    let near = near.filter(|(distance, name)| alike(*distance, name)).min_by_key(|(distance, _)| *distance);
    let begun = || known.clone().find(|name| word.len() >= 3 && name.to_ascii_lowercase().starts_with(&word));
    near.map(|(_, name)| name).or_else(begun)
}

/// The edit distance: how many letters must be added, dropped, changed or swapped with a neighbour to get from one word
/// to the other.
fn distance(from: &[u8], to: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut next = vec![i];
        for j in 1..=to.len() {
            let change = usize::from(from[i - 1] != to[j - 1]);
            let mut least = (row[j] + 1).min(next[j - 1] + 1).min(row[j - 1] + change);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_slips() {
        for (from, to, slips) in
            [("", "", 0), ("kind", "knid", 1), ("kind", "kin", 1), ("abc", "xyz", 3), ("", "ab", 2)]
        {
            assert_eq!(distance(from.as_bytes(), to.as_bytes()), slips, "{from} {to}");
        }
    }

    #[test]
    fn a_slip_is_guessed_and_a_strange_word_is_not() {
        let known = ["kind", "needs", "with", "HTTP_REQUEST", "timeout", "a"];
        let table = [
            ("knid", Some("kind")),
            ("type", Some("kind")),
            ("need", Some("needs")),
            ("HTP_REQUEST", Some("HTTP_REQUEST")),
            ("http_request", Some("HTTP_REQUEST")),
            ("HTTP", Some("HTTP_REQUEST")),
            ("zebra", None),
            ("x", None),
            ("", None),
        ];
        for (word, meant) in table {
            assert_eq!(guess(word, known.into_iter()), meant, "{word}");
        }
        assert_eq!(guess(&"x".repeat(100), known.into_iter()), None);
    }
}
