//! Functions of dates. They use UTC or a fixed offset, because the rules of named time zones change.
//!
//! Invariants
//! - No time zone database is used, so all machines compute the same results.
//! - A moment is a number of milliseconds since the start of 1970; it is negative before that.

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
/// The longest text, in bytes, that a format of that length can produce.
const MAX_WRITTEN: usize = 64 << 10;
/// Reading or writing a date costs this many steps.
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
            when.ok_or_else(|| function.refuses("the time is out of range"))?
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

/// Reads a date. A date without an offset is in UTC; a date without a time is at midnight.
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
    found.ok_or_else(|| function.refuses("the text is not a date in the expected format"))
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
