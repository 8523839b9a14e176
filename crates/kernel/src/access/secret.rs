//! Secrets in memory, by name, for as long as a node needs them.
//!
//! Invariants
//! - What is held here is overwritten when it goes, is never serialized, and no `Debug` shows it.
//!
//! Not here: where secrets are kept, which fields may use them, and masking (the shells).

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// What the names of callbacks begin with: no secret of a workspace can be called so.
const CALLBACK: &str = "callbacks.";

/// The name under which the address is held that answers a node that waits.
pub fn callback(node: &str) -> String {
    format!("{CALLBACK}{node}")
}

/// The node that such a name is about; none if it is a secret's.
pub fn callback_of(name: &str) -> Option<&str> {
    name.strip_prefix(CALLBACK)
}

/// The secrets that expressions may look at.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    by_name: BTreeMap<String, Zeroizing<String>>,
}

impl Secrets {
    /// Adds a secret, in place of one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, clear: Zeroizing<String>) {
        self.by_name.insert(name.into(), clear);
    }

    /// A secret in clear.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|clear| clear.as_str())
    }

    /// Every value in clear.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().map(|clear| clear.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

impl FromIterator<(String, Zeroizing<String>)> for Secrets {
    fn from_iter<T: IntoIterator<Item = (String, Zeroizing<String>)>>(secrets: T) -> Self {
        Self { by_name: secrets.into_iter().collect() }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.by_name.keys().map(|name| (name, "***"))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_told_from_a_secret_by_its_name() {
        assert_eq!(callback_of(&callback("approve")), Some("approve"));
        assert_eq!(callback_of("callbacks"), None);
    }

    #[test]
    fn no_secret_is_shown() {
        let mut secrets = Secrets::default();
        secrets.insert("token", Zeroizing::new("canary".to_owned()));
        assert_eq!(format!("{secrets:?}"), r#"{"token": "***"}"#);
        assert_eq!((secrets.get("token"), secrets.get("other")), (Some("canary"), None));
    }
}
