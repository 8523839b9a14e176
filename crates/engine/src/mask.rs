//! Removes secrets from everything that is stored, shown or logged.
//!
//! Invariants
//! - A secret is found raw, URL-encoded (spaces as %20 or +), JSON-escaped, in hexadecimal and in base64. Base64 may
//!   use either alphabet, with or without padding, inside a longer text. Upper and lower case do not matter. Long lines
//!   of a multi-line secret are found too. Overlapping matches are masked as one.
//! - A secret is also found behind escapes (`\u0041`, `\x41`, `%41`, HTML entities), in base64 and hexadecimal with
//!   line breaks, in base64 of base64, and in base32. The whole encoded text is then masked (`mask::decode`).
//! - The work is bounded: a text is unescaped once and decoded to a depth of `decode::DEPTH`.
//! - A value shorter than [`SHORTEST`] bytes is masked only where it is the whole text.
//! - The search patterns are wiped when the mask is dropped, and never shown.
//!
//! Not here: which texts are secret (`nodes`), the secrets themselves (`vault`).

mod decode;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use memchr::memmem;
use serde_json::{Map, Value};
use url::form_urlencoded;
use zeroize::Zeroizing;

/// Replaces a secret.
pub const MASKED: &str = "***";
/// Shorter values would match almost everywhere.
pub const SHORTEST: usize = 4;
/// The minimum length of a part of a secret (one line, or the middle of its base64 form) that is searched for.
const SHORTEST_PART: usize = 8;

type Needle = Zeroizing<Vec<u8>>;

/// The texts to hide.
#[derive(Default)]
pub struct Mask {
    /// Every form of every text, in lower case. None is shorter than `SHORTEST`.
    needles: Vec<Needle>,
    /// Texts that are too short to search for inside other texts.
    short: Vec<Needle>,
}

/// Shows the number of texts, and nothing else.
impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({})", self.needles.len() + self.short.len())
    }
}

impl Mask {
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Mask {
        let mut mask = Mask::default();
        for text in texts.into_iter().collect::<BTreeSet<_>>() {
            match text.len() {
                0 => {}
                length if length < SHORTEST => mask.short.push(lower(text.as_bytes())),
                _ => forms(text, &mut |form| mask.needles.push(lower(form.as_bytes()))),
            }
        }
        mask.needles.sort_unstable_by(|one, other| one.as_slice().cmp(other));
        mask.needles.dedup();
        mask
    }

    /// A text with its secrets masked. None if it contains none.
    pub fn text(&self, text: &str) -> Option<String> {
        self.bytes(text.as_bytes()).map(|masked| String::from_utf8_lossy(&masked).into_owned())
    }

