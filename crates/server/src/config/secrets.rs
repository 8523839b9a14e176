//! Settings of the keys that encrypt the secrets of workspaces.
//!
//! Invariants
//! - No key is shown by `Debug` or by `masked`.
//!
//! Not here: reading the file (`crate::access::secrets`).

use serde::{Deserialize, Serialize};

use super::Invalid;

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Secrets {
    pub key_file: Option<String>,
    pub keys: Option<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("key_file", &self.key_file).finish_non_exhaustive()
    }
}

impl Secrets {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        match self.key_file.is_some() && self.keys.is_some() {
            true => {
                let problem = "cannot be set together with secrets.keys: remove one of the two settings".to_owned();
                Err(Invalid { key: "secrets.key_file", problem })
            }
            false => Ok(()),
        }
    }

    pub(super) fn mask(&mut self) {
        if let Some(keys) = &mut self.keys {
            "***".clone_into(keys);
        }
    }
}
