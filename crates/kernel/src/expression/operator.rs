//! The operators of expressions.
//!
//! Invariants
//! - Two whole numbers are computed and compared exactly, other numbers as floating point. A result that a JSON number
//!   cannot represent is an error; it never becomes another value.
//! - Values of different types are not equal. Comparing them with `==` is not an error, because `x == null` must work
//!   for every x.
//!
//! Not here: `&&`, `||`, `!` and `?:`, which decide what is evaluated (`expression::eval`).

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::ast::Op;
use super::budget::{Budget, VALUE};
use super::error::EvalError;
use super::type_name;

type Answer<'e> = Result<Cow<'e, Value>, EvalError>;

/// The value of an operator between two values.
pub(super) fn binary<'e>(op: Op, left: Cow<'e, Value>, right: Cow<'e, Value>, budget: &mut Budget) -> Answer<'e> {
    Ok(Cow::Owned(match op {
        Op::Equal => Value::Bool(same(&left, &right, budget)?),
        Op::NotEqual => Value::Bool(!same(&left, &right, budget)?),
        Op::Less => Value::Bool(order(op, &left, &right, budget)?.is_lt()),
        Op::LessOrEqual => Value::Bool(order(op, &left, &right, budget)?.is_le()),
        Op::Greater => Value::Bool(order(op, &left, &right, budget)?.is_gt()),
        Op::GreaterOrEqual => Value::Bool(order(op, &left, &right, budget)?.is_ge()),
        Op::In => Value::Bool(within(&left, &right, budget)?),
        Op::Add => add(left, right, budget)?,
        Op::Subtract | Op::Multiply | Op::Divide | Op::Remainder => match (left.as_ref(), right.as_ref()) {
            (Value::Number(left), Value::Number(right)) => Value::Number(compute(op, left, right)?),
            (left, right) => return Err(operands(op, left, right)),
        },
    }))
}

/// `-x`.
pub(super) fn negate(value: &Value) -> Result<Value, EvalError> {
    match value {
        Value::Number(number) => compute(Op::Subtract, &Number::from(0), number).map(Value::Number),
        other => Err(EvalError::Operand { op: "-", found: type_name(other) }),
    }
}

/// Are two values equal? Values of different types are not.
pub(super) fn same(left: &Value, right: &Value, budget: &mut Budget) -> Result<bool, EvalError> {
    budget.step(1)?;
    Ok(match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right) == Some(Ordering::Equal),
        (Value::String(left), Value::String(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            budget.read(left.len())?;
            left == right
        }
        (Value::Array(left), Value::Array(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right) {
                if !same(left, right, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(left), Value::Object(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (name, left) in left {
                budget.read(name.len())?;
                match right.get(name) {
                    Some(right) if same(left, right, budget)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (left, right) => left == right,
    })
}

/// The order of two numbers, two texts or two booleans. Returns `None` for all other values.
pub(super) fn ordering(left: &Value, right: &Value, budget: &mut Budget) -> Result<Option<Ordering>, EvalError> {
    Ok(match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right),
        (Value::String(left), Value::String(right)) => {
            budget.read(left.len().min(right.len()))?;
            Some(left.cmp(right))
        }
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    })
}

fn order(op: Op, left: &Value, right: &Value, budget: &mut Budget) -> Result<Ordering, EvalError> {
    ordering(left, right, budget)?.ok_or_else(|| EvalError::Unordered {
        path: String::new(),
        op: op.symbol(),
        left: type_name(left),
        right: type_name(right),
    })
}

/// `item in of`: is it an item of the list, or a key of the object?
pub(super) fn within(item: &Value, of: &Value, budget: &mut Budget) -> Result<bool, EvalError> {
    match (item, of) {
        (item, Value::Array(items)) => {
            for other in items {
                if same(item, other, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (Value::String(name), Value::Object(fields)) => {
            budget.read(name.len())?;
            Ok(fields.contains_key(name))
        }
        (_, Value::Object(_)) => Ok(false),
        (item, of) => Err(operands(Op::In, item, of)),
    }
}

fn add(left: Cow<'_, Value>, right: Cow<'_, Value>, budget: &mut Budget) -> Result<Value, EvalError> {
    match (left.as_ref(), right.as_ref()) {
        (Value::Number(left), Value::Number(right)) => compute(Op::Add, left, right).map(Value::Number),
        (Value::String(left), Value::String(right)) => {
            budget.allocate(left.len() + right.len())?;
            Ok(Value::String([left.as_str(), right].concat()))
        }
        (Value::Array(first), Value::Array(second)) => {
            budget.allocate((first.len() + second.len()) * VALUE)?;
            let mut all = Vec::with_capacity(first.len() + second.len());
            extend(&mut all, left, budget)?;
            extend(&mut all, right, budget)?;
            Ok(Value::Array(all))
        }
        (left, right) => Err(operands(Op::Add, left, right)),
    }
}

/// Adds the items of a list to another list. The items themselves were charged already; their contents are charged
/// here.
pub(super) fn extend(all: &mut Vec<Value>, list: Cow<'_, Value>, budget: &mut Budget) -> Result<(), EvalError> {
    match list {
        Cow::Owned(Value::Array(items)) => all.extend(items),
        Cow::Borrowed(Value::Array(items)) => {
            for item in items {
                all.push(budget.own(Cow::Borrowed(item))?);
            }
        }
        _ => {}
    }
    Ok(())
}

/// The position in a list that a number names. Returns `None` for a negative number or a fraction.
pub(super) fn position(number: &Number) -> Option<usize> {
    let whole = integer(number).or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15)?;
        Some(float as i128)
    });
    whole.and_then(|whole| usize::try_from(whole).ok())
}

/// A JSON number from a whole number. Returns `None` if the number does not fit into 64 bits.
pub(super) fn whole(value: i128) -> Option<Number> {
    let signed = i64::try_from(value).ok().map(Number::from);
    signed.or_else(|| u64::try_from(value).ok().map(Number::from))
}

pub(super) fn compute(op: Op, left: &Number, right: &Number) -> Result<Number, EvalError> {
    let overflow = || EvalError::Overflow { op: op.symbol() };
    if let (Some(left), Some(right)) = (integer(left), integer(right)) {
        let zero = || EvalError::Zero { op: op.symbol() };
        let value = match op {
            Op::Add => left.checked_add(right),
            Op::Subtract => left.checked_sub(right),
            Op::Multiply => left.checked_mul(right),
            Op::Divide => Some(left.checked_div(right).ok_or_else(zero)?),
            _ => Some(left.checked_rem(right).ok_or_else(zero)?),
        };
        return value.and_then(whole).ok_or_else(overflow);
    }
    let (Some(left), Some(right)) = (left.as_f64(), right.as_f64()) else { return Err(overflow()) };
    let value = match op {
        Op::Add => left + right,
        Op::Subtract => left - right,
        Op::Multiply => left * right,
        Op::Divide if right == 0.0 => return Err(EvalError::Zero { op: op.symbol() }),
        Op::Divide => left / right,
        _ => return Err(EvalError::Operands { op: op.symbol(), left: "a fraction", right: "a number" }),
    };
    Number::from_f64(value).ok_or_else(overflow)
}

pub(super) fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

pub(super) fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn operands(op: Op, left: &Value, right: &Value) -> EvalError {
    EvalError::Operands { op: op.symbol(), left: type_name(left), right: type_name(right) }
}
