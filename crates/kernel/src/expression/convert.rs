//! Converts the parser's tree to the tree in `ast`, and decides which expressions are valid.
//!
//! Invariants
//! - No later step uses a type of the parser.
//! - An unknown root, an unknown function and a wrong number of arguments are refused here, before any evaluation.
//! - A tree is at most `MAX_DEPTH` deep, so that walking it needs little stack.
//!
//! Not here: evaluating the tree (`expression::eval`), checking that a node of the graph exists (`parse`).

mod macros;
mod members;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use serde_json::{Number, Value};

use super::ast::{ExpressionNode, Kind, Op};
use super::error::{Fault, ParseError};
use super::function::{self, Function};
use super::path::{Path, ROOTS};
use super::syntax;
use crate::definition::fields::unknown_word;

/// How deep the parts of an expression may nest.
pub const MAX_DEPTH: usize = 100;

/// The converted tree, and what it uses.
pub(super) struct Converted {
    pub(super) root: ExpressionNode,
    /// Every path, in order.
    pub(super) paths: Vec<Path>,
    /// Does it use the status of nodes, with `success()` or `failure()`?
    pub(super) statuses: bool,
}

/// Converts the parser's tree.
pub(super) fn convert(source: &str, tree: &IdedExpr) -> Result<Converted, ParseError> {
    let mut converter = Converter { source, paths: Vec::new(), variables: Vec::new(), depth: 0, statuses: false };
    let root = converter.node(tree)?;
    Ok(Converted { root, paths: converter.paths, statuses: converter.statuses })
}

struct Converter<'s> {
    source: &'s str,
    paths: Vec<Path>,
    /// The variables of the enclosing loops, the innermost last.
    variables: Vec<String>,
    depth: usize,
    statuses: bool,
}

