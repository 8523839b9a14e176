//! Bearer tokens: random text that gives access to whoever holds it. Shown once, stored as a hash.
//!
//! Invariants
//! - A token has 256 random bits, so a fast hash is safe. A checksum rejects a mistyped token without a database query.
//! - Each kind has its own prefix, so that a leaked token is recognized and no kind is accepted as another.
//!
//! Not here: what each kind gives access to (`key`, `crate::wait::token`, `crate::trigger`).

use std::fmt;
use std::marker::PhantomData;

use sha2::{Digest, Sha256};

use crate::Error;

/// Distinguishes one kind of token from another.
pub trait Kind {
    const PREFIX: &'static str;
}

/// A token in clear text: never logged, never stored.
pub struct Token<K>(String, PhantomData<K>);

impl<K> Clone for Token<K> {
    fn clone(&self) -> Self {
        Token(self.0.clone(), PhantomData)
    }
}

impl<K> fmt::Debug for Token<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl<K: Kind> Token<K> {
    /// A new random token.
    pub fn generate() -> Result<Token<K>, Error> {
        mint_token(K::PREFIX).map(|text| Token(text, PhantomData))
    }

    /// Parses a token; None if the text cannot be one.
    pub fn parse(text: &str) -> Option<Token<K>> {
        is_well_formed(K::PREFIX, text).then(|| Token(text.to_owned(), PhantomData))
    }

    /// The token in clear text, to show once to its creator.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The first characters.
    pub(crate) fn prefix(&self) -> &str {
        &self.0[..K::PREFIX.len() + 8]
    }

    /// The hash that is stored in place of the token.
    pub(crate) fn hash(&self) -> Vec<u8> {
        Sha256::digest(self.0.as_bytes()).to_vec()
    }
}

/// Makes a token: the prefix, 256 random bits, and a checksum.
pub(crate) fn mint_token(prefix: &str) -> Result<String, Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Unavailable(Box::new(error)))?;
    let body = hex(&bytes);
    let sum = check_sum(&body);
    Ok(format!("{prefix}{body}{sum}"))
}

/// Does this text have the form of a token with that prefix, and the right checksum?
pub(crate) fn is_well_formed(prefix: &str, text: &str) -> bool {
    let Some(body) = text.strip_prefix(prefix) else { return false };
    let is_digit = |b: u8| b.is_ascii_hexdigit() && !b.is_ascii_uppercase();
    body.len() == 72 && body.bytes().all(is_digit) && body[64..] == check_sum(&body[..64])
}

fn check_sum(body: &str) -> String {
    hex(&Sha256::digest(body.as_bytes())[..4])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
