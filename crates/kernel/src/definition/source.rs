//! A document as text: YAML or JSON in, a JSON value out, with the location of each part.
//!
//!     text ──events──▶ build ──▶ value + places
//!                        └── what cannot be read ──▶ problems
//!
//! One parser reads both formats, because every JSON text is also YAML.
//!
//! Invariants
//! - A duplicate key is a problem in both formats. Only `true` and `false` are booleans; `yes`, `no`, `on` and `off`
//!   are text. A number with a needless leading zero, such as 007, is text, because it is usually an identifier.
//! - Bytes, depth and the number of values are limited, including the copies that aliases make. They are counted before
//!   anything is copied.
//! - Lines and columns are counted from 1. Columns are counted in characters.
//!
//! Not here: whether a document is valid (`parse`).

mod build;
mod place;
mod scalar;

use serde_json::Value;

use crate::definition::problem::{Code, Problem};
use build::Spot;

/// The longest text that is read.
pub const MAX_BYTES: usize = 4 << 20;
/// The most values of a document, with those that aliases repeat.
pub const MAX_VALUES: usize = 200_000;
/// The most bytes of text that a document may hold, with those that aliases repeat.
pub const MAX_EXPANDED: usize = 8 << 20;

/// The result of reading a text.
#[derive(Debug)]
pub struct Source<'t> {
    /// The text without its byte order mark.
    text: &'t str,
    /// The document; `None` if the text could not be read to its end.
    pub value: Option<Value>,
    /// The problems of the text itself, before the document is checked.
    pub problems: Vec<Problem>,
    spots: Option<Spot>,
}

/// Reads a text.
pub fn read(text: &str) -> Source<'_> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let refuse = |problem| Source { text, value: None, problems: vec![problem], spots: None };
    if text.len() > MAX_BYTES {
        let message = format!("the text is larger than {MAX_BYTES} bytes");
        return refuse(Problem::new(Code::TooLarge, "", message));
    }
    if let Some(at) = text.find('\0') {
        let problem = Problem::new(Code::Nul, "", "the text holds a NUL character, which cannot be stored");
        return refuse(place::at_byte(text, at, problem));
    }
    let (read, problems) = build::build(text);
    let (value, spots) = read.map_or((None, None), |(value, spots)| (Some(value), Some(spots)));
    Source { text, value, problems, spots }
}

impl Source<'_> {
    /// The same problem with its line, its column and the text at that location.
    pub fn locate(&self, problem: Problem) -> Problem {
        match (&self.value, &self.spots) {
            (Some(value), Some(spots)) => place::locate(self.text, value, spots, problem),
            _ => problem,
        }
    }
}

/// The line of a text with this number. Like the lines of problems, it counts from 1.
pub fn line(text: &str, number: u32) -> Option<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rest = text;
    for _ in 1..number {
        let end = rest.find(['\n', '\r'])?;
        let wide = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = &rest[end + wide..];
    }
    Some(&rest[..rest.find(['\n', '\r']).unwrap_or(rest.len())])
}

#[cfg(test)]
mod tests;
