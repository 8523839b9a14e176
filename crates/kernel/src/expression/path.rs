//! Paths: the values that an expression uses.
//!
//! Invariants
//! - The text of a path parses to the same path.
//! - Every root is listed once, here.
//!
//! Not here: finding the value of a path (`expression::eval`), checking that a named node exists (`parse`).

use std::fmt;

/// The most segments of one path.
pub const MAX_SEGMENTS: usize = 64;

/// The roots that messages suggest. They leave out `item`, `index`, `event` and `callbacks`, which exist only in some
/// fields, and `steps`, which is read as `nodes`.
pub(super) const ROOTS: [&str; 7] = ["inputs", "nodes", "vars", "secrets", "trigger", "execution", "workspace"];

/// Why an expression may not use a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("unknown root {name}: use one of {roots}", name = .0, roots = ROOTS.join(", "))]
    UnknownRoot(String),
    #[error("name a node and one of its parts, such as nodes.fetch.output")]
    NoNode,
    #[error("nodes.{node} must be followed by output, status or error")]
    NoPart { node: String },
    #[error("name one secret, such as secrets.api_key")]
    NoSecret,
    #[error("name one node that waits, such as callbacks.approve")]
    NoCallback,
}

/// One segment of a path: a field or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Field(String),
    Index(usize),
}

/// The location of a value: a root and the segments after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub(super) root: String,
    pub(super) segments: Vec<Segment>,
}

/// The parts of a node that an expression may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Output,
    Status,
    Error,
}

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root<'a> {
    Inputs,
    Trigger,
    Execution,
    Workspace,
    Vars,
    Node {
        key: &'a str,
        part: Part,
    },
    Secret {
        name: &'a str,
    },
    /// The callback of a waiting node: the URL that answers it.
    Callback {
        node: &'a str,
    },
    /// The current item of a loop, and its index from 0.
    Item,
    Index,
    /// The event that the `match` of a WAIT_FOR_EVENT checks.
    Event,
}

impl Path {
    /// The root of the path and the segments after it, or why the path may not be used.
    pub fn root(&self) -> Result<(Root<'_>, &[Segment]), Unavailable> {
        let rest = self.segments.as_slice();
        Ok(match self.root.as_str() {
            "inputs" => (Root::Inputs, rest),
            "trigger" => (Root::Trigger, rest),
            "execution" => (Root::Execution, rest),
            "workspace" => (Root::Workspace, rest),
            "vars" => (Root::Vars, rest),
            "nodes" => self.node()?,
            "secrets" => match rest {
                [Segment::Field(name)] => (Root::Secret { name }, &[]),
                _ => return Err(Unavailable::NoSecret),
            },
            "callbacks" => match rest {
                [Segment::Field(node)] => (Root::Callback { node }, &[]),
                _ => return Err(Unavailable::NoCallback),
            },
            "item" => (Root::Item, rest),
            "index" => (Root::Index, rest),
            "event" => (Root::Event, rest),
            _ => return Err(Unavailable::UnknownRoot(self.root.clone())),
        })
    }

    fn node(&self) -> Result<(Root<'_>, &[Segment]), Unavailable> {
        let [Segment::Field(key), rest @ ..] = self.segments.as_slice() else { return Err(Unavailable::NoNode) };
        let part = match rest.first() {
            Some(Segment::Field(name)) if name == "output" => Part::Output,
            Some(Segment::Field(name)) if name == "status" => Part::Status,
            Some(Segment::Field(name)) if name == "error" => Part::Error,
            _ => return Err(Unavailable::NoPart { node: key.clone() }),
        };
        Ok((Root::Node { key, part }, &rest[1..]))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Field(name) if is_selector(name) => write!(f, ".{name}"),
            Segment::Field(name) => write!(f, "[{}]", serde_json::Value::from(name.as_str())),
            Segment::Index(at) => write!(f, "[{at}]"),
        })
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Segment::Field(name) => write!(f, "field {name}"),
            Segment::Index(at) => write!(f, "item {at}"),
        }
    }
}

/// The words that cannot follow a dot.
pub(super) const KEYWORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Can this name follow a dot?
fn is_selector(name: &str) -> bool {
    let mut chars = name.chars();
    let head = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    head && chars.all(|c| c.is_ascii_alphanumeric() || c == '_') && !KEYWORDS.contains(&name)
}
