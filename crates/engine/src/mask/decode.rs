//! What a text says once its escapes and encodings are undone, for those who look for something in it.
//!
//! Invariants
//! - Undoing is one pass over the text, and each result is no longer than the text.
//! - A run is decoded from each of the places where a group may begin, because it may stand behind other letters.
//!
//! Not here: what is looked for (`mask`).

use std::ops::Range;

use zeroize::Zeroizing;

/// How many encodings within each other are undone.
pub(super) const DEPTH: usize = 2;
/// Shorter runs hold no secret that would be looked for: eight bytes are eleven digits of base64.
const SHORTEST_RUN: usize = 11;
/// The longest escape: `&#x00010ffff;`.
const LONGEST_ESCAPE: usize = 14;

/// A text without its escapes, and where each byte of it came from.
pub(super) struct Plain {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// For each byte: where its character begins in the text.
    starts: Vec<usize>,
    /// Where the text ends.
    end: usize,
}

impl Plain {
    /// The part of the text that these bytes came from.
    pub(super) fn source(&self, range: Range<usize>) -> Range<usize> {
        let at = |index: usize| self.starts.get(index).copied().unwrap_or(self.end);
        at(range.start)..at(range.end)
    }
}

/// The same text with escapes of JSON, of URLs and of HTML undone; none if it has none.
pub(super) fn unescaped(text: &[u8]) -> Option<Plain> {
    if !memchr::memchr3_iter(b'\\', b'%', b'&', text).any(|at| escape(&text[at..]).is_some()) {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let (mut starts, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let (length, undone) = escape(&text[at..]).unwrap_or((1, Undone::Byte(text[at])));
        match undone {
            Undone::Char(c) => {
                let mut buffer = [0; 4];
                for byte in c.encode_utf8(&mut buffer).bytes() {
                    bytes.push(byte);
                    starts.push(at);
                }
            }
            Undone::Byte(byte) => {
                bytes.push(byte);
                starts.push(at);
            }
        }
        at += length;
    }
    Some(Plain { bytes, starts, end: text.len() })
}

/// What an escape stands for.
enum Undone {
    Char(char),
    Byte(u8),
}

/// The escape that a text begins with: how long it is, and what it stands for.
fn escape(text: &[u8]) -> Option<(usize, Undone)> {
    match text {
        [b'\\', b'u' | b'U', rest @ ..] => {
            let high = hexadecimal(rest.get(..4)?)?;
            if let Some(c) = char::from_u32(high) {
                return Some((6, Undone::Char(c)));
            }
            let [b'\\', b'u' | b'U', low @ ..] = rest.get(4..)? else { return None };
            let low = hexadecimal(low.get(..4)?)?;
            let units = [u16::try_from(high).ok()?, u16::try_from(low).ok()?];
            let c = char::decode_utf16(units).next()?.ok()?;
            Some((12, Undone::Char(c)))
        }
        [b'\\', b'x' | b'X', rest @ ..] | [b'%', rest @ ..] => {
            let length = text.len() - rest.len() + 2;
            let byte = u8::try_from(hexadecimal(rest.get(..2)?)?).ok()?;
            Some((length, Undone::Byte(byte)))
        }
        [b'\\', b'/', ..] => Some((2, Undone::Char('/'))),
        [b'\\', b'"', ..] => Some((2, Undone::Char('"'))),
        [b'&', rest @ ..] => {
            let end = rest.iter().take(LONGEST_ESCAPE).position(|byte| *byte == b';')?;
            entity(&rest[..end]).map(|c| (end + 2, Undone::Char(c)))
        }
        _ => None,
    }
}

/// What stands between `&` and `;`.
fn entity(name: &[u8]) -> Option<char> {
    match name {
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(hexadecimal(digits)?),
        [b'#', digits @ ..] => char::from_u32(std::str::from_utf8(digits).ok()?.parse().ok()?),
        b"amp" => Some('&'),
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        b"sol" => Some('/'),
        b"plus" => Some('+'),
        b"equals" => Some('='),
        b"nbsp" => Some('\u{a0}'),
        _ => None,
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    digits.iter().try_fold(0u32, |sum, digit| Some(sum << 4 | char::from(*digit).to_digit(16)?))
}

/// Digits of base64, base32 or hexadecimal that follow each other, line breaks aside.
pub(super) struct Run {
    /// Where it is in the text.
    pub(super) range: Range<usize>,
    pub(super) symbols: Zeroizing<Vec<u8>>,
    /// It goes over several lines.
    pub(super) broken: bool,
}

/// The runs of a text that are long enough to hold something.
pub(super) fn runs(text: &[u8]) -> impl Iterator<Item = Run> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            let start = at;
            let (end, symbols, broken) = run(text, start);
            at = end.max(start + 1);
            if symbols.len() >= SHORTEST_RUN {
                return Some(Run { range: start..end, symbols, broken });
            }
        }
        None
    })
}

