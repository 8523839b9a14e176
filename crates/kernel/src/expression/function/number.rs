//! Functions that make numbers and booleans.

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::{Answer, Function, made};
use crate::expression::budget::Budget;
use crate::expression::operator::{integer, whole};

/// The most decimal places that `round` keeps.
const MAX_PLACES: u64 = 15;

pub(super) fn call<'e>(function: Function, args: &[Cow<'e, Value>], budget: &mut Budget) -> Answer<'e> {
    if let Value::String(text) = args[0].as_ref() {
        budget.read(text.len())?;
    }
    match (function, args[0].as_ref()) {
        (Function::Bool, Value::Bool(truth)) => made(*truth),
        (Function::Bool, Value::String(text)) => match text.as_str() {
            "true" => made(true),
            "false" => made(false),
            _ => Err(function.refuses("the text is neither true nor false")),
        },
        (Function::Bool, other) => Err(function.needs("a boolean or text", other)),
        (Function::Int, Value::Number(number)) => match (integer(number), number.as_f64()) {
            (Some(_), _) => made(number.clone()),
            (None, Some(float)) if float.abs() < 1.7e38 => {
                made(whole(float as i128).ok_or_else(|| function.refuses("the number is too large"))?)
            }
            _ => Err(function.refuses("the number is too large")),
        },
        (Function::Int, Value::String(text)) => {
            let number = text.trim().parse::<i128>().ok().and_then(whole);
            made(number.ok_or_else(|| function.refuses("the text is not a whole number of at most 64 bits"))?)
        }
        (Function::Double, Value::Number(number)) => made(number.as_f64()),
        (Function::Double, Value::String(text)) => {
            let number = text.trim().parse().ok().and_then(Number::from_f64);
            made(number.ok_or_else(|| function.refuses("the text is not a number"))?)
        }
        (Function::Round, Value::Number(number)) => round(function, number, args.get(1).map(AsRef::as_ref)),
        (Function::Round, other) => Err(function.needs("a number", other)),
        (_, other) => Err(function.needs("a number or text", other)),
    }
}

/// Rounds a number, half away from zero. Without `places` the result is a whole number.
fn round<'e>(function: Function, number: &Number, places: Option<&Value>) -> Answer<'e> {
    let places = match places {
        None => 0,
        Some(places) => places.as_u64().filter(|places| *places <= MAX_PLACES).ok_or_else(|| {
            let why = "decimal places are a whole number from 0 to 15";
            function.refuses(why)
        })?,
    };
    let Some(float) = number.as_f64().filter(|_| integer(number).is_none()) else { return made(number.clone()) };
    if places == 0 {
        let rounded = float.round();
        let number = Some(rounded).filter(|rounded| rounded.abs() < 1.8e19).and_then(|rounded| whole(rounded as i128));
        return made(number.ok_or_else(|| function.refuses("the number is too large"))?);
    }
    let scale = 10f64.powi(i32::try_from(places).unwrap_or(0));
    let scaled = float * scale;
    let rounded = if scaled.is_finite() { scaled.round() / scale } else { float };
    made(Number::from_f64(rounded))
}