    /// Bytes with their secrets masked. None if they contain none.
    pub fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let lower = lower(bytes);
        if self.short.contains(&lower) {
            return Some(MASKED.into());
        }
        let mut found = self.found(&lower);
        self.find_hidden(bytes, &mut found);
        if found.is_empty() {
            return None;
        }
        let found = merge_overlaps(found);
        let (mut masked, mut rest) = (Vec::new(), 0);
        for Range { start, end } in found {
            masked.extend_from_slice(&bytes[rest..start]);
            masked.extend_from_slice(MASKED.as_bytes());
            rest = end;
        }
        masked.extend_from_slice(&bytes[rest..]);
        Some(masked)
    }

    /// Masks secrets in every text, key and number of a value.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                if let Some(masked) = self.text(&number.to_string()) {
                    *value = Value::String(masked);
                }
            }
            Value::String(text) => {
                if let Some(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.value(field));
                if fields.keys().any(|key| self.text(key).is_some()) {
                    let masked = std::mem::take(fields).into_iter();
                    *fields = masked.map(|(key, value)| (self.text(&key).unwrap_or(key), value)).collect::<Map<_, _>>();
                }
            }
        }
    }

    /// True if the bytes contain any of the secrets, even a short one.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let bytes = lower(bytes);
        self.needles.iter().chain(&self.short).any(|needle| memmem::find(&bytes, needle).is_some())
    }

    /// The positions of secrets in unencoded text.
    fn found(&self, lower: &[u8]) -> Vec<Range<usize>> {
        let mut all: Vec<Range<usize>> = Vec::new();
        for needle in self.needles.iter().filter(|needle| needle.len() <= lower.len()) {
            let finder = memmem::Finder::new(needle.as_slice());
            let mut from = 0;
            // A match may overlap another match of the same text.
            while let Some(at) = finder.find(&lower[from..]) {
                all.push(from + at..from + at + needle.len());
                from += at + 1;
            }
        }
        all
    }

    /// Adds the positions of secrets behind escapes and in encoded text.
    fn find_hidden(&self, bytes: &[u8], found: &mut Vec<Range<usize>>) {
        if self.needles.is_empty() {
            return;
        }
        if let Some(plain) = decode::unescaped(bytes) {
            found.extend(self.found(&lower(&plain.bytes)).into_iter().map(|range| plain.source(range)));
        }
        for run in decode::runs(bytes) {
            if self.is_encoded_in(&run, decode::DEPTH) {
                found.push(run.range);
            }
        }
    }

    /// True if this run contains a secret, after removing line breaks or after decoding.
    fn is_encoded_in(&self, run: &decode::EncodedRun, depth: usize) -> bool {
        if run.broken && self.is_within(&run.symbols) {
            return true;
        }
        run.decoded(depth == decode::DEPTH).any(|bytes| {
            let plain = decode::unescaped(&bytes);
            self.is_within(&bytes)
                || plain.is_some_and(|plain| self.is_within(&plain.bytes))
                || depth > 1 && decode::runs(&bytes).any(|run| self.is_encoded_in(&run, depth - 1))
        })
    }

    /// Searches decoded bytes for the longer forms only. A short form would match by chance in random bytes.
    fn is_within(&self, bytes: &[u8]) -> bool {
        let bytes = lower(bytes);
        let long = self.needles.iter().filter(|needle| needle.len() >= SHORTEST_PART);
        long.into_iter().any(|needle| memmem::find(&bytes, needle).is_some())
    }
}

/// Sorts the ranges and merges those that touch.
fn merge_overlaps(mut all: Vec<Range<usize>>) -> Vec<Range<usize>> {
    all.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in all {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn lower(bytes: &[u8]) -> Needle {
    Zeroizing::new(bytes.to_ascii_lowercase())
}

/// Reports every form in which a response may contain the text. Upper and lower case do not matter (see [`Mask`]).
fn forms(text: &str, found: &mut impl FnMut(&str)) {
    let trimmed = text.trim();
    found(text);
    if trimmed.len() >= SHORTEST {
        found(trimmed);
    }
    if trimmed.contains('\n') {
        trimmed.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_PART).for_each(&mut *found);
    }
    for encoded in [STANDARD.encode(text), URL_SAFE.encode(text)].map(Zeroizing::new) {
        found(&encoded);
        found(encoded.trim_end_matches('='));
    }
    for shift in 0..3 {
        within_base64(text, shift, found);
    }
    found(&Zeroizing::new(percent(text, b"-._~")));
    found(&Zeroizing::new(percent(text, b"-_.!~*'()")));
    found(&Zeroizing::new(form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()));
    for escaped in json_forms(text) {
        found(&escaped);
    }
    found(&Zeroizing::new(html(text, "&#39;")));
    found(&Zeroizing::new(html(text, "&#x27;")));
    let hexadecimal: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    found(&Zeroizing::new(hexadecimal));
}

/// The text as an HTML page shows it.
fn html(text: &str, quote: &str) -> String {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;").replace('\'', quote)
}

/// Reports the base64 form of a text that is part of a longer text and starts at this offset in a group of three bytes.
fn within_base64(text: &str, shift: usize, found: &mut impl FnMut(&str)) {
    let mut shifted = Zeroizing::new(vec![0; shift]);
    shifted.extend_from_slice(text.as_bytes());
    let encoded = Zeroizing::new(STANDARD_NO_PAD.encode(shifted.as_slice()));
    // Use only the digits that do not depend on the bytes before and after the text.
    let (start, end) = ((shift * 8).div_ceil(6), shifted.len() * 8 / 6);
    let Some(own) = encoded.get(start..end).filter(|own| own.len() >= SHORTEST_PART) else { return };
    found(own);
    found(&Zeroizing::new(own.replace('+', "-").replace('/', "_")));
}

/// Percent-encodes everything except letters, digits and the given characters.
fn percent(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || kept.contains(&byte) => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02x}")),
        }
    }
    encoded
}

