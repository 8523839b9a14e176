//! Where texts in quotes begin and end, without reading the rest.
//!
//! Invariants
//! - One pass: whoever meets a text that is never closed has nothing left to read.
//!
//! Not here: what the quotes hold (the parser).

/// A text in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quoted {
    /// So many bytes, its prefix included.
    Closed(usize),
    /// It never ends; this would end it.
    Open(char),
}

/// The text in quotes that starts here, if one does. `before` is the character in front of it.
pub(crate) fn quoted(rest: &str, before: Option<char>) -> Option<Quoted> {
    let bytes = rest.as_bytes();
    let in_word = before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let prefix = if in_word { 0 } else { bytes.iter().take(2).take_while(|b| b"rRbB".contains(b)).count() };
    let quote = *bytes.get(prefix).filter(|b| matches!(b, b'"' | b'\''))?;
    let raw = bytes[..prefix].iter().any(|b| b"rR".contains(b));
    let triple = bytes[prefix..].starts_with(&[quote; 3]);
    let width = if triple { 3 } else { 1 };
    let mut at = prefix + width;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !raw => at += 2,
            b if b == quote && (!triple || bytes[at..].starts_with(&[quote; 3])) => {
                return Some(Quoted::Closed(at + width));
            }
            _ => at += 1,
        }
    }
    Some(Quoted::Open(char::from(quote)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_quotes_is_as_long_as_it_is() {
        let table = [
            ("'a' b", Some(Quoted::Closed(3))),
            (r#""a\"b" c"#, Some(Quoted::Closed(6))),
            (r"r'\' x", Some(Quoted::Closed(4))),
            (r"'\' x", Some(Quoted::Open('\''))),
            ("'''a'b''' c", Some(Quoted::Closed(9))),
            ("b'x'", Some(Quoted::Closed(4))),
            ("a'x'", None),
            ("''", Some(Quoted::Closed(2))),
            ("'é'", Some(Quoted::Closed(4))),
        ];
        for (text, length) in table {
            assert_eq!(quoted(text, None), length, "{text}");
        }
    }
}