impl Converter<'_> {
    fn node(&mut self, tree: &IdedExpr) -> Result<ExpressionNode, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fail(tree, format!("nests deeper than {MAX_DEPTH}: split the expression")));
        }
        let kind = match &tree.expr {
            Expr::Literal(literal) => Kind::Literal(self.literal(tree, literal)?),
            Expr::Ident(_) | Expr::Select(_) => self.member(tree)?,
            Expr::Call(call) if call.func_name == operators::INDEX => self.member(tree)?,
            Expr::Call(call) => match self.operator(tree, call)? {
                Some(kind) => kind,
                None => self.call(tree, call)?,
            },
            Expr::Comprehension(comprehension) => self.comprehension(tree, comprehension)?,
            Expr::List(list) => Kind::List(self.nodes(&list.elements)?),
            Expr::Map(map) => {
                let entries = map.entries.iter().map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => Ok((self.node(&entry.key)?, self.node(&entry.value)?)),
                    EntryExpr::StructField(_) => Err(self.fail(tree, "an object has no type here: write {key: value}")),
                });
                Kind::Object(entries.collect::<Result<_, _>>()?)
            }
            Expr::Struct(_) => {
                return Err(self.fail(tree, "an object has no type here: remove the name before the brace"));
            }
            Expr::Unspecified => return Err(self.fail(tree, "cannot be read")),
        };
        self.depth -= 1;
        Ok(ExpressionNode { place: tree.id, kind })
    }

    fn nodes(&mut self, trees: &[IdedExpr]) -> Result<Vec<ExpressionNode>, ParseError> {
        trees.iter().map(|tree| self.node(tree)).collect()
    }

    fn boxed(&mut self, tree: &IdedExpr) -> Result<Box<ExpressionNode>, ParseError> {
        self.node(tree).map(Box::new)
    }

    fn literal(&self, tree: &IdedExpr, literal: &LiteralValue) -> Result<Value, ParseError> {
        Ok(match literal {
            LiteralValue::Null => Value::Null,
            LiteralValue::Boolean(truth) => Value::Bool(*truth.inner()),
            LiteralValue::Int(number) => Value::from(*number.inner()),
            LiteralValue::UInt(number) => Value::from(*number.inner()),
            LiteralValue::Double(number) => {
                let number = Number::from_f64(*number.inner());
                Value::Number(number.ok_or_else(|| self.fail(tree, "the number is too large"))?)
            }
            LiteralValue::String(text) if text.inner().contains('\0') => {
                return Err(self.fail(tree, "text cannot hold a NUL character"));
            }
            LiteralValue::String(text) => Value::from(text.inner()),
            LiteralValue::Bytes(_) => return Err(self.fail(tree, "bytes are not supported: leave out the b")),
        })
    }

    fn call(&mut self, tree: &IdedExpr, call: &CallExpr) -> Result<Kind, ParseError> {
        let name = call.func_name.as_str();
        let Some(function) = Function::parse(name) else { return Err(self.unknown_function(tree, name)) };
        let arguments: Vec<&IdedExpr> = call.target.as_deref().into_iter().chain(&call.args).collect();
        let takes = function.takes();
        if !takes.contains(&arguments.len()) {
            let (least, most) = (*takes.start(), *takes.end());
            let count = match most {
                most if most == least => format!("{least}"),
                usize::MAX => format!("at least {least}"),
                most => format!("{least} to {most}"),
            };
            let message = format!("{name} takes {count} arguments, not {}", arguments.len());
            return Err(self.fail(tree, message));
        }
        let arguments = arguments.into_iter().map(|argument| self.node(argument)).collect::<Result<_, _>>()?;
        self.statuses |= function.uses_statuses();
        Ok(Kind::Call(function, arguments))
    }

    fn operator(&mut self, tree: &IdedExpr, call: &CallExpr) -> Result<Option<Kind>, ParseError> {
        if let Some(op) = op(&call.func_name) {
            return self.binary(op, tree, call).map(Some);
        }
        Ok(Some(match call.func_name.as_str() {
            operators::LOGICAL_AND => Kind::And(self.nodes(&call.args)?),
            operators::LOGICAL_OR => Kind::Or(self.nodes(&call.args)?),
            operators::LOGICAL_NOT => Kind::Not(self.boxed(&call.args[0])?),
            operators::NEGATE => Kind::Negate(self.boxed(&call.args[0])?),
            operators::CONDITIONAL => return self.choice(call).map(Some),
            _ => return Ok(None),
        }))
    }

    fn binary(&mut self, op: Op, tree: &IdedExpr, call: &CallExpr) -> Result<Kind, ParseError> {
        if op == Op::Subtract {
            self.refuse_minus(tree, &call.args[0], &call.args[1])?;
        }
        Ok(Kind::Binary(op, Box::new([self.node(&call.args[0])?, self.node(&call.args[1])?])))
    }

    fn choice(&mut self, call: &CallExpr) -> Result<Kind, ParseError> {
        let parts = [self.node(&call.args[0])?, self.node(&call.args[1])?, self.node(&call.args[2])?];
        Ok(Kind::If(Box::new(parts)))
    }

    fn unknown_function(&self, tree: &IdedExpr, name: &str) -> ParseError {
        if let Some(usage) = macros::usage(name) {
            return self.fail(tree, format!("{name} is written {usage}"));
        }
        if name == "now" {
            return self.fail(tree, "expressions have no clock: use execution.created_at");
        }
        let (message, meant) = unknown_word("function", name, function::names());
        ParseError { fault: Fault::UnknownFunction, meant, ..self.fail(tree, message) }
    }

    fn unknown_root(&self, tree: &IdedExpr, name: &str) -> ParseError {
        let (message, meant) = unknown_word("root", name, ROOTS.into_iter());
        ParseError { fault: Fault::UnknownRoot, meant, ..self.fail(tree, message) }
    }

    fn fail(&self, tree: &IdedExpr, message: impl Into<String>) -> ParseError {
        ParseError::new(syntax::locate(self.source, tree.id), message)
    }
}

fn op(name: &str) -> Option<Op> {
    Some(match name {
        operators::EQUALS => Op::Equal,
        operators::NOT_EQUALS => Op::NotEqual,
        operators::LESS => Op::Less,
        operators::LESS_EQUALS => Op::LessOrEqual,
        operators::GREATER => Op::Greater,
        operators::GREATER_EQUALS => Op::GreaterOrEqual,
        operators::IN => Op::In,
        operators::ADD => Op::Add,
        operators::SUBSTRACT => Op::Subtract,
        operators::MULTIPLY => Op::Multiply,
        operators::DIVIDE => Op::Divide,
        operators::MODULO => Op::Remainder,
        _ => return None,
    })
}
