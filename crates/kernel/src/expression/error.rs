//! Why a text is no expression, and why an expression has no value.
//!
//! Invariants
//! - An error names types, names and places, never values: a value may be a secret.
//!
//! Not here: where in a template an expression stood (`template`).

use std::sync::Arc;

use super::path::Unavailable;
use crate::run::failure::{Blame, Class, Failure};

/// Why a text is no expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at offset {offset})")]
pub struct ParseError {
    /// In bytes, from the start of the text that was read.
    pub offset: usize,
    pub message: String,
    pub fault: Fault,
    /// The word that was probably meant.
    pub meant: Option<String>,
}

/// What sort of slip it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    Syntax,
    UnknownRoot,
    UnknownFunction,
}

impl ParseError {
    pub fn new(offset: usize, message: impl Into<String>) -> ParseError {
        ParseError { offset, message: message.into(), fault: Fault::Syntax, meant: None }
    }

    /// The same, in a text that begins so many bytes earlier.
    pub fn shifted(self, by: usize) -> ParseError {
        ParseError { offset: self.offset + by, ..self }
    }
}

/// Why an expression has no value; names and types only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    #[error("{}cannot take {segment} of {found}", of(path))]
    NotSelectable { path: String, segment: String, found: &'static str },
    #[error("{}{op} cannot order {left} and {right}", of(path))]
    Unordered { path: String, op: &'static str, left: &'static str, right: &'static str },
    #[error("a condition must be true or false, not {found}")]
    NotBoolean { found: &'static str },
    #[error("{op} does not work on {left} and {right}")]
    Operands { op: &'static str, left: &'static str, right: &'static str },
    #[error("{op} does not work on {found}")]
    Operand { op: &'static str, found: &'static str },
    #[error("{op}: the result is too large for a number")]
    Overflow { op: &'static str },
    #[error("{op}: cannot divide by zero")]
    Zero { op: &'static str },
    #[error("{function} needs {expected}, not {found}")]
    Argument { function: &'static str, expected: &'static str, found: &'static str },
    #[error("{function}: {why}")]
    Refused { function: &'static str, why: &'static str },
    #[error("the key of an object must be text, not {found}")]
    Key { found: &'static str },
    #[error("the object is given one of its keys twice")]
    RepeatedKey,
    #[error("there is no secret {0}")]
    NoSecret(String),
    #[error("secrets cannot be used here")]
    NoSecrets,
    #[error("the expression takes more than {limit} steps")]
    Steps { limit: u64 },
    #[error("the expression takes more than {limit} bytes of memory")]
    Bytes { limit: usize },
    #[error("the result is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// One of the others, with its place.
    #[error("{cause}")]
    At { source_text: Arc<str>, offset: usize, cause: Box<EvalError> },
}

impl EvalError {
    /// Where in the expression's source it went wrong, in bytes.
    pub fn offset(&self) -> Option<usize> {
        if let EvalError::At { offset, .. } = self { Some(*offset) } else { None }
    }

    /// What went wrong, without its place.
    pub fn cause(&self) -> &EvalError {
        if let EvalError::At { cause, .. } = self { cause } else { self }
    }

    /// The expression to blame, as a failure shows it.
    pub fn blame(&self, pointer: Option<&str>) -> Option<Box<Blame>> {
        let EvalError::At { source_text, offset, .. } = self else { return None };
        let pointer = pointer.map(str::to_owned);
        Some(Box::new(Blame { source: source_text.to_string(), offset: *offset, pointer }))
    }

    /// Did the budget run out? No operator looks past that.
    pub(super) fn is_spent(&self) -> bool {
        matches!(self, EvalError::Steps { .. } | EvalError::Bytes { .. })
    }
}

impl From<EvalError> for Failure {
    fn from(error: EvalError) -> Failure {
        Failure { expression: error.blame(None), ..Failure::new(Class::ValidationError, error.to_string()) }
    }
}

fn of(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}
