//! Formats values as text that is safe on a terminal and short.
//!
//! Invariants
//! - `clean` returns one line, without control characters, escape sequences, and characters that change the direction
//!   of text. It removes nothing else.
//! - `indented` returns JSON that parses to the same value.
//!
//! Not here: where text is printed (`output`).

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde_json::Value;

const ESCAPE: char = '\u{1b}';
const BELL: char = '\u{7}';

/// Makes a foreign text one line that is safe on a terminal.
pub(crate) fn clean(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            ESCAPE => escaped(after),
            '\u{9b}' => controlled(after),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => quoted(after),
            '\n' | '\r' | '\t' => {
                kept.push(' ');
                after
            }
            c if is_unsafe(c) => after,
            c => {
                kept.push(c);
                after
            }
        };
    }
    kept
}

/// A JSON value on several lines; characters that could control a terminal are escaped.
pub(super) fn indented(value: &Value) -> String {
    let mut safe = String::new();
    for c in format!("{value:#}").chars() {
        match c {
            '\n' => safe.push(c),
            c if is_unsafe(c) => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

/// A duration, rounded for people.
pub(crate) fn format_duration(ms: i64) -> String {
    let seconds = ms / 1_000;
    match ms {
        ..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// A time, to the second.
pub(crate) fn format_time(at: Timestamp) -> String {
    at.round(TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor)).unwrap_or(at).to_string()
}

/// A number that the server counts only up to 1,000. A larger one is shown as "more than 1,000".
pub(crate) fn format_count(number: i32) -> String {
    if number > kernel::queue::explain::MAX_POSITION { "more than 1,000".to_owned() } else { number.to_string() }
}

/// A stored failure as text: the node if it is known, then the reason.
pub(crate) fn format_failure(error: &Value) -> String {
    match error.get("node").and_then(Value::as_str) {
        Some(node) => format!("node {}: {}", clean(node), format_cause(error)),
        None => format_cause(error),
    }
}

/// The reason of a failure: its type and message.
pub(crate) fn format_cause(error: &Value) -> String {
    let part = |name: &str| error.get(name).and_then(Value::as_str).map(clean);
    let all: Vec<String> = [part("type"), part("message")].into_iter().flatten().collect();
    if all.is_empty() { clean(&error.to_string()) } else { all.join(": ") }
}

/// Control characters, and characters that reorder the text around them.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Skips the rest of an escape sequence whose first character was read.
fn escaped(rest: &str) -> &str {
    let Some(c) = rest.chars().next() else { return rest };
    let after = &rest[c.len_utf8()..];
    match c {
        '[' => controlled(after),
        ']' | 'P' | 'X' | '^' | '_' => quoted(after),
        ' '..='~' => after,
        _ => rest,
    }
}

/// Skips the parameters of a control sequence, and the letter that ends it.
fn controlled(rest: &str) -> &str {
    let end = rest.trim_start_matches(|c: char| (' '..='?').contains(&c));
    end.strip_prefix(|c: char| ('@'..='~').contains(&c)).unwrap_or(end)
}

/// Skips a string that is meant for the terminal, if it ends.
fn quoted(rest: &str) -> &str {
    let end = rest.find([BELL, ESCAPE, '\u{9c}']);
    let Some(after) = end.map(|end| &rest[end..]) else { return rest };
    after.strip_prefix("\u{1b}\\").or_else(|| after.strip_prefix([BELL, '\u{9c}'])).unwrap_or(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn control_sequences_are_removed() {
        let table = [
            ("plain ünïcode 漢字", "plain ünïcode 漢字"),
            ("a\tb\r\nc", "a b  c"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}[2J\u{1b}[1;1Hgone", "gone"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://evil\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}]52;c;never closed", "52;c;never closed"),
            ("\u{9b}31mred \u{9d}0;x\u{9c}y", "red y"),
            ("\u{1b}(Bx", "Bx"),
            ("\u{1b}", ""),
            ("\u{1b}ü", "ü"),
            ("bell\u{7} back\u{8}space nul\0 del\u{7f}", "bell backspace nul del"),
            ("abc\u{202e}cba\u{2066}", "abccba"),
        ];
        for (text, expected) in table {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn indented_json_is_safe_and_keeps_its_value() {
        let value = json!({"a\u{9b}": ["\u{202e}x", "\u{1b}[1m", "ok\n"], "b": {}});
        let shown = indented(&value);
        assert!(!shown.chars().any(|c| c != '\n' && is_unsafe(c)), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), value);
    }

    #[test]
    fn durations_are_short() {
        let table = [(0, "0ms"), (999, "999ms"), (1_250, "1.2s"), (63_000, "1m03s"), (7_500_000, "2h05m")];
        for (ms, text) in table {
            assert_eq!(format_duration(ms), text);
        }
    }

    #[test]
    fn a_failure_shows_its_node_type_and_message() {
        let table = [
            (json!({"type": "TIMEOUT", "message": "too\nslow", "node": "fetch"}), "node fetch: TIMEOUT: too slow"),
            (json!({"type": "CRASH_LOOP", "message": "it died"}), "CRASH_LOOP: it died"),
            (json!("odd"), "\"odd\""),
        ];
        for (error, text) in table {
            assert_eq!(format_failure(&error), text);
        }
    }
}