/// The text inside a JSON string: with minimal escapes; and with non-ASCII characters escaped, slashes escaped or not.
fn json_forms(text: &str) -> [Zeroizing<String>; 3] {
    let quoted = Zeroizing::new(Value::String(text.to_owned()).to_string());
    let plain = Zeroizing::new(quoted[1..quoted.len() - 1].to_owned());
    let mut ascii = Zeroizing::new(String::new());
    for c in plain.chars() {
        match c {
            c if c.is_ascii() => ascii.push(c),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    let slashed = Zeroizing::new(ascii.replace('/', "\\/"));
    [plain, ascii, slashed]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECRET: &str = "s3cret/Välue+\"1\"";

    fn mask() -> Mask {
        Mask::new([SECRET, "pin", "line one is long\nshort\nline two is long", "816497532"])
    }

    fn masked(text: &str) -> String {
        mask().text(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn every_encoding_is_taken_out() {
        let quoted = json!(SECRET).to_string();
        for form in [
            SECRET.to_owned(),
            SECRET.to_ascii_uppercase(),
            STANDARD.encode(SECRET),
            STANDARD_NO_PAD.encode(SECRET),
            URL_SAFE.encode(SECRET),
            URL_SAFE.encode(SECRET).trim_end_matches('=').to_owned(),
            "s3cret%2FV%C3%A4lue%2B%221%22".to_owned(),
            "s3cret%2fV%c3%a4lue%2b%221%22".to_owned(),
            form_urlencoded::byte_serialize(SECRET.as_bytes()).collect(),
            quoted[1..quoted.len() - 1].to_owned(),
            r#"s3cret/V\u00e4lue+\"1\""#.to_owned(),
            r#"s3cret\/V\u00E4lue+\"1\""#.to_owned(),
            SECRET.bytes().map(|byte| format!("{byte:02X}")).collect(),
        ] {
            assert_eq!(masked(&format!("a {form} b {form}")), "a *** b ***", "{form}");
        }
        let spaced = Mask::new(["two words here"]);
        for form in ["two words here", "two+words+here", "two%20words%20here"] {
            assert_eq!(spaced.text(&format!("<{form}>")), Some("<***>".to_owned()));
        }
    }

    #[test]
    fn a_secret_within_base64_is_taken_out_but_for_what_it_shares_with_its_neighbours() {
        for before in ["", "a", "ab", "user:", "user1:", "user12:"] {
            for after in ["", "z", "zz"] {
                let encoded = STANDARD.encode(format!("{before}{SECRET}{after}"));
                let left = masked(&format!("Basic {encoded}"));
                assert!(left.contains("***"), "{before}: {left}");
                assert!(left.len() <= 6 + 3 + before.len() * 2 + 12, "{before}: {left}");
            }
        }
    }

    #[test]
    fn lines_numbers_keys_and_whatever_overlaps_are_taken_out() {
        assert_eq!(masked("x line two is long y"), "x *** y");
        assert_eq!(masked("short"), "short", "a short line is not masked");
        let both = Mask::new(["abcd1234", "1234efgh"]);
        assert_eq!(both.text("<abcd1234efgh>"), Some("<***>".to_owned()));
        let mut value = json!({
            "a": [SECRET, 1, true, null, 816497532], SECRET: {"x": format!("<{SECRET}>")}, "pin": "pin",
        });
        mask().value(&mut value);
        assert_eq!(value, json!({"a": ["***", 1, true, null, "***"], "***": {"x": "<***>"}, "***": "***"}));
    }

    #[test]
    fn what_is_escaped_wrapped_or_encoded_twice_is_taken_out() {
        let secret = "s3cret-Value-of-36-characters-or-so!";
        let mask = Mask::new([secret]);
        let each = |form: &dyn Fn(u8) -> String| secret.bytes().map(form).collect::<String>();
        let base64 = STANDARD.encode(format!("user:{secret} and more, so that it is long enough to be broken"));
        let wrapped = |text: &str, end: &str| {
            text.as_bytes()
                .chunks(19)
                .map(|line| String::from_utf8_lossy(line).into_owned())
                .collect::<Vec<_>>()
                .join(end)
        };
        let hexadecimal = each(&|byte| format!("{byte:02x}"));
        for form in [
            each(&|byte| format!("\\u{byte:04x}")),
            each(&|byte| format!("\\U{byte:04X}")),
            each(&|byte| format!("\\x{byte:02x}")),
            each(&|byte| format!("%{byte:02X}")),
            each(&|byte| format!("&#{byte};")),
            each(&|byte| format!("&#x{byte:x};")),
            wrapped(&base64, "\n"),
            wrapped(&base64, "\r\n  "),
            wrapped(&base64, "\\n"),
            wrapped(&hexadecimal, "\n"),
            STANDARD.encode(&base64),
            URL_SAFE.encode(STANDARD_NO_PAD.encode(secret)),
            STANDARD.encode(wrapped(&base64, "\n")),
            wrapped(&STANDARD.encode(&base64), "\n"),
            STANDARD.encode(format!("{{\"key\":\"{}\"}}", each(&|byte| format!("\\u{byte:04x}")))),
            base32(secret.as_bytes()),
            base32(secret.as_bytes()).to_ascii_lowercase(),
            base32(format!("user:{secret}").as_bytes()).trim_end_matches('=').to_owned(),
        ] {
            let observed = mask.text(&format!("before {form} after")).unwrap_or_default();
            assert!(observed.starts_with("before ***") && observed.contains("***"), "{form}: {observed}");
            assert!(observed.len() < 40, "no part of the encoded secret is left: {form}: {observed}");
        }
        for text in ["plain words\nover several\nlines", "%41%42 &amp; &lt; \\u0041", &STANDARD.encode([7u8; 99])] {
            assert_eq!(mask.text(text), None, "{text}");
        }
    }

    /// Encodes bytes in base32, as in RFC 4648.
    fn base32(bytes: &[u8]) -> String {
        let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
        let digit = |five: &[u8]| {
            let value = (0..5).fold(0, |sum, at| sum << 1 | usize::from(five.get(at).copied().unwrap_or(0)));
            char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[value])
        };
        let mut text: String = bits.chunks(5).map(digit).collect();
        text.extend(std::iter::repeat_n('=', (8 - text.len() % 8) % 8));
        text
    }

    #[test]
    fn a_hostile_text_costs_no_more_than_a_multiple_of_its_length() {
        let mask = Mask::new(["s3cret-Value"]);
        let started = std::time::Instant::now();
        for pattern in ["A", "QUFB", "ME======", "\\u0041", "&#65;", "%25", "AAAA\n", "=A"] {
            assert_eq!(mask.text(&pattern.repeat((1 << 20) / pattern.len())), None, "{pattern}");
        }
        // A generous limit for an unoptimized build on a shared machine. Quadratic work would take hours.
        assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
    }

    #[test]
    fn a_short_value_is_taken_out_only_where_it_stands_alone() {
        assert_eq!(masked("pin"), "***");
        assert_eq!(masked("spinning"), "spinning");
        assert!(mask().is_in(b"spinning"), "but it is still detected");
        assert!(!mask().is_in(b"nothing of it"));
        assert_eq!(mask().text("nothing of it"), None);
        assert_eq!(Mask::new([""]).text(""), None);
    }

    #[test]
    fn bytes_that_are_no_text_lose_their_secrets_too() {
        let bytes = [b"\xff\xfe".as_slice(), SECRET.as_bytes(), b"\xfd"].concat();
        assert_eq!(mask().bytes(&bytes).expect("masked"), b"\xff\xfe***\xfd");
    }

    #[test]
    fn a_mask_is_not_shown() {
        assert!(!format!("{:?}", mask()).contains("s3cret"));
    }
}
