//! Errors of parsing an expression, and of evaluating one.
//!
//! Invariants
//! - An error contains types, names and places, never values, because a value may be a secret.
//!
//! Not here: the location of an expression in a template (`template`).

use std::sync::Arc;

use super::path::Unavailable;
use crate::run::failure::{Class, FailedExpression, Failure};

/// Why a text cannot be parsed as an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at offset {offset})")]
pub struct ParseError {
    /// The position of the error in bytes, from the start of the text.
    pub offset: usize,
    pub message: String,
    pub fault: Fault,
    /// The word that the author probably meant.
    pub meant: Option<String>,
}

/// The category of a parse error.
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

    /// The same error with its offset in a text that begins this many bytes earlier.
    pub fn shifted(self, by: usize) -> ParseError {
        ParseError { offset: self.offset + by, ..self }
    }
}

/// Why an expression cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Unavailable(#[from] Unavailable),
    #[error("{}cannot read {segment} of {found}", of(path))]
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
    #[error("a key of the object is given twice")]
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
    /// Another evaluation error, with its place.
    #[error("{cause}")]
    At { source_text: Arc<str>, offset: usize, cause: Box<EvalError> },
}

impl EvalError {
    /// The position of the error in the expression's source, in bytes.
    pub fn offset(&self) -> Option<usize> {
        if let EvalError::At { offset, .. } = self { Some(*offset) } else { None }
    }

    /// The error without its place.
    pub fn cause(&self) -> &EvalError {
        if let EvalError::At { cause, .. } = self { cause } else { self }
    }

    /// The failed expression, as a failure shows it.
    pub fn failed_expression(&self, pointer: Option<&str>) -> Option<Box<FailedExpression>> {
        let EvalError::At { source_text, offset, .. } = self else { return None };
        let pointer = pointer.map(str::to_owned);
        Some(Box::new(FailedExpression { source: source_text.to_string(), offset: *offset, pointer }))
    }

    /// Is the budget exceeded? `&&`, `||` and loops never ignore this error.
    pub(super) fn is_spent(&self) -> bool {
        matches!(self, EvalError::Steps { .. } | EvalError::Bytes { .. })
    }
}

impl From<EvalError> for Failure {
    fn from(error: EvalError) -> Failure {
        Failure { expression: error.failed_expression(None), ..Failure::new(Class::ValidationError, error.to_string()) }
    }
}

fn of(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}
