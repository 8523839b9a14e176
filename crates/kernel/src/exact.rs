//! Finds integers in JSON that do not fit into 64 bits, before a parser rounds them.
//!
//!     JSON that may be refused ─────beyond──▶ the pointer of the first such integer, for an error
//!     JSON that must be accepted ────read───▶ a value in which each such integer is text with its digits
//!
//! The JSON parser rounds an integer of more than 64 bits to the nearest double. So `12345678901234567890123` would
//! silently become another number.
//!
//! Invariants
//! - An integer is a number without point and exponent. It is found if it fits neither into `i64` nor into `u64`.
//! - The search is one pass over the bytes, without recursion. It copies nothing unless it finds such an integer.
//!
//! Not here: numbers in YAML (`definition::source::scalar`) and in expressions (`expression::syntax`).

use std::borrow::Cow;

use serde_json::Value;

use crate::definition::fields::child;
use crate::definition::parse::MAX_POINTER_LEN;

/// An integer of at most this many digits always fits into 64 bits.
const SAFE_DIGITS: usize = 18;

/// The error message for an integer that does not fit into 64 bits.
pub const MESSAGE: &str = "is an integer that does not fit into 64 bits: send it as text";

/// The pointer of the first integer in a JSON text that does not fit into 64 bits. The text must be JSON.
pub fn beyond(json: &[u8]) -> Option<String> {
    Integers { json, at: 0 }.next().map(|(start, _)| pointer(json, start))
}

/// Reads JSON from a sender that cannot change it: an integer that does not fit into 64 bits becomes text.
pub fn read(json: &[u8]) -> Result<Value, serde_json::Error> {
    let value = serde_json::from_slice(json)?;
    match quote(json) {
        Cow::Borrowed(_) => Ok(value),
        Cow::Owned(quoted) => serde_json::from_slice(&quoted),
    }
}

/// Reads JSON that the database stored. The database writes a large double without a fraction as an integer. Such an
/// integer stays a number; any other integer that does not fit into 64 bits becomes text.
pub fn read_stored(json: &[u8]) -> Result<Value, serde_json::Error> {
    match quote_those(json, |digits| !is_double(digits)) {
        Cow::Borrowed(json) => serde_json::from_slice(json),
        Cow::Owned(quoted) => serde_json::from_slice(&quoted),
    }
}

/// The same JSON with quotes around each integer that does not fit into 64 bits. The text must be JSON.
pub fn quote(json: &[u8]) -> Cow<'_, [u8]> {
    quote_those(json, |_| true)
}

/// The same JSON with quotes around each integer beyond 64 bits for which `which` returns true.
fn quote_those(json: &[u8], which: impl Fn(&[u8]) -> bool) -> Cow<'_, [u8]> {
    let mut quoted: Vec<u8> = Vec::new();
    let mut from = 0;
    for (start, end) in (Integers { json, at: 0 }).filter(|(start, end)| which(&json[*start..*end])) {
        quoted.extend_from_slice(&json[from..start]);
        quoted.push(b'"');
        quoted.extend_from_slice(&json[start..end]);
        quoted.push(b'"');
        from = end;
    }
    if from == 0 {
        return Cow::Borrowed(json);
    }
    quoted.extend_from_slice(&json[from..]);
    Cow::Owned(quoted)
}

/// Are these digits the shortest text of a double? Then the database wrote a double, not an exact integer.
fn is_double(digits: &[u8]) -> bool {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.parse::<f64>().is_ok_and(|double| format!("{double}") == text)
}

/// Iterates over the integers that do not fit into 64 bits, as byte ranges.
struct Integers<'j> {
    json: &'j [u8],
    at: usize,
}

impl Iterator for Integers<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        while let Some(byte) = self.json.get(self.at) {
            let start = self.at;
            match byte {
                b'"' => self.at = string_end(self.json, start),
                b'-' | b'0'..=b'9' => {
                    let is_part = |byte: &&u8| matches!(**byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                    let length = self.json[start..].iter().take_while(is_part).count();
                    self.at = start + length;
                    if is_beyond(&self.json[start..self.at]) {
                        return Some((start, self.at));
                    }
                }
                _ => self.at += 1,
            }
        }
        None
    }
}

