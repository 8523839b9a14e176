//! Durations as text: `250ms`, `5s`, `1m30s`, `2h`, `1d`.
//!
//! Invariants
//! - A duration has whole milliseconds. Its units go from large to small, and each occurs at most once.
//! - `parse` reads the text that `format` writes as the same duration.
//!
//! Not here: the longest duration that a field allows (each caller of `parse` has its own limit).

use std::time::Duration;

/// The units from large to small, and how many milliseconds each has.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is not a duration. Each message says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("is empty: write a duration such as 5s, 1m30s or 250ms")]
    Empty,
    #[error("must be whole numbers with units, such as 5s, 1m30s, 250ms, 2h or 1d")]
    Malformed,
    #[error("has no unit: write s for seconds or ms for milliseconds after the number")]
    NoUnit,
    #[error("must have its units from large to small, each once, such as 1h30m")]
    Order,
    #[error("is too long: write a shorter duration")]
    TooLong,
}

/// Reads a duration.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(DurationError::Empty);
    }
    let mut units = UNITS.as_slice();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (digits, after) = split_while(rest, |c| c.is_ascii_digit());
        let (unit, after) = split_while(after, |c| c.is_ascii_alphabetic());
        if digits.is_empty() {
            return Err(DurationError::Malformed);
        }
        let count: u64 = digits.parse().map_err(|_| DurationError::TooLong)?;
        if unit.is_empty() {
            return Err(if after.is_empty() && total == 0 { DurationError::NoUnit } else { DurationError::Malformed });
        }
        let (_, ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(DurationError::Malformed)?;
        let place = units.iter().position(|(name, _)| *name == unit).ok_or(DurationError::Order)?;
        units = &units[place + 1..];
        total = count.checked_mul(*ms).and_then(|part| total.checked_add(part)).ok_or(DurationError::TooLong)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// Writes the shortest text that `parse` reads as this duration. Fractions of a millisecond are dropped.
pub fn format(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, ms) in UNITS {
        if left >= ms {
            text.push_str(&format!("{}{unit}", left / ms));
            left %= ms;
        }
    }
    text
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_or_refused_with_what_to_write() {
        let table: [(&str, Result<u64, DurationError>); 16] = [
            ("5s", Ok(5_000)),
            ("1m30s", Ok(90_000)),
            ("250ms", Ok(250)),
            ("2h", Ok(7_200_000)),
            ("1d1ms", Ok(86_400_001)),
            (" 0s ", Ok(0)),
            ("", Err(DurationError::Empty)),
            ("5", Err(DurationError::NoUnit)),
            ("1m5", Err(DurationError::Malformed)),
            ("1.5s", Err(DurationError::Malformed)),
            ("-5s", Err(DurationError::Malformed)),
            ("5 s", Err(DurationError::Malformed)),
            ("5y", Err(DurationError::Malformed)),
            ("30s1m", Err(DurationError::Order)),
            ("1s1s", Err(DurationError::Order)),
            ("99999999999999999999s", Err(DurationError::TooLong)),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), expected.map(Duration::from_millis), "{text:?}");
        }
        assert_eq!(parse("18446744073709551615d"), Err(DurationError::TooLong));
    }

    #[test]
    fn a_duration_is_written_shortly() {
        for (ms, text) in [(0, "0s"), (250, "250ms"), (90_000, "1m30s"), (86_400_000, "1d"), (3_600_001, "1h1ms")] {
            assert_eq!(format(Duration::from_millis(ms)), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms: u64) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[0-9dhms .é-]{0,20}") {
            let _ = parse(&text);
        }
    }
}
