//! Query strings: pairs of texts, percent-encoded.
//!
//! Invariants
//! - Invalid UTF-8 and invalid escapes are refused. Replacing them would change the meaning of a filter.

use super::RestError;

/// The largest number of parameters of one request.
const MOST: usize = 200;

/// Splits and decodes a query string. The parameters keep their order.
pub fn read_pairs(query: &str) -> Result<Vec<(String, String)>, RestError> {
    let parts: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).collect();
    if parts.len() > MOST {
        return Err(RestError::Query("there are more than 200 parameters"));
    }
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Ok((text(name)?, text(value)?))
    };
    parts.into_iter().map(pair).collect()
}

fn text(encoded: &str) -> Result<String, RestError> {
    let (mut bytes, mut rest) = (Vec::with_capacity(encoded.len()), encoded.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
                    return Err(RestError::Query("% must be followed by two hexadecimal digits"));
                };
                u8::try_from(high * 16 + low).map_err(|_| RestError::Query("no byte"))?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| RestError::Query("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_the_rest_refused() {
        let read =
            |query: &str| read_pairs(query).map(|pairs| format!("{pairs:?}")).map_err(|refused| refused.to_string());
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
