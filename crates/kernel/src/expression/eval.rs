//! Evaluates an expression: walks its tree, and borrows values from the scope instead of copying them where possible.
//!
//! Invariants
//! - Evaluation is deterministic. It uses no clock and no randomness, and visits the fields of objects in their order.
//! - Every visited part of the tree costs a step. Memory is charged before it is allocated.
//! - A missing field is null, and a field of null is null.
//! - The order of the terms of `&&` and `||` does not matter, as in CEL. An error in one term counts only if the other
//!   terms do not decide the result. A spent budget is always an error.
//!
//! Not here: finding the value of a path (`eval::find`), operators (`expression::operator`), functions
//! (`expression::function`).

mod find;
mod tally;

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::ast::{ExpressionNode, Goal, Kind, Loop};
use super::budget::{Budget, ENTRY, OBJECT, VALUE};
use super::error::EvalError;
use super::function::{self, Function};
use super::operator;
use super::path::{Path, Segment};
use super::{Expression, Scope, truthy, type_name};
use crate::access::secret::Secrets;
use find::{has, take};
use tally::Tally;

static NULL: Value = Value::Null;

/// An error and the place at which it happened.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) place: u64,
    pub(super) cause: EvalError,
}

/// The variables of the enclosing loops, the innermost first.
#[derive(Clone, Copy)]
struct Bound<'e> {
    value: &'e Value,
    outer: Option<&'e Bound<'e>>,
}

type Sight<'e> = Option<&'e Bound<'e>>;

/// The value of an expression.
pub(super) fn eval<'e>(
    expression: &'e Expression,
    scope: &'e Scope,
    secrets: Option<&'e Secrets>,
    budget: &mut Budget,
) -> Result<Cow<'e, Value>, Fault> {
    let library = function::Library::default();
    Walk { scope, secrets, paths: &expression.paths, budget, library }.node(&expression.root, None)
}

struct Walk<'s, 'b> {
    scope: &'s Scope,
    secrets: Option<&'s Secrets>,
    paths: &'s [Path],
    budget: &'b mut Budget,
    library: function::Library,
}

impl ExpressionNode {
    fn fault(&self, cause: EvalError) -> Fault {
        Fault { place: self.place, cause }
    }
}

