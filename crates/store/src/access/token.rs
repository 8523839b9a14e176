//! Random texts that open something to whoever has them: shown once, kept as a hash.
//!
//! Invariants
//! - 256 random bits, so a fast hash keeps them safe; a check sum refuses what was mistyped without asking the
//!   database.
//! - Each kind has a prefix of its own, so that one is known when it is found where it should not be, and none stands
//!   for another.
//!
//! Not here: what each kind opens (`key`, `crate::wait::token`, `crate::webhook::hook`).

use std::fmt;
use std::marker::PhantomData;

use sha2::{Digest, Sha256};

use crate::Error;

/// What tells one kind of token from another.
pub trait Kind {
    const PREFIX: &'static str;
}

/// A token in clear: never logged, never stored.
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
        minted(K::PREFIX).map(|text| Token(text, PhantomData))
    }

    /// Reads a token; none for what cannot be one.
    pub fn parse(text: &str) -> Option<Token<K>> {
        well_formed(K::PREFIX, text).then(|| Token(text.to_owned(), PhantomData))
    }

    /// The token in clear, for the one who may see it once.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// How it begins.
    pub(crate) fn prefix(&self) -> &str {
        &self.0[..K::PREFIX.len() + 8]
    }

    /// What is stored instead of it.
    pub(crate) fn hash(&self) -> Vec<u8> {
        Sha256::digest(self.0.as_bytes()).to_vec()
    }
}

/// 256 random bits behind a prefix, with a check sum.
pub(crate) fn minted(prefix: &str) -> Result<String, Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Unavailable(Box::new(error)))?;
    let body = hex(&bytes);
    let sum = check_sum(&body);
    Ok(format!("{prefix}{body}{sum}"))
}

/// Can this have been minted with that prefix?
pub(crate) fn well_formed(prefix: &str, text: &str) -> bool {
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
