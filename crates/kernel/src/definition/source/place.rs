//! Finds the location of a problem in the text.
//!
//! Invariants
//! - If the exact location is unknown, the location of the nearest enclosing value is used.
//! - The excerpt of the text is short, and never longer than one line.
//!
//! Not here: reading the text (`build`).

use serde_json::Value;

use super::build::{Range, Spot};
use crate::definition::problem::{Code, Part, Problem};

/// The longest excerpt, in characters.
const LONGEST_SHOWN: usize = 120;
/// The longest text that is searched for a part of a value.
const LONGEST_SEARCHED: usize = 16 << 10;

/// The problem with the location of its pointer.
pub(super) fn locate(text: &str, value: &Value, spots: &Spot, problem: Problem) -> Problem {
    let (value, spot) = walk(value, spots, &problem.pointer);
    let piece = match (problem.part, value) {
        (Part::Piece { start, length }, Value::String(value)) => piece(text, spot.value, value, start, length),
        _ => None,
    };
    let of_key = spot.key.filter(|_| problem.part == Part::Key || spot.value.start == spot.value.end);
    at_range(text, piece.or(of_key).unwrap_or(spot.value), problem)
}

/// The problem at a range.
pub(super) fn at_range(text: &str, at: Range, problem: Problem) -> Problem {
    let shown = text.get(at.start..at.end).and_then(|shown| shown.split(['\n', '\r']).next()).unwrap_or_default();
    let shown: String = shown.trim_end().chars().take(LONGEST_SHOWN).collect();
    let shown = Some(shown).filter(|shown| !shown.is_empty());
    Problem { line: Some(at.line.max(1)), column: Some(at.column.max(1)), text: shown, ..problem }
}

/// A problem of the text at a position that the parser reported.
pub(super) fn at_mark(text: &str, at: Range, code: Code, message: &str) -> Problem {
    at_range(text, at, Problem::new(code, "", message))
}

/// What to add to an error of the parser at the brace of an expression without quotes: inside `{…}` and `[…]`, plain
/// text ends before a brace.
pub(super) fn unquoted(text: &str, at: Range) -> &'static str {
    let is_expression = |(before, rest): (&str, &str)| before.ends_with('$') && rest.starts_with("{{");
    let found = text.split_at_checked(at.start).is_some_and(is_expression);
    if found { "; put the expression in quotes: \"${{ … }}\"" } else { "" }
}

/// The problem at a byte, with its line and column counted.
pub(super) fn at_byte(text: &str, at: usize, problem: Problem) -> Problem {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    at_range(text, Range { start: at, end: at, line: small(line), column: small(column) }, problem)
}

/// The value at a pointer. If it does not exist, the last value on the way that exists.
fn walk<'v>(value: &'v Value, spot: &'v Spot, pointer: &str) -> (&'v Value, &'v Spot) {
    pointer
        .split('/')
        .skip(1)
        .try_fold((value, spot), |here, segment| step(here, segment).ok_or(here))
        .unwrap_or_else(|last| last)
}

fn step<'v>((value, spot): (&'v Value, &'v Spot), segment: &str) -> Option<(&'v Value, &'v Spot)> {
    let name = segment.replace("~1", "/").replace("~0", "~");
    let (at, inner) = match value {
        Value::Object(fields) => {
            fields.iter().enumerate().find(|(_, (key, _))| **key == name).map(|(at, (_, inner))| (at, inner))?
        }
        Value::Array(items) => {
            let at: usize = name.parse().ok()?;
            (at, items.get(at)?)
        }
        _ => return None,
    };
    Some((inner, spot.children.get(at)?))
}

/// The range of a part of a value's text. It is known only if the source contains the value unchanged: in one line, or
/// in a block of lines that begins with `|`.
fn piece(text: &str, at: Range, value: &str, start: usize, length: Option<usize>) -> Option<Range> {
    let written = text.get(at.start..at.end).filter(|written| written.len() <= LONGEST_SEARCHED)?.trim_end();
    let start = start.min(value.len());
    let line_start = value.get(..start)?.rfind('\n').map_or(0, |newline| newline + 1);
    let line = value[line_start..].split('\n').next().unwrap_or_default();
    let line_at = if value.contains('\n') {
        block_line(text, at, &value[..line_start], line)?
    } else {
        quoted(at, written, value)?
    };
    let (before, rest) = line.split_at(start - line_start);
    let word = rest.find(|c: char| c.is_whitespace() || c == '}').unwrap_or(rest.len());
    let end = (start - line_start + length.unwrap_or(word)).min(line.len());
    let column = line_at.column + u32::try_from(before.chars().count()).ok()?;
    Some(Range { start: line_at.start + before.len(), end: line_at.start + end, column, ..line_at })
}

/// The range of a value that is written in one line. It begins after the opening quote, if there is one.
fn quoted(at: Range, written: &str, value: &str) -> Option<Range> {
    let inner = written.strip_prefix(['"', '\'']).and_then(|inner| inner.strip_suffix(['"', '\'']));
    match inner {
        _ if written == value => Some(at),
        Some(inner) if inner == value => Some(Range { start: at.start + 1, column: at.column + 1, ..at }),
        _ => None,
    }
}

/// The range that begins with a line of a block, if the source contains the line unchanged. All lines of a block have
/// the indentation of its first line.
fn block_line(text: &str, at: Range, before: &str, line: &str) -> Option<Range> {
    let mut start = at.start;
    let skipped = before.matches('\n').count();
    for _ in 0..skipped {
        start += text.get(start..)?.find('\n')? + 1;
    }
    if skipped > 0 {
        start += usize::try_from(at.column.saturating_sub(1)).ok()?;
    }
    let stands = text.get(start..)?.starts_with(line);
    stands.then_some(Range { start, line: at.line + u32::try_from(skipped).ok()?, ..at })
}
