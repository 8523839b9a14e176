//! The value of an unquoted YAML scalar: null, a boolean, a number, or text.
//!
//! Invariants
//! - Scalars are read by the core schema of YAML 1.2, except for numbers with needless leading zeros, which are text.
//! - A JSON value is the same value here.
//! - An integer that does not fit into 64 bits is refused, never rounded.
//!
//! Not here: quoted text, which is always text (`build`).

use serde_json::{Number, Value};

use crate::exact;

/// The value of an unquoted scalar, or a message that says why it has no value.
pub(super) fn plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text)?.map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

fn number(text: &str) -> Result<Option<Number>, String> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    let not_finite = || format!("{text} is not a finite number");
    let beyond = || format!("{text} is an integer that does not fit into 64 bits: put quotes around it");
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return Err(not_finite());
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        let Some(digits) = text.strip_prefix(prefix) else { continue };
        if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
            return Ok(None);
        }
        return u64::from_str_radix(digits, radix).map(|number| Some(number.into())).map_err(|_| beyond());
    }
    let needs_no_zero = unsigned.len() == 1 || !unsigned.starts_with('0');
    if needs_no_zero && exact::is_beyond(text.strip_prefix('+').unwrap_or(text).as_bytes()) {
        return Err(beyond());
    }
    if let Ok(number) = serde_json::from_str(text) {
        return Ok(Some(number));
    }
    if !is_decimal(unsigned) {
        return Ok(None);
    }
    // Numbers that are not valid JSON: `+1`, `.5`, `5.`, and numbers that are too large.
    let whole = text.strip_prefix('+').filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    if let Some(number) = whole.and_then(|text| text.parse::<u64>().ok()) {
        return Ok(Some(number.into()));
    }
    let number = text.parse::<f64>().ok().and_then(Number::from_f64);
    number.map(Some).ok_or_else(not_finite)
}

/// Is this a decimal number, with or without point and exponent, and without a needless leading zero?
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let exponent = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && !(whole.len() > 1 && whole.starts_with('0'))
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}
