//! Undoes the escapes and encodings of a text, so that it can be searched.
//!
//! Invariants
//! - Decoding is one pass over the text. No result is longer than the text.
//! - A run of digits is decoded from each possible start of a group, because other characters may precede the encoded
//!   text.
//!
//! Not here: the texts to search for (`mask`).

use std::ops::Range;

use zeroize::Zeroizing;

/// How many nested encodings are undone.
pub(super) const DEPTH: usize = 2;
/// Shorter runs cannot contain a secret that is searched for: eight bytes are eleven digits of base64.
const SHORTEST_RUN: usize = 11;
/// The longest escape: `&#x00010ffff;`.
const LONGEST_ESCAPE: usize = 14;

/// An unescaped text, and the original position of each of its bytes.
pub(super) struct UnescapedText {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// For each byte: where its character starts in the original text.
    starts: Vec<usize>,
    /// Where the original text ends.
    end: usize,
}

impl UnescapedText {
    /// The part of the original text that these bytes came from.
    pub(super) fn source(&self, range: Range<usize>) -> Range<usize> {
        let at = |index: usize| self.starts.get(index).copied().unwrap_or(self.end);
        at(range.start)..at(range.end)
    }
}

/// Undoes the escapes of JSON, URLs and HTML. None if the text has no escapes.
pub(super) fn unescaped(text: &[u8]) -> Option<UnescapedText> {
    if !memchr::memchr3_iter(b'\\', b'%', b'&', text).any(|at| escape(&text[at..]).is_some()) {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let (mut starts, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let (length, undone) = escape(&text[at..]).unwrap_or((1, Unescaped::Byte(text[at])));
        match undone {
            Unescaped::Char(c) => {
                let mut buffer = [0; 4];
                for byte in c.encode_utf8(&mut buffer).bytes() {
                    bytes.push(byte);
                    starts.push(at);
                }
            }
            Unescaped::Byte(byte) => {
                bytes.push(byte);
                starts.push(at);
            }
        }
        at += length;
    }
    Some(UnescapedText { bytes, starts, end: text.len() })
}

/// What an escape stands for.
enum Unescaped {
    Char(char),
    Byte(u8),
}

/// The escape at the start of a text: its length and what it stands for.
fn escape(text: &[u8]) -> Option<(usize, Unescaped)> {
    match text {
        [b'\\', b'u' | b'U', rest @ ..] => {
            let high = hexadecimal(rest.get(..4)?)?;
            if let Some(c) = char::from_u32(high) {
                return Some((6, Unescaped::Char(c)));
            }
            let [b'\\', b'u' | b'U', low @ ..] = rest.get(4..)? else { return None };
            let low = hexadecimal(low.get(..4)?)?;
            let units = [u16::try_from(high).ok()?, u16::try_from(low).ok()?];
            let c = char::decode_utf16(units).next()?.ok()?;
            Some((12, Unescaped::Char(c)))
        }
        [b'\\', b'x' | b'X', rest @ ..] | [b'%', rest @ ..] => {
            let length = text.len() - rest.len() + 2;
            let byte = u8::try_from(hexadecimal(rest.get(..2)?)?).ok()?;
            Some((length, Unescaped::Byte(byte)))
        }
        [b'\\', b'/', ..] => Some((2, Unescaped::Char('/'))),
        [b'\\', b'"', ..] => Some((2, Unescaped::Char('"'))),
        [b'&', rest @ ..] => {
            let end = rest.iter().take(LONGEST_ESCAPE).position(|byte| *byte == b';')?;
            entity(&rest[..end]).map(|c| (end + 2, Unescaped::Char(c)))
        }
        _ => None,
    }
}

/// The character of an HTML entity; `name` is the part between `&` and `;`.
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

/// Consecutive digits of base64, base32 or hexadecimal. Line breaks between them are ignored.
pub(super) struct EncodedRun {
    /// Its position in the text.
    pub(super) range: Range<usize>,
    pub(super) symbols: Zeroizing<Vec<u8>>,
    /// True if it spans several lines.
    pub(super) broken: bool,
}

/// All runs of a text that are long enough to contain a secret.
pub(super) fn runs(text: &[u8]) -> impl Iterator<Item = EncodedRun> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            let start = at;
            let (end, symbols, broken) = run(text, start);
            at = end.max(start + 1);
            if symbols.len() >= SHORTEST_RUN {
                return Some(EncodedRun { range: start..end, symbols, broken });
            }
        }
        None
    })
}

/// The run that starts here: its end, its digits, and whether it spans several lines.
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

/// The position after a line break and the following indentation; the same position if there is no line break.
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

impl EncodedRun {
    /// All decodings of the run. With `shifted`, also those in which a group starts later than the run.
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

/// Decodes digits of `bits` bits each into whole bytes. Padding ends a group; the next digit starts another.
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
