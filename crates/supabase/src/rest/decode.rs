//! Query strings: pairs of texts, percent-encoded.
//!
//! Invariants
//! - What is not UTF-8, or no escape, is refused rather than replaced: a filter means what was written or nothing.

use super::Refused;

/// The most parameters of one request.
const MOST: usize = 200;

/// The parameters in the order in which they came.
pub fn pairs(query: &str) -> Result<Vec<(String, String)>, Refused> {
    let parts: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).collect();
    if parts.len() > MOST {
        return Err(Refused::Query("there are more than 200 parameters"));
    }
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Ok((text(name)?, text(value)?))
    };
    parts.into_iter().map(pair).collect()
}

fn text(encoded: &str) -> Result<String, Refused> {
    let (mut bytes, mut rest) = (Vec::with_capacity(encoded.len()), encoded.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(Refused::Query("% is followed by two hexadecimal digits"));
                };
                u8::try_from(high * 16 + low).map_err(|_| Refused::Query("no byte"))?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| Refused::Query("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_the_rest_refused() {
        let read = |query: &str| pairs(query).map(|pairs| format!("{pairs:?}")).map_err(|refused| refused.to_string());
        for (query, is) in [
            ("", "[]"),
            ("&&", "[]"),
            ("a=b%20c+d&a=%C3%A9", r#"[("a", "b c d"), ("a", "é")]"#),
            ("a&b=c=d&%3D=%26", r#"[("a", ""), ("b", "c=d"), ("=", "&")]"#),
            ("a=%00", r#"[("a", "\0")]"#),
        ] {
            assert_eq!(read(query).as_deref(), Ok(is), "{query}");
        }
        for query in ["a=%", "a=%4", "a=%zz", "a=%+1", "a=%ff", "a=%C3%28", "%ED%A0%80=a"] {
            assert!(read(query).is_err(), "{query}");
        }
        assert!(read(&"a=b&".repeat(201)).is_err());
    }
}