/// Is this number an integer that does not fit into 64 bits?
pub(crate) fn is_beyond(number: &[u8]) -> bool {
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    if digits.len() <= SAFE_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let text = std::str::from_utf8(number).unwrap_or_default();
    text.parse::<i64>().is_err() && text.parse::<u64>().is_err()
}

/// The position after the JSON string that begins at `start`.
fn string_end(json: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

/// The JSON pointer of the value at a byte position of a JSON text.
fn pointer(json: &[u8], place: usize) -> String {
    let mut way: Vec<Step<'_>> = Vec::new();
    let (mut at, mut text) = (0, &json[..0]);
    while at < place {
        let next = if json[at] == b'"' { string_end(json, at) } else { at + 1 };
        match json[at] {
            b'"' => text = &json[at..next],
            b'{' => way.push(Step::Name(text)),
            b'[' => way.push(Step::Item(0)),
            b'}' | b']' => {
                way.pop();
            }
            b':' => {
                if let Some(Step::Name(name)) = way.last_mut() {
                    *name = text;
                }
            }
            b',' => {
                if let Some(Step::Item(item)) = way.last_mut() {
                    *item += 1;
                }
            }
            _ => {}
        }
        at = next;
    }
    let pointer = way.iter().fold(String::new(), |at, step| match step {
        _ if at.len() > MAX_POINTER_LEN => at,
        Step::Name(name) => child(&at, &serde_json::from_slice::<String>(name).unwrap_or_default()),
        Step::Item(item) => child(&at, &item.to_string()),
    });
    pointer.chars().take(MAX_POINTER_LEN).collect()
}

/// One step of a JSON pointer: a field of an object, or an item of a list.
enum Step<'j> {
    /// The field's name as it is written, with its quotes.
    Name(&'j [u8]),
    Item(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn an_integer_beyond_64_bits_is_found_with_its_place() {
        for (text, expected) in [
            ("18446744073709551615", None),
            ("18446744073709551616", Some("")),
            ("-9223372036854775808", None),
            ("-9223372036854775809", Some("")),
            ("99999999999999999999.0", None),
            ("1e300", None),
            ("99999999999999999999E1", None),
            (r#"{"a": {"b/c": [1, "x", 99999999999999999999]}}"#, Some("/a/b~1c/2")),
            (r#"[{"99999999999999999999": 1}, {"a": "99999999999999999999"}]"#, None),
            (r#"{"a\"b": [[], {}, [0, {"c": 123456789012345678901}]]}"#, Some("/a\"b/2/1/c")),
            (r#"{"a": 1, "b": {"c": 2}, "d": -123456789012345678901}"#, Some("/d")),
        ] {
            assert_eq!(beyond(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_must_be_taken_keeps_its_digits() {
        let text = br#"{"id": 123456789012345678901, "n": [1, -9223372036854775809, 18446744073709551615, 1.5]}"#;
        let kept = json!({
            "id": "123456789012345678901", "n": [1, "-9223372036854775809", 18_446_744_073_709_551_615_u64, 1.5],
        });
        assert_eq!(read(text).expect("JSON"), kept);
        assert!(read(b"{99999999999999999999: 1}").is_err(), "what is no JSON does not become it");
        assert_eq!(
            read_stored(b"[100000000000000000000, 100000000000000000001]").expect("JSON"),
            json!([1e20, "100000000000000000001"])
        );
    }

    proptest! {
        /// A stored double is read as the same double, also if the database writes it as an integer.
        #[test]
        fn a_stored_double_stays_one(double in prop::num::f64::NORMAL) {
            let written = format!("{double}");
            let read = read_stored(written.as_bytes()).expect("JSON");
            prop_assert_eq!(read.as_f64(), Some(double), "{}", written);
        }

        #[test]
        fn no_bytes_make_it_panic(text in "[-0-9\"\\\\{}\\[\\]:,.eE a]{0,60}") {
            let _ = (beyond(text.as_bytes()), read(text.as_bytes()), read_stored(text.as_bytes()));
        }
    }
}
