//! Settings of authentication: root keys, and the limits on keys and on failed authentication.
//!
//! Invariants
//! - No key is shown by `Debug` or by `mask`.
//!
//! Not here: reading the file (`crate::access::root_keys`).

use serde::{Deserialize, Serialize};

use super::{Invalid, at_least};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    pub root_key: Option<String>,
    pub root_key_file: Option<String>,
    pub max_keys_per_workspace: i64,
    pub max_failures_per_address: u32,
}

impl Default for Auth {
    fn default() -> Self {
        Auth { root_key: None, root_key_file: None, max_keys_per_workspace: 1_000, max_failures_per_address: 100 }
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("root_key_file", &self.root_key_file).finish_non_exhaustive()
    }
}

impl Auth {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        at_least("auth.max_keys_per_workspace", self.max_keys_per_workspace, 1)?;
        at_least("auth.max_failures_per_address", self.max_failures_per_address, 1)
    }

    pub(super) fn mask(&mut self) {
        if let Some(key) = &mut self.root_key {
            "***".clone_into(key);
        }
    }
}
