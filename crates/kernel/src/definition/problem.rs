//! A problem of a document: a stable code, its location, and a suggestion.
//!
//! Invariants
//! - A code never changes its meaning; each is a row of the table in `docs/reference/definitions.md`.
//! - A pointer is always there. Line, column and text are known only where there is a text.
//!
//! Not here: finding problems (`fields`, `parse`, `kind`), finding their lines (`source`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::names;

/// Every code, in the order in which they are listed to people: its stable name, and what it means.
macro_rules! codes {
    ($($(#[$meta:meta])* $code:ident $name:literal: $meaning:literal;)*) => {
        names! {
            /// What kind of problem it is.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
            #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ProblemCode))]
            #[serde(rename_all = "snake_case")]
            pub enum Code { $($(#[$meta])* $code = $name),* }
        }

        impl Code {
            /// The stable name, and what it means.
            pub fn describe(self) -> (&'static str, &'static str) {
                (self.name(), match self { $(Code::$code => $meaning),* })
            }
        }
    };
}

codes! {
    Syntax "syntax": "The text is neither YAML nor JSON; the text after this place was not read";
    DuplicateKey "duplicate_key": "A key is given twice in one object";
    TooLarge "too_large": "A limit is exceeded: bytes, values, nodes, edges or entries";
    TooDeep "too_deep": "The document nests too deeply";
    Nul "nul": "The text contains a NUL character, which cannot be stored";
    MissingField "missing_field": "A required field is absent or null";
    UnknownField "unknown_field": "No field of this name exists here";
    WrongType "wrong_type": "The value has the wrong type";
    BadName "bad_name": "The name has characters that are not allowed, or is too long";
    UnknownKind "unknown_kind": "No kind of node has this name";
    BadConfig "bad_config": "A field of `with` is not valid for the kind of the node";
    BadInputs "bad_inputs": "A declaration in `inputs` is not valid";
    DuplicateNode "duplicate_node": "Two nodes have the same key";
    DanglingEdge "dangling_edge": "An edge or `needs` names a node that does not exist";
    DuplicateEdge "duplicate_edge": "The same edge is given twice";
    UnknownBranch "unknown_branch": "The source node has no branch of this name";
    Cycle "cycle": "Nodes wait for each other in a circle";
    Disconnected "disconnected": "A part of the graph has no edge to the rest";
    BadExpression "bad_expression": "An expression cannot be parsed";
    UnknownRoot "unknown_root": "An expression begins with an unknown name";
    UnknownFunction "unknown_function": "An expression calls a function that does not exist";
    UnknownNode "unknown_node": "An expression names a node that does not exist";
    NotAnAncestor "not_an_ancestor": "An expression uses a node that may not have ended by then";
    MisplacedSecret "misplaced_secret": "A secret is used in a field that may not contain secrets";
    TooMany "too_many": "There are more problems than one response reports";
    /// Also stands for codes of a newer service.
    #[default]
    #[serde(other)]
    BadValue "bad_value": "The value has the right type, but is not allowed";
}

impl Code {
    /// Is the name of the field always the problem, rather than its value?
    fn is_of_key(self) -> bool {
        matches!(
            self,
            Code::DuplicateKey
                | Code::UnknownField
                | Code::MissingField
                | Code::DuplicateNode
                | Code::Cycle
                | Code::Disconnected
        )
    }
}

/// One problem of a document, and its location.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    #[serde(default)]
    pub code: Code,
    /// A JSON pointer into the document.
    pub pointer: String,
    pub message: String,
    /// The line in the text that was sent, from 1.
    pub line: Option<u32>,
    /// The column in characters, from 1.
    pub column: Option<u32>,
    /// The part of the line at this location.
    pub text: Option<String>,
    /// What to write instead.
    pub suggestion: Option<String>,
    /// Which part of the field has the problem.
    #[serde(skip)]
    pub(crate) part: Part,
}

/// A part of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    #[default]
    Value,
    /// Its name.
    Key,
    /// A piece of its text, in bytes; its length may be unknown.
    Piece { start: usize, length: Option<usize> },
}

impl Problem {
    pub fn new(code: Code, pointer: impl Into<String>, message: impl Into<String>) -> Problem {
        let part = if code.is_of_key() { Part::Key } else { Part::Value };
        Problem { code, pointer: pointer.into(), message: message.into(), part, ..Problem::default() }
    }

    /// The same, with a suggested word.
    pub(crate) fn suggest(self, suggestion: Option<String>) -> Problem {
        Problem { suggestion, ..self }
    }

    /// The same, at a piece of the value's text.
    pub(crate) fn within(self, start: usize, length: Option<usize>) -> Problem {
        Problem { part: Part::Piece { start, length }, ..self }
    }

    /// The same, of the field's name.
    pub(crate) fn of_key(self) -> Problem {
        Problem { part: Part::Key, ..self }
    }

    /// The same below another value.
    pub fn below(self, at: &str) -> Problem {
        Problem { pointer: format!("{at}{}", self.pointer), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.pointer.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.pointer, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_is_listed_once_and_named_as_it_is_sent() {
        let all: BTreeSet<Code> = Code::ALL.into_iter().collect();
        assert_eq!(all.len(), Code::ALL.len());
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).expect("JSON"), code.name());
        }
    }

    #[test]
    fn a_problem_of_another_build_can_be_read() {
        let read = |text: &str| serde_json::from_str::<Problem>(text).expect("a problem");
        assert_eq!(read(r#"{"pointer": "/a", "message": "m"}"#), Problem::new(Code::BadValue, "/a", "m"));
        assert_eq!(read(r#"{"pointer": "", "message": "m", "code": "newer"}"#).code, Code::BadValue);
    }
}
