//! The secrets of a workspace, by name. They are held in memory while a node needs them.
//!
//! Invariants
//! - A secret's memory is overwritten when the secret is dropped. A secret is never serialized, and `Debug` does not
//!   show it.
//!
//! Not here: where secrets are kept, which fields may use them, and masking (the shells).

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// The prefix of the names of callbacks. No name of a workspace's secret can begin with this prefix.
const CALLBACK: &str = "callbacks.";

/// The name of the secret that holds a callback: the URL that answers a waiting node.
pub fn callback(node: &str) -> String {
    format!("{CALLBACK}{node}")
}

/// The node that a callback name belongs to. Returns `None` for the name of a workspace's secret.
pub fn callback_of(name: &str) -> Option<&str> {
    name.strip_prefix(CALLBACK)
}

/// The secrets that expressions may use.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    by_name: BTreeMap<String, Zeroizing<String>>,
}

impl Secrets {
    /// Adds a secret, or replaces the secret of the same name.
    pub fn insert(&mut self, name: impl Into<String>, clear: Zeroizing<String>) {
        self.by_name.insert(name.into(), clear);
    }

    /// The value of a secret, in clear text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|clear| clear.as_str())
    }

    /// The values of all secrets, in clear text.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().map(|clear| clear.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The names of all secrets, sorted.
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
    fn a_callback_differs_from_a_secret_by_its_name() {
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
