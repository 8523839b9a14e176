//! The functions of expressions. Each function is pure, and charges the budget for what it reads and allocates.
//!
//! Invariants
//! - `f(x, y)` and `x.f(y)` are the same call.
//! - Memory for a result is charged before it is allocated.
//! - No function depends on the rules of a time zone, a locale or a clock.
//!
//! Not here: functions that evaluate only some arguments or read the scope, such as `coalesce()` and `success()`
//! (`expression::eval`).

mod date;
mod json;
mod list;
mod number;
mod text;

use std::borrow::Cow;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::budget::Budget;
use super::error::EvalError;
use super::type_name;
use crate::names::names;

type Answer<'e> = Result<Cow<'e, Value>, EvalError>;

macro_rules! functions {
    ($($function:ident $name:literal $least:literal $most:expr;)*) => {
        names! {
            /// A function.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(super) enum Function { $($function = $name),* }
        }

        impl Function {
            /// How many arguments it takes.
            pub(super) fn takes(self) -> RangeInclusive<usize> {
                match self { $(Function::$function => $least..=$most),* }
            }
        }
    };
}

const MANY: usize = usize::MAX;

functions! {
    Size "size" 1 1;
    Lower "lower" 1 1;
    Upper "upper" 1 1;
    Trim "trim" 1 1;
    Split "split" 2 2;
    Join "join" 1 2;
    Replace "replace" 3 3;
    Contains "contains" 2 2;
    StartsWith "startsWith" 2 2;
    EndsWith "endsWith" 2 2;
    Substring "substring" 2 3;
    Matches "matches" 2 2;
    String "string" 1 1;
    Int "int" 1 1;
    Double "double" 1 1;
    Bool "bool" 1 1;
    Json "json" 1 1;
    ParseJson "parseJson" 1 1;
    Base64 "base64" 1 1;
    UrlEncode "urlEncode" 1 1;
    Sha256 "sha256" 1 1;
    Coalesce "coalesce" 1 MANY;
    Keys "keys" 1 1;
    Values "values" 1 1;
    Merge "merge" 1 MANY;
    Flatten "flatten" 1 1;
    Sort "sort" 1 1;
    Unique "unique" 1 1;
    Min "min" 1 MANY;
    Max "max" 1 MANY;
    Sum "sum" 1 1;
    Round "round" 1 2;
    FormatDate "formatDate" 2 3;
    ParseDate "parseDate" 1 2;
    Success "success" 0 0;
    Failure "failure" 0 0;
    Always "always" 0 0;
}

/// The names of all functions.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    Function::ALL.into_iter().map(Function::name)
}

impl Function {
    /// Does the function use the status of nodes?
    pub(super) fn uses_statuses(self) -> bool {
        matches!(self, Function::Success | Function::Failure)
    }

    fn needs(self, expected: &'static str, found: &Value) -> EvalError {
        EvalError::Argument { function: self.name(), expected, found: type_name(found) }
    }

    fn refuses(self, why: &'static str) -> EvalError {
        EvalError::Refused { function: self.name(), why }
    }

    fn text(self, value: &Value) -> Result<&str, EvalError> {
        value.as_str().ok_or_else(|| self.needs("text", value))
    }

    fn list(self, value: &Value) -> Result<&[Value], EvalError> {
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.needs("a list", value))
    }
}

/// State that all calls of one evaluation share.
#[derive(Debug, Default)]
pub(super) struct Library {
    patterns: text::Patterns,
}

impl Library {
    /// The value of a call. The number of arguments was checked at parsing.
    pub(super) fn call<'e>(
        &mut self,
        function: Function,
        args: Vec<Cow<'e, Value>>,
        budget: &mut Budget,
    ) -> Answer<'e> {
        use Function as F;
        match function {
            F::Matches => self.patterns.matches(function, &args, budget),
            F::Lower
            | F::Upper
            | F::Trim
            | F::Split
            | F::Join
            | F::Replace
            | F::StartsWith
            | F::EndsWith
            | F::Substring => text::call(function, &args, budget),
            F::String | F::Json | F::ParseJson | F::Base64 | F::UrlEncode | F::Sha256 => {
                json::call(function, args, budget)
            }
            F::Int | F::Double | F::Bool | F::Round => number::call(function, &args, budget),
            F::FormatDate | F::ParseDate => date::call(function, &args, budget),
            F::Size
            | F::Contains
            | F::Keys
            | F::Values
            | F::Merge
            | F::Flatten
            | F::Sort
            | F::Unique
            | F::Min
            | F::Max
            | F::Sum => list::call(function, args, budget),
            F::Coalesce | F::Success | F::Failure | F::Always => Ok(Cow::Owned(Value::Null)),
        }
    }
}

fn made<'e>(value: impl Into<Value>) -> Answer<'e> {
    Ok(Cow::Owned(value.into()))
}
