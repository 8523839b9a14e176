//! Finds where quoted texts begin and end, without parsing the expression around them.
//!
//! Invariants
//! - A scan takes one pass. A quoted text that is never closed extends to the end, so nothing is left to scan after it.
//!
//! Not here: the content of quoted texts, such as escapes (the parser reads it).

/// A quoted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quoted {
    /// The text is closed, and has this many bytes, including its prefix and its quotes.
    Closed(usize),
    /// The text is never closed. This quote would close it.
    Open(char),
}

/// The quoted text at the start of `rest`, if there is one. `before` is the character in front of `rest`.
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
