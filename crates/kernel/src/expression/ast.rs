//! An expression as it is evaluated: small, ours, and free of the parser's types.
//!
//! Invariants
//! - Every node knows its place as the parser numbers places; `expression::syntax` turns that into an offset when an
//!   error needs one.
//! - A variable is named by how many loops stand between it and its own.
//!
//! Not here: how it comes about (`expression::convert`), what it means (`expression::eval`).

use serde_json::Value;

use super::function::Function;
use super::path::{Part, Segment};
use crate::ids::NodeKey;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) place: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Literal(Value),
    /// What stands at one of the expression's paths.
    Path(Place),
    Variable(usize),
    Select(Box<Node>, Segment),
    Index(Box<[Node; 2]>),
    /// Is something at this path?
    HasPath(Place),
    Has(Box<Node>, String),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Binary(Op, Box<[Node; 2]>),
    If(Box<[Node; 3]>),
    List(Vec<Node>),
    Object(Vec<(Node, Node)>),
    Call(Function, Vec<Node>),
    Loop(Box<Loop>),
}

/// One of the expression's paths, with its start looked up.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Which path it is.
    pub(super) path: usize,
    pub(super) start: Start,
    /// How many of its segments belong to the start.
    pub(super) skip: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Start {
    Inputs,
    Trigger,
    Execution,
    Workspace,
    Vars,
    /// No node can have such a key: nothing is there.
    Nowhere,
    Node(NodeKey, Part),
    Secret(String),
    Item,
    Index,
    Event,
}

/// A macro over the items of a list or the keys of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loop {
    pub(super) over: Node,
    pub(super) goal: Goal,
    /// Only items of which this is true.
    pub(super) filter: Option<Node>,
    pub(super) body: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    All,
    Exists,
    ExistsOne,
    Map,
}

impl Goal {
    pub(super) fn name(self) -> &'static str {
        match self {
            Goal::All => "all",
            Goal::Exists => "exists",
            Goal::ExistsOne => "exists_one",
            Goal::Map => "map",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Op {
    /// As it is written.
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Op::Equal => "==",
            Op::NotEqual => "!=",
            Op::Less => "<",
            Op::LessOrEqual => "<=",
            Op::Greater => ">",
            Op::GreaterOrEqual => ">=",
            Op::In => "in",
            Op::Add => "+",
            Op::Subtract => "-",
            Op::Multiply => "*",
            Op::Divide => "/",
            Op::Remainder => "%",
        }
    }
}
