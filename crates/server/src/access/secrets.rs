//! The keys that encrypt the secrets of workspaces: reading them from the settings, and rotating them.
//!
//! Invariants
//! - The service does not start with an invalid key; the error names the setting. It does start if no key is set.
//!
//! Not here: encrypting and decrypting secrets (`engine::vault`).

use engine::vault::{OuterKeys, Vault};
use store::Store;
use store::connect::Target;
use zeroize::Zeroizing;

use crate::config::{Invalid, Settings};
use crate::start::StartError;

pub use engine::vault::{Error, MAX_VALUE_BYTES, Reencrypted, generate};

/// Reads the keys that the settings name. The result is empty if no key is set.
pub(crate) fn read_keys(settings: &Settings) -> Result<OuterKeys, Invalid> {
    let given = &settings.secrets;
    let (key, text) = match (&given.key_file, &given.keys) {
        (Some(path), _) => {
            let unreadable =
                |error| Invalid { key: "secrets.key_file", problem: format!("cannot read {path}: {error}") };
            ("secrets.key_file", Zeroizing::new(std::fs::read_to_string(path).map_err(unreadable)?))
        }
        (None, Some(keys)) => ("secrets.keys", Zeroizing::new(keys.clone())),
        (None, None) => return Ok(OuterKeys::default()),
    };
    let parsed = OuterKeys::parse(&text).map_err(|bad| Invalid { key, problem: bad.to_string() })?;
    if parsed.is_empty() {
        return Err(Invalid { key, problem: "contains no key: write one ID:BASE64 per line".to_owned() });
    }
    Ok(parsed)
}

/// Names the keys of stored secrets that this process lacks, and what to do; none if it has all of them.
pub(crate) async fn describe_missing_keys(vault: &Vault) -> Result<Option<String>, store::Error> {
    let missing = vault.missing_keys().await?;
    if missing.is_empty() {
        return Ok(None);
    }
    let ids = missing.into_iter().collect::<Vec<_>>().join(", ");
    Ok(Some(format!(
        "this process lacks keys that encrypted stored secrets ({ids}): add these keys to secrets.key_file. If the \
         keys are lost, set the secrets of workspaces again or delete them, and rotate the secrets of webhooks \
         (`forebay webhook rotate ID --grace-period 0s`)"
    )))
}

/// Encrypts the data key of every secret with the first of the configured keys. The service may run in the meantime.
pub async fn rotate_keys(settings: &Settings, progress: impl FnMut(u64)) -> Result<Reencrypted, RotateError> {
    if settings.database.url.is_empty() {
        return Err(StartError::NoDatabase.into());
    }
    let keys = read_keys(settings).map_err(StartError::from)?;
    let target = Target::new(&settings.database.url).map_err(StartError::from)?;
    let store = Store::new(&target, 1).map_err(StartError::from)?;
    Ok(Vault::new(store, keys).reseal(progress).await?)
}

/// Why the keys were not rotated.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Vault(#[from] Error),
}
