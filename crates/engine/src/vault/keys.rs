//! The outer keys. The first one encrypts and all of them decrypt, so that a key can be replaced.
//!
//! Invariants
//! - No key is ever shown, neither by `Debug` nor by an error. An error names the line, not its content.
//!
//! Not here: where the keys come from (`server::access::secrets`).

use std::fmt;
use std::sync::Arc;

use aes_gcm::aead::OsRng;
use aes_gcm::{Aes256Gcm, KeyInit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Why the keys cannot be used: the number of the first bad key, and its problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {at} {problem}")]
pub struct InvalidKeys {
    at: usize,
    problem: &'static str,
}

/// One outer key, with the id that is stored on the rows of secrets that it encrypted.
pub(super) struct OuterKey {
    pub(super) id: String,
    pub(super) cipher: Aes256Gcm,
}

/// The outer keys, possibly none. Cheap to clone.
#[derive(Clone, Default)]
pub struct OuterKeys(Arc<Vec<OuterKey>>);

impl fmt::Debug for OuterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OuterKeys({})", self.0.len())
    }
}

impl OuterKeys {
    /// Parses keys, each `ID:BASE64` of 32 bytes, one per line or separated by commas. Empty lines and lines that start
    /// with # are skipped.
    pub fn parse(text: &str) -> Result<OuterKeys, InvalidKeys> {
        let lines = text.split(['\n', ',']).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut keys: Vec<OuterKey> = Vec::new();
        for (at, line) in lines.enumerate() {
            let bad = |problem| InvalidKeys { at: at + 1, problem };
            let (id, encoded) = line.split_once(':').ok_or(bad("has no id: write ID:BASE64"))?;
            if !is_id(id) {
                return Err(bad("has an id that is not 1 to 32 letters, digits, - and _"));
            }
            if keys.iter().any(|key| key.id == id) {
                return Err(bad("has the same id as another key; give each key its own id"));
            }
            let wrong = bad("is not 32 bytes in base64; make one with `openssl rand -base64 32`");
            let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| wrong)?);
            let cipher = Aes256Gcm::new_from_slice(&bytes).map_err(|_| wrong)?;
            keys.push(OuterKey { id: id.to_owned(), cipher });
        }
        Ok(OuterKeys(Arc::new(keys)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that encrypts.
    pub(super) fn first(&self) -> Option<&OuterKey> {
        self.0.first()
    }

    pub(super) fn of(&self, id: &str) -> Option<&OuterKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

/// A new random key with this id, in the format that `OuterKeys::parse` reads.
pub fn generate(id: &str) -> Zeroizing<String> {
    let mut bytes = Aes256Gcm::generate_key(&mut OsRng);
    let encoded = Zeroizing::new(STANDARD.encode(bytes));
    zeroize::Zeroize::zeroize(bytes.as_mut_slice());
    Zeroizing::new(format!("{id}:{}\n", encoded.as_str()))
}

fn is_id(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_by_line_or_comma_and_the_first_seals() {
        let (one, two) = (generate("one"), generate("two"));
        let lines = OuterKeys::parse(&format!("# outer keys\n\n{}{}", one.as_str(), two.as_str())).expect("keys");
        let commas = OuterKeys::parse(&format!("{},{}", one.trim(), two.trim())).expect("keys");
        for keys in [lines, commas] {
            assert_eq!(keys.first().map(|key| key.id.as_str()), Some("one"));
            assert!(keys.of("two").is_some() && keys.of("three").is_none());
            assert_eq!(format!("{keys:?}"), "OuterKeys(2)");
        }
        assert!(OuterKeys::parse(" \n# none\n").expect("no keys").is_empty());
    }

    #[test]
    fn what_is_no_key_is_named_by_its_place_and_never_shown() {
        let good = generate("k");
        for (text, problem) in [
            ("hunter2hunter2".to_owned(), "key 1 has no id: write ID:BASE64"),
            (format!("{}a b:hunter2", good.as_str()), "key 2 has an id that is not 1 to 32 letters, digits, - and _"),
            (format!("{0}{0}", good.as_str()), "key 2 has the same id as another key; give each key its own id"),
            ("k:hunter2".to_owned(), "key 1 is not 32 bytes in base64; make one with `openssl rand -base64 32`"),
            ("k:aHVudGVyMg==".to_owned(), "key 1 is not 32 bytes in base64; make one with `openssl rand -base64 32`"),
        ] {
            assert_eq!(OuterKeys::parse(&text).expect_err("no key").to_string(), problem);
        }
    }
}
