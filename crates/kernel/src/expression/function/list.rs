//! Functions of lists and objects.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::{Answer, Function, made};
use crate::expression::ast::Op;
use crate::expression::budget::{Budget, ENTRY, OBJECT, VALUE};
use crate::expression::error::EvalError;
use crate::expression::operator;

pub(super) fn call<'e>(function: Function, mut args: Vec<Cow<'e, Value>>, budget: &mut Budget) -> Answer<'e> {
    match function {
        Function::Size => size(function, &args[0], budget),
        Function::Contains => match args[0].as_ref() {
            Value::String(text) => {
                budget.read(text.len())?;
                made(text.contains(function.text(&args[1])?))
            }
            list @ Value::Array(_) => made(operator::within(&args[1], list, budget)?),
            other => Err(function.needs("text or a list", other)),
        },
        Function::Keys | Function::Values => fields(function, args.swap_remove(0), budget),
        Function::Merge => merge(function, args, budget),
        Function::Flatten => flatten(function, args.swap_remove(0), budget),
        Function::Sort => sort(function, args.swap_remove(0), budget),
        Function::Unique => unique(function, args.swap_remove(0), budget),
        Function::Sum => sum(function, &args[0], budget),
        _ if args.len() == 1 => {
            let items = function.list(&args[0])?;
            let found = extreme(function, items.iter(), budget)?.unwrap_or(&Value::Null);
            Ok(Cow::Owned(budget.own(Cow::Borrowed(found))?))
        }
        _ => {
            let found = extreme(function, args.iter().map(AsRef::as_ref), budget)?.unwrap_or(&Value::Null);
            Ok(Cow::Owned(budget.own(Cow::Borrowed(found))?))
        }
    }
}

fn size<'e>(function: Function, value: &Value, budget: &mut Budget) -> Answer<'e> {
    made(match value {
        Value::String(text) => {
            budget.read(text.len())?;
            text.chars().count()
        }
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        other => return Err(function.needs("text, a list or an object", other)),
    })
}

fn fields<'e>(function: Function, value: Cow<'e, Value>, budget: &mut Budget) -> Answer<'e> {
    let Value::Object(fields) = value.as_ref() else { return Err(function.needs("an object", &value)) };
    budget.step(fields.len())?;
    budget.allocate(fields.len() * VALUE)?;
    let mut list = Vec::with_capacity(fields.len());
    for (name, field) in fields {
        list.push(if function == Function::Keys {
            budget.allocate(name.len())?;
            Value::from(name.as_str())
        } else {
            budget.own(Cow::Borrowed(field))?
        });
    }
    made(list)
}

fn merge<'e>(function: Function, args: Vec<Cow<'e, Value>>, budget: &mut Budget) -> Answer<'e> {
    budget.allocate(OBJECT)?;
    let mut all = Map::new();
    for arg in args {
        let fields = match arg.as_ref() {
            Value::Object(fields) => fields,
            Value::Null => continue,
            other => return Err(function.needs("objects", other)),
        };
        budget.step(fields.len())?;
        for (name, field) in fields {
            budget.allocate(ENTRY + name.len())?;
            all.insert(name.clone(), budget.own(Cow::Borrowed(field))?);
        }
    }
    made(all)
}

fn flatten<'e>(function: Function, value: Cow<'e, Value>, budget: &mut Budget) -> Answer<'e> {
    let items = function.list(&value)?;
    budget.step(items.len())?;
    let length = items.iter().map(|item| item.as_array().map_or(1, Vec::len)).sum::<usize>();
    budget.step(length)?;
    budget.allocate(length.saturating_mul(VALUE))?;
    let mut flat = Vec::with_capacity(length);
    for item in items {
        match item {
            Value::Array(_) => operator::extend(&mut flat, Cow::Borrowed(item), budget)?,
            other => flat.push(budget.own(Cow::Borrowed(other))?),
        }
    }
    made(flat)
}

