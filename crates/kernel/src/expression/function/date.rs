//! Functions of dates: in UTC, or at a fixed offset from it, because zones change their rules.
//!
//! Invariants
//! - No database of zones is looked at, so two machines agree.
//! - A moment is a number: milliseconds since the start of 1970, before which it is negative.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::fmt::strtime::{self, BrokenDownTime};
use jiff::tz::{Offset, TimeZone};
use serde_json::Value;

use super::{Answer, Function, made};
use crate::expression::budget::Budget;
use crate::expression::error::EvalError;

/// The longest format and the longest date, in bytes.
const MAX_TEXT: usize = 128;
/// The most that a format of that length can be written out to.
const MAX_WRITTEN: usize = 64 << 10;
/// Reading and writing a date costs as much as so many steps.
const STEPS: usize = 20;

pub(super) fn call<'e>(function: Function, args: &[Cow<'e, Value>], budget: &mut Budget) -> Answer<'e> {
    budget.step(STEPS)?;
    if function == Function::ParseDate {
        let format = args.get(1).map(|format| short(function, format)).transpose()?;
        return made(moment(function, short(function, &args[0])?, format)?.as_millisecond());
    }
    let when = match args[0].as_ref() {
        Value::Number(number) => {
            let ms = number.as_i64().or_else(|| number.as_f64().map(|ms| ms as i64));
            let when = ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
            when.ok_or_else(|| function.refuses("the moment is out of reach"))?
        }
        text @ Value::String(_) => moment(function, short(function, text)?, None)?,
        other => return Err(function.needs("a date or milliseconds", other)),
    };
    let format = short(function, &args[1])?;
    let offset = args.get(2).map_or(Ok(Offset::UTC), |offset| fixed(function, short(function, offset)?))?;
    budget.allocate(MAX_WRITTEN)?;
    let written = strtime::format(format, &when.to_zoned(TimeZone::fixed(offset)));
    made(written.map_err(|_| function.refuses("the format cannot be read: use such as %Y-%m-%d %H:%M:%S"))?)
}

fn short(function: Function, value: &Value) -> Result<&str, EvalError> {
    let text = function.text(value)?;
    if text.len() > MAX_TEXT {
        return Err(function.refuses("dates and formats have at most 128 bytes"));
    }
    Ok(text)
}

/// What says no offset is in UTC; what says no time is at midnight.
fn moment(function: Function, text: &str, format: Option<&str>) -> Result<Timestamp, EvalError> {
    let utc = |civil: DateTime| Offset::UTC.to_timestamp(civil).ok();
    let found = match format {
        None => text
            .parse::<Timestamp>()
            .ok()
            .or_else(|| text.parse::<DateTime>().ok().and_then(utc))
            .or_else(|| text.parse::<Date>().ok().and_then(|date| utc(date.at(0, 0, 0, 0)))),
        Some(format) => BrokenDownTime::parse(format, text).ok().and_then(|parts| {
            let civil = parts.to_datetime().ok().or_else(|| parts.to_date().ok().map(|date| date.at(0, 0, 0, 0)));
            let stamped = parts.timestamp();
            stamped.or_else(|| parts.offset().unwrap_or(Offset::UTC).to_timestamp(civil?).ok())
        }),
    };
    found.ok_or_else(|| function.refuses("the text is not such a date"))
}

/// `Z`, `+02:00` or `-0330`.
fn fixed(function: Function, text: &str) -> Result<Offset, EvalError> {
    let refuse = || function.refuses("an offset is written Z or +02:00");
    if matches!(text, "Z" | "UTC") {
        return Ok(Offset::UTC);
    }
    let parts = BrokenDownTime::parse("%z", text).or_else(|_| BrokenDownTime::parse("%:z", text));
    parts.ok().and_then(|parts| parts.offset()).ok_or_else(refuse)
}
