//! Secrets in clear, while a call is made with them.
//!
//! Invariants
//! - Wiped when dropped, and never shown: not by `Debug`, not in an error.
//!
//! Not here: where they are kept and how they are opened (`engine::vault`), masking (`engine::mask`).

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// Secrets by name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, Zeroizing<String>>);

impl Secrets {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.as_str())
    }

    /// Every value.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|value| value.as_str())
    }
}

impl FromIterator<(String, Zeroizing<String>)> for Secrets {
    fn from_iter<T: IntoIterator<Item = (String, Zeroizing<String>)>>(pairs: T) -> Self {
        Secrets(pairs.into_iter().collect())
    }
}

/// The names alone.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