fn sort<'e>(function: Function, value: Cow<'e, Value>, budget: &mut Budget) -> Answer<'e> {
    let items = function.list(&value)?;
    let rounds = items.len().checked_ilog2().unwrap_or(0) as usize + 1;
    budget.step(items.len() * rounds)?;
    let longest = items.iter().map(|item| item.as_str().map_or(0, str::len)).max().unwrap_or(0);
    budget.read(longest.saturating_mul(items.len() * rounds))?;
    // All items must have the same type, and that type must have an order, so that any two can be compared.
    for item in items {
        let alike = operator::ordering(&items[0], item, budget)?.is_some();
        if !alike {
            return Err(function.needs("a list of numbers, or a list of texts", item));
        }
    }
    budget.allocate(items.len() * VALUE)?;
    let mut sorted = match value {
        Cow::Owned(Value::Array(items)) => items,
        other => match budget.own(other)? {
            Value::Array(items) => items,
            _ => Vec::new(),
        },
    };
    sorted.sort_by(|left, right| match (left, right) {
        (Value::Number(left), Value::Number(right)) => operator::compare(left, right).unwrap_or(Ordering::Equal),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (left, right) => left.as_bool().cmp(&right.as_bool()),
    });
    made(sorted)
}

/// A value that is neither a list nor an object, in a form that can be compared. Whole numbers are equal however they
/// are written: 1 and 1.0.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Plain<'v> {
    Null,
    Bool(bool),
    Whole(i128),
    Fraction(u64),
    Text(&'v str),
}

fn plain(value: &Value) -> Option<Plain<'_>> {
    Some(match value {
        Value::Null => Plain::Null,
        Value::Bool(truth) => Plain::Bool(*truth),
        Value::String(text) => Plain::Text(text),
        Value::Number(number) => match (operator::integer(number), number.as_f64()) {
            (Some(whole), _) => Plain::Whole(whole),
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e30 => Plain::Whole(float as i128),
            (None, float) => Plain::Fraction(float.unwrap_or(0.0).to_bits()),
        },
        Value::Array(_) | Value::Object(_) => return None,
    })
}

fn unique<'e>(function: Function, value: Cow<'e, Value>, budget: &mut Budget) -> Answer<'e> {
    let items = function.list(&value)?;
    let rounds = items.len().checked_ilog2().unwrap_or(0) as usize + 1;
    budget.step(items.len() * rounds)?;
    let mut seen = BTreeSet::new();
    let mut composed: Vec<&Value> = Vec::new();
    let mut kept = Vec::new();
    for item in items {
        let new = match plain(item) {
            Some(plain) => {
                budget.allocate(64)?;
                budget.read(item.as_str().map_or(0, str::len).saturating_mul(rounds))?;
                seen.insert(plain)
            }
            None => {
                let mut new = true;
                for known in &composed {
                    new = new && !operator::same(known, item, budget)?;
                }
                composed.push(item);
                new
            }
        };
        if new {
            budget.allocate(VALUE)?;
            kept.push(budget.own(Cow::Borrowed(item))?);
        }
    }
    made(kept)
}

fn sum<'e>(function: Function, value: &Value, budget: &mut Budget) -> Answer<'e> {
    let items = function.list(value)?;
    budget.step(items.len())?;
    let total = items.iter().try_fold(Number::from(0), |total, item| match item {
        Value::Number(number) => operator::compute(Op::Add, &total, number),
        other => Err(function.needs("a list of numbers", other)),
    });
    made(total?)
}

fn extreme<'v>(
    function: Function,
    mut items: impl Iterator<Item = &'v Value>,
    budget: &mut Budget,
) -> Result<Option<&'v Value>, EvalError> {
    let Some(mut best) = items.next() else { return Ok(None) };
    if operator::ordering(best, best, budget)?.is_none() {
        return Err(function.needs("numbers or texts", best));
    }
    for item in items {
        budget.step(1)?;
        let order = operator::ordering(item, best, budget)?;
        let order = order.ok_or_else(|| function.needs("only numbers, or only texts", item))?;
        if order.is_lt() == (function == Function::Min) && order.is_ne() {
            best = item;
        }
    }
    Ok(Some(best))
}