impl<'s> Walk<'s, '_> {
    fn node<'e>(&mut self, node: &'e ExpressionNode, sight: Sight<'e>) -> Result<Cow<'e, Value>, Fault>
    where
        's: 'e,
    {
        self.budget.step(1).map_err(|cause| node.fault(cause))?;
        Ok(match &node.kind {
            Kind::Literal(value) => Cow::Borrowed(value),
            Kind::Path(place) => self.find(place).map_err(|cause| node.fault(cause))?,
            Kind::Variable(up) => Cow::Borrowed(variable(sight, *up)),
            Kind::Select(of, segment) => {
                let of = self.node(of, sight)?;
                take(of, segment).map_err(|cause| node.fault(cause))?
            }
            Kind::Index(both) => self.index(node, both, sight)?,
            Kind::HasPath(place) => truth(self.has_path(place).map_err(|cause| node.fault(cause))?),
            Kind::Has(of, field) => {
                let of = self.node(of, sight)?;
                truth(has(&of, field, "").map_err(|cause| node.fault(cause))?)
            }
            Kind::Not(of) => truth(!self.test(of, sight)?),
            Kind::Negate(of) => {
                let value = self.node(of, sight)?;
                Cow::Owned(operator::negate(&value).map_err(|cause| node.fault(cause))?)
            }
            Kind::And(terms) => truth(self.decide(false, terms, sight)?),
            Kind::Or(terms) => truth(self.decide(true, terms, sight)?),
            Kind::If(parts) => {
                let [test, then, otherwise] = parts.as_ref();
                let chosen = if self.test(test, sight)? { then } else { otherwise };
                self.node(chosen, sight)?
            }
            Kind::Binary(op, both) => {
                let left = self.node(&both[0], sight)?;
                let right = self.node(&both[1], sight)?;
                let value = operator::binary(*op, left, right, self.budget);
                value.map_err(|cause| node.fault(self.name(cause, &both[0])))?
            }
            Kind::List(items) => Cow::Owned(self.list(node, items, sight)?),
            Kind::Object(entries) => Cow::Owned(self.object(node, entries, sight)?),
            Kind::Call(function, arguments) => self.call(node, *function, arguments, sight)?,
            Kind::Loop(each) => Cow::Owned(self.each(node, each, sight)?),
        })
    }

    fn test<'e>(&mut self, node: &'e ExpressionNode, sight: Sight<'e>) -> Result<bool, Fault>
    where
        's: 'e,
    {
        let value = self.node(node, sight)?;
        truthy(&value).map_err(|cause| node.fault(cause))
    }

    /// `&&` and `||`: the first term with the value `by` decides the result, even if other terms fail.
    fn decide<'e>(&mut self, by: bool, terms: &'e [ExpressionNode], sight: Sight<'e>) -> Result<bool, Fault>
    where
        's: 'e,
    {
        let mut fault = None;
        for term in terms {
            match self.test(term, sight) {
                Ok(truth) if truth == by => return Ok(by),
                Ok(_) => {}
                Err(spent) if spent.cause.is_spent() => return Err(spent),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        fault.map_or(Ok(!by), Err)
    }

    fn index<'e>(
        &mut self,
        node: &'e ExpressionNode,
        both: &'e [ExpressionNode; 2],
        sight: Sight<'e>,
    ) -> Result<Cow<'e, Value>, Fault>
    where
        's: 'e,
    {
        let of = self.node(&both[0], sight)?;
        let key = self.node(&both[1], sight)?;
        let segment = match key.as_ref() {
            Value::String(name) => {
                self.budget.allocate(name.len()).map_err(|cause| node.fault(cause))?;
                Segment::Field(name.clone())
            }
            Value::Number(number) => match operator::position(number) {
                Some(at) => Segment::Index(at),
                None => {
                    return Err(
                        node.fault(EvalError::Operand { op: "[ ]", found: "a position below 0 or between items" })
                    );
                }
            },
            other => return Err(node.fault(EvalError::Operand { op: "[ ]", found: type_name(other) })),
        };
        // A computed segment is a value, which may be a secret. So the error does not contain it.
        take(of, &segment).map_err(|cause| match cause {
            EvalError::NotSelectable { path, found, .. } => {
                let segment = if matches!(segment, Segment::Field(_)) { "a field" } else { "an item" };
                node.fault(EvalError::NotSelectable { path, segment: segment.to_owned(), found })
            }
            cause => node.fault(cause),
        })
    }

    fn list<'e>(&mut self, node: &ExpressionNode, items: &'e [ExpressionNode], sight: Sight<'e>) -> Result<Value, Fault>
    where
        's: 'e,
    {
        self.budget.allocate(items.len() * VALUE).map_err(|cause| node.fault(cause))?;
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            let value = self.node(item, sight)?;
            list.push(self.budget.own(value).map_err(|cause| item.fault(cause))?);
        }
        Ok(Value::Array(list))
    }

    fn object<'e>(
        &mut self,
        node: &ExpressionNode,
        entries: &'e [(ExpressionNode, ExpressionNode)],
        sight: Sight<'e>,
    ) -> Result<Value, Fault>
    where
        's: 'e,
    {
        self.budget.allocate(OBJECT + entries.len() * ENTRY).map_err(|cause| node.fault(cause))?;
        let mut object = Map::with_capacity(entries.len());
        for (key, value) in entries {
            let name = self.node(key, sight)?;
            let name = match self.budget.own(name).map_err(|cause| key.fault(cause))? {
                Value::String(name) => name,
                other => return Err(key.fault(EvalError::Key { found: type_name(&other) })),
            };
            if object.contains_key(&name) {
                return Err(key.fault(EvalError::RepeatedKey));
            }
            let field = self.node(value, sight)?;
            object.insert(name, self.budget.own(field).map_err(|cause| value.fault(cause))?);
        }
        Ok(Value::Object(object))
    }

    fn call<'e>(
        &mut self,
        node: &'e ExpressionNode,
        function: Function,
        arguments: &'e [ExpressionNode],
        sight: Sight<'e>,
    ) -> Result<Cow<'e, Value>, Fault>
    where
        's: 'e,
    {
        match function {
            Function::Coalesce => {
                for argument in arguments {
                    let value = self.node(argument, sight)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                return Ok(Cow::Borrowed(&NULL));
            }
            Function::Always => return Ok(truth(true)),
            Function::Success => return Ok(truth(!self.scope.has_failed())),
            Function::Failure => return Ok(truth(self.scope.has_failed())),
            _ => {}
        }
        let arguments = arguments.iter().map(|argument| self.node(argument, sight)).collect::<Result<Vec<_>, _>>()?;
        self.library.call(function, arguments, self.budget).map_err(|cause| node.fault(cause))
    }

    fn each<'e>(&mut self, node: &'e ExpressionNode, each: &'e Loop, sight: Sight<'e>) -> Result<Value, Fault>
    where
        's: 'e,
    {
        let over = self.node(&each.over, sight)?;
        let mut tally = Tally::new(each.goal);
        match over {
            Cow::Borrowed(Value::Array(items)) => {
                for item in items {
                    if !self.item(each, Cow::Borrowed(item), sight, &mut tally)? {
                        break;
                    }
                }
            }
            Cow::Owned(Value::Array(items)) => {
                for item in items {
                    if !self.item(each, Cow::Owned(item), sight, &mut tally)? {
                        break;
                    }
                }
            }
            over => {
                let Some(fields) = over.as_object() else {
                    let (function, expected) = (each.goal.name(), "a list or an object");
                    return Err(node.fault(EvalError::Argument { function, expected, found: type_name(&over) }));
                };
                for name in fields.keys() {
                    self.budget.allocate(name.len()).map_err(|cause| node.fault(cause))?;
                    if !self.item(each, Cow::Owned(Value::String(name.clone())), sight, &mut tally)? {
                        break;
                    }
                }
            }
        }
        tally.finish()
    }

    /// Evaluates one item of a loop. Returns false if the remaining items cannot change the result.
    fn item(&mut self, each: &Loop, item: Cow<'_, Value>, outer: Sight<'_>, tally: &mut Tally) -> Result<bool, Fault> {
        let bound = Bound { value: &item, outer };
        if let Some(filter) = &each.filter
            && !self.test(filter, Some(&bound))?
        {
            return Ok(true);
        }
        if each.goal != Goal::Map {
            return tally.count(self.test(&each.body, Some(&bound)));
        }
        let made = match each.body.kind {
            // An owned item that is kept unchanged is moved instead of copied.
            Kind::Variable(0) => self.budget.own(item),
            _ => {
                let made = self.node(&each.body, Some(&bound))?;
                self.budget.own(made)
            }
        };
        let made = made.and_then(|made| self.budget.allocate(VALUE).map(|()| made));
        tally.list.push(made.map_err(|cause| each.body.fault(cause))?);
        Ok(true)
    }

    /// Adds the path of the left side to the error of a comparison that is not possible.
    fn name(&self, cause: EvalError, left: &ExpressionNode) -> EvalError {
        match (cause, &left.kind) {
            (EvalError::Unordered { op, left, right, .. }, Kind::Path(place)) => {
                EvalError::Unordered { path: self.paths[place.path].to_string(), op, left, right }
            }
            (cause, _) => cause,
        }
    }
}

fn truth<'e>(truth: bool) -> Cow<'e, Value> {
    Cow::Owned(Value::Bool(truth))
}

fn variable(sight: Sight<'_>, up: usize) -> &Value {
    let mut bound = sight;
    for _ in 0..up {
        bound = bound.and_then(|bound| bound.outer);
    }
    bound.map_or(&NULL, |bound| bound.value)
}
