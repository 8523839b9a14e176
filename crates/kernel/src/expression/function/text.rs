//! Functions of text. Positions count characters, not bytes.

use std::borrow::Cow;

use serde_json::Value;

use super::{Answer, Function, made};
use crate::expression::budget::{Budget, VALUE};
use crate::expression::error::EvalError;
use crate::expression::operator;
use crate::expression::pattern::{Pattern, PatternError};

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 512;
/// The largest compiled pattern, in bytes.
const MAX_PROGRAM: usize = 64 << 10;
/// Compiling a pattern costs this many steps.
const COMPILE_STEPS: usize = 2_000;

pub(super) fn call<'e>(function: Function, args: &[Cow<'e, Value>], budget: &mut Budget) -> Answer<'e> {
    match function {
        Function::Join => return join(function, args, budget),
        Function::Substring => return substring(function, args, budget),
        _ => {}
    }
    let text = function.text(&args[0])?;
    budget.read(text.len())?;
    match function {
        // One letter may become three letters in the other case.
        Function::Lower => {
            budget.allocate(text.len() * 2)?;
            made(text.to_lowercase())
        }
        Function::Upper => {
            budget.allocate(text.len() * 2)?;
            made(text.to_uppercase())
        }
        Function::Trim => {
            let trimmed = text.trim();
            budget.allocate(trimmed.len())?;
            made(trimmed)
        }
        Function::Split => split(text, function.text(&args[1])?, budget),
        Function::Replace => {
            let (from, to) = (function.text(&args[1])?, function.text(&args[2])?);
            if from.is_empty() {
                return Err(function.refuses("the text to find is empty"));
            }
            // A search first reads the text that it looks for.
            budget.read(from.len().saturating_mul(SEARCH))?;
            let count = text.matches(from).count();
            let grown = count.saturating_mul(to.len());
            budget.allocate((text.len() - count * from.len()).saturating_add(grown))?;
            made(text.replace(from, to))
        }
        Function::StartsWith => made(text.starts_with(function.text(&args[1])?)),
        _ => made(text.ends_with(function.text(&args[1])?)),
    }
}

/// Reading the text to look for costs this many times as much as reading other text.
const SEARCH: usize = 8;

fn split<'e>(text: &str, separator: &str, budget: &mut Budget) -> Answer<'e> {
    budget.read(separator.len().saturating_mul(SEARCH))?;
    let mut parts = Vec::new();
    let mut push = |part: &str| -> Result<(), EvalError> {
        budget.step(1)?;
        budget.allocate(VALUE + part.len())?;
        parts.push(Value::from(part));
        Ok(())
    };
    if separator.is_empty() {
        text.char_indices().try_for_each(|(at, c)| push(&text[at..at + c.len_utf8()]))?;
    } else {
        text.split(separator).try_for_each(push)?;
    }
    made(parts)
}

fn join<'e>(function: Function, args: &[Cow<'e, Value>], budget: &mut Budget) -> Answer<'e> {
    let items = function.list(&args[0])?;
    let separator = args.get(1).map_or(Ok(""), |separator| function.text(separator))?;
    budget.step(items.len())?;
    let mut length = separator.len().saturating_mul(items.len().saturating_sub(1));
    for item in items {
        length = length.saturating_add(match item {
            Value::String(text) => text.len(),
            Value::Array(_) | Value::Object(_) => return Err(function.needs("a list of texts and numbers", item)),
            _ => 32,
        });
    }
    budget.allocate(length)?;
    let mut all = String::with_capacity(length);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            all.push_str(separator);
        }
        match item {
            Value::String(text) => all.push_str(text),
            Value::Null => {}
            other => all.push_str(&other.to_string()),
        }
    }
    made(all)
}

fn substring<'e>(function: Function, args: &[Cow<'e, Value>], budget: &mut Budget) -> Answer<'e> {
    let text = function.text(&args[0])?;
    budget.read(text.len())?;
    let position = |at: &Value| match at {
        Value::Number(number) => {
            operator::position(number).ok_or_else(|| function.refuses("a position is a whole number from 0"))
        }
        other => Err(function.needs("a position", other)),
    };
    let start = position(&args[1])?;
    let end = args.get(2).map_or(Ok(usize::MAX), |end| position(end))?;
    let byte =
        |from: usize, count: usize| text[from..].char_indices().nth(count).map_or(text.len(), |(at, _)| from + at);
    let from = byte(0, start);
    let to = byte(from, end.saturating_sub(start));
    budget.allocate(to - from)?;
    made(&text[from..to])
}

/// The last compiled pattern, because the items of a loop mostly use the same pattern.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    last: Option<(String, Pattern)>,
}

impl Patterns {
    pub(super) fn matches<'e>(
        &mut self,
        function: Function,
        args: &[Cow<'e, Value>],
        budget: &mut Budget,
    ) -> Answer<'e> {
        let (text, pattern) = (function.text(&args[0])?, function.text(&args[1])?);
        made(self.program(function, pattern, budget)?.is_match(text, budget)?)
    }

    fn program(&mut self, function: Function, pattern: &str, budget: &mut Budget) -> Result<&Pattern, EvalError> {
        if self.last.as_ref().is_none_or(|(known, _)| known != pattern) {
            if pattern.len() > MAX_PATTERN {
                return Err(function.refuses("the pattern is longer than 512 bytes"));
            }
            budget.step(COMPILE_STEPS)?;
            budget.allocate(MAX_PROGRAM)?;
            let program = Pattern::new(pattern, MAX_PROGRAM).map_err(|refused| match refused {
                PatternError::TooLarge => function.refuses("the pattern is too large"),
                PatternError::Unreadable(_) => function.refuses("the pattern cannot be read"),
            })?;
            self.last = Some((pattern.to_owned(), program));
        }
        self.last.as_ref().map(|(_, program)| program).ok_or_else(|| function.refuses("the pattern cannot be read"))
    }
}