/// The run that begins here: where it ends, what it says, and whether it goes over several lines.
fn run(text: &[u8], start: usize) -> (usize, Zeroizing<Vec<u8>>, bool) {
    let mut symbols = Zeroizing::new(Vec::new());
    let (mut at, mut end, mut broken) = (start, start, false);
    while let Some(byte) = text.get(at) {
        if is_symbol(*byte) {
            symbols.push(*byte);
            at += 1;
            end = at;
            continue;
        }
        let next = if symbols.is_empty() { at } else { behind_break(text, at) };
        match text.get(next) {
            Some(byte) if next > at && is_symbol(*byte) => {
                broken = true;
                at = next;
            }
            _ => break,
        }
    }
    (end, symbols, broken)
}

/// Where a line goes on that breaks here, its indentation aside; the same place if it does not.
fn behind_break(text: &[u8], at: usize) -> usize {
    let rest = &text[at..];
    let breaks: [&[u8]; 5] = [b"\r\n", b"\n", b"\r", b"\\r\\n", b"\\n"];
    let Some(length) = breaks.iter().find(|one| rest.starts_with(one)).map(|one| one.len()) else { return at };
    let indent = rest[length..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    at + length + indent
}

fn is_symbol(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

impl Run {
    /// What it may decode to. `shifted`: also if a group begins later than the run.
    pub(super) fn decoded(&self, shifted: bool) -> impl Iterator<Item = Zeroizing<Vec<u8>>> + '_ {
        let shifts = move |most: usize| 0..if shifted { most } else { 1 };
        let base64 = shifts(4).filter_map(move |shift| Some(decode(self.symbols.get(shift..)?, 6, of_base64)));
        let only_base32 = self.symbols.iter().all(|symbol| of_base32(*symbol).is_some() || *symbol == b'=');
        let base32 = shifts(8).filter_map(move |shift| {
            only_base32.then(|| self.symbols.get(shift..).map(|symbols| decode(symbols, 5, of_base32))).flatten()
        });
        base64.chain(base32)
    }
}

/// Whole bytes of digits that hold so many bits each. Padding ends a group; what follows begins another.
fn decode(symbols: &[u8], bits: u32, value: fn(u8) -> Option<u32>) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(symbols.len()));
    let (mut held, mut count) = (0u32, 0);
    for symbol in symbols {
        let Some(digit) = value(*symbol) else {
            (held, count) = (0, 0);
            continue;
        };
        held = held << bits | digit;
        count += bits;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(held >> count & 0xff).unwrap_or_default());
        }
        held &= (1 << count) - 1;
    }
    bytes
}

fn of_base64(symbol: u8) -> Option<u32> {
    let value = match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(value.into())
}

fn of_base32(symbol: u8) -> Option<u32> {
    let value = match symbol.to_ascii_uppercase() {
        upper @ b'A'..=b'Z' => upper - b'A',
        b'2'..=b'7' => symbol - b'2' + 26,
        _ => return None,
    };
    Some(value.into())
}
