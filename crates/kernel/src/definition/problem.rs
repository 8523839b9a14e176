//! What can be wrong with a document: a stable code, where it is, and what was probably meant.
//!
//! Invariants
//! - A code never changes its meaning; each is a row of the table in `docs/definitions.md`.
//! - A pointer is always there. Line, column and text are known only where there is a text.
//!
//! Not here: finding problems (`fields`, `parse`, `kind`), finding their lines (`source`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// What kind of problem it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ProblemCode))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    Syntax,
    DuplicateKey,
    TooLarge,
    TooDeep,
    Nul,
    MissingField,
    UnknownField,
    WrongType,
    BadName,
    UnknownKind,
    BadConfig,
    BadInputs,
    DuplicateNode,
    DanglingEdge,
    DuplicateEdge,
    UnknownBranch,
    Cycle,
    Disconnected,
    BadExpression,
    UnknownRoot,
    UnknownFunction,
    UnknownNode,
    NotAnAncestor,
    MisplacedSecret,
    TooMany,
    /// Also what a code of a newer service is read as.
    #[default]
    #[serde(other)]
    BadValue,
}

impl Code {
    /// Every code, in the order in which they are listed to people.
    pub const ALL: [Code; 26] = [
        Code::Syntax,
        Code::DuplicateKey,
        Code::TooLarge,
        Code::TooDeep,
        Code::Nul,
        Code::MissingField,
        Code::UnknownField,
        Code::WrongType,
        Code::BadValue,
        Code::BadName,
        Code::UnknownKind,
        Code::BadConfig,
        Code::BadInputs,
        Code::DuplicateNode,
        Code::DanglingEdge,
        Code::DuplicateEdge,
        Code::UnknownBranch,
        Code::Cycle,
        Code::Disconnected,
        Code::BadExpression,
        Code::UnknownRoot,
        Code::UnknownFunction,
        Code::UnknownNode,
        Code::NotAnAncestor,
        Code::MisplacedSecret,
        Code::TooMany,
    ];

    /// The stable name, and what it means.
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Code::Syntax => ("syntax", "The text is neither YAML nor JSON; what follows it was not read"),
            Code::DuplicateKey => ("duplicate_key", "A key is given twice in one object"),
            Code::TooLarge => ("too_large", "There is more of it than may be: bytes, values, nodes, edges, entries"),
            Code::TooDeep => ("too_deep", "It nests deeper than may be"),
            Code::Nul => ("nul", "It holds a NUL character, which cannot be stored"),
            Code::MissingField => ("missing_field", "A field that must be there is not, or is null"),
            Code::UnknownField => ("unknown_field", "There is no such field here"),
            Code::WrongType => ("wrong_type", "The value has another type than it must"),
            Code::BadValue => ("bad_value", "The value is of the right type, and still cannot be taken"),
            Code::BadName => ("bad_name", "The name has characters that a name cannot have, or is too long"),
            Code::UnknownKind => ("unknown_kind", "There is no such kind of node"),
            Code::BadConfig => ("bad_config", "A field of `with` that the node's kind refuses"),
            Code::BadInputs => ("bad_inputs", "A declaration in `inputs` that cannot be meant so"),
            Code::DuplicateNode => ("duplicate_node", "Two nodes have one key"),
            Code::DanglingEdge => ("dangling_edge", "An edge or `needs` names a node that is not there"),
            Code::DuplicateEdge => ("duplicate_edge", "The same edge is given twice"),
            Code::UnknownBranch => ("unknown_branch", "The node before takes no branch of that name"),
            Code::Cycle => ("cycle", "Nodes wait for each other in a circle"),
            Code::Disconnected => ("disconnected", "A part of the graph has no edge to the rest"),
            Code::BadExpression => ("bad_expression", "An expression cannot be read"),
            Code::UnknownRoot => ("unknown_root", "An expression begins with a name that stands for nothing"),
            Code::UnknownFunction => ("unknown_function", "An expression calls a function that does not exist"),
            Code::UnknownNode => ("unknown_node", "An expression names a node that is not there"),
            Code::NotAnAncestor => {
                ("not_an_ancestor", "An expression looks at a node that need not have ended by then")
            }
            Code::MisplacedSecret => ("misplaced_secret", "A secret is used in a field that is not marked for it"),
            Code::TooMany => ("too_many", "There are more problems than are told at once"),
        }
    }

    /// The stable name.
    pub fn name(self) -> &'static str {
        self.describe().0
    }

    /// Is it always the name of the field that is at fault, rather than its value?
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

/// One thing that is wrong with a document, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    #[serde(default)]
    pub code: Code,
    /// A JSON pointer into the document.
    pub pointer: String,
    pub message: String,
    /// Where it is in the text that was sent, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// In characters, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// What stands there, of that line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What to write instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// What of the place that the pointer names is at fault.
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
    /// A piece of its text, in bytes; how much of it may not be known.
    Piece { start: usize, length: Option<usize> },
}

impl Problem {
    pub fn new(code: Code, pointer: impl Into<String>, message: impl Into<String>) -> Problem {
        let part = if code.is_of_key() { Part::Key } else { Part::Value };
        Problem { code, pointer: pointer.into(), message: message.into(), part, ..Problem::default() }
    }

    /// The same, with the word that was probably meant.
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
