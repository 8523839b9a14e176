//! The tree of an expression that is evaluated. It has no types of the parser.
//!
//! Invariants
//! - Every node has the number of its place in the source, as the parser counts places. `expression::syntax` converts
//!   the number into an offset if an error needs it.
//! - A variable is identified by the number of loops between its use and the loop that defines it.
//!
//! Not here: creating the tree (`expression::convert`), evaluating it (`expression::eval`).

use serde_json::Value;

use super::function::Function;
use super::path::{Part, Segment};
use crate::ids::NodeKey;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpressionNode {
    pub(super) place: u64,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Literal(Value),
    /// The value at one of the expression's paths.
    Path(PathLookup),
    Variable(usize),
    Select(Box<ExpressionNode>, Segment),
    Index(Box<[ExpressionNode; 2]>),
    /// `has(path)`: does a value exist at this path?
    HasPath(PathLookup),
    Has(Box<ExpressionNode>, String),
    Not(Box<ExpressionNode>),
    Negate(Box<ExpressionNode>),
    And(Vec<ExpressionNode>),
    Or(Vec<ExpressionNode>),
    Binary(Op, Box<[ExpressionNode; 2]>),
    If(Box<[ExpressionNode; 3]>),
    List(Vec<ExpressionNode>),
    Object(Vec<(ExpressionNode, ExpressionNode)>),
    Call(Function, Vec<ExpressionNode>),
    Loop(Box<Loop>),
}

/// One of the expression's paths, with the value at which it starts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PathLookup {
    /// The index of the path in the expression's paths.
    pub(super) path: usize,
    pub(super) start: Start,
    /// How many segments of the path belong to the start.
    pub(super) skip: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Start {
    Inputs,
    Trigger,
    Execution,
    Workspace,
    Vars,
    /// The path names a node key that is not valid, so no such node exists and the value is null.
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
    pub(super) over: ExpressionNode,
    pub(super) goal: Goal,
    /// Items for which this is not true are left out.
    pub(super) filter: Option<ExpressionNode>,
    pub(super) body: ExpressionNode,
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
    /// The operator as it is written in an expression.
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
