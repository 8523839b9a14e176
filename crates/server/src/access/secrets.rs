//! The keys of secrets, from the settings; and their change, as a command.
//!
//! Invariants
//! - A key that cannot be used stops the start, with the setting's name; none is fine.
//!
//! Not here: what is done with them (`engine::vault`).

use engine::vault::{Keys, Vault};
use store::Store;
use store::connect::Target;
use zeroize::Zeroizing;

use crate::config::{Invalid, Settings};
use crate::start::StartError;

pub use engine::vault::{Error, MAX_VALUE_BYTES, Resealed, generate};

/// The keys that the settings name; none if they name none.
pub(crate) fn keys(settings: &Settings) -> Result<Keys, Invalid> {
    let given = &settings.secrets;
    let (key, text) = match (&given.key_file, &given.keys) {
        (Some(path), _) => {
            let unreadable =
                |error| Invalid { key: "secrets.key_file", problem: format!("cannot read {path}: {error}") };
            ("secrets.key_file", Zeroizing::new(std::fs::read_to_string(path).map_err(unreadable)?))
        }
        (None, Some(keys)) => ("secrets.keys", Zeroizing::new(keys.clone())),
        (None, None) => return Ok(Keys::default()),
    };
    let parsed = Keys::parse(&text).map_err(|bad| Invalid { key, problem: bad.to_string() })?;
    if parsed.is_empty() {
        return Err(Invalid { key, problem: "holds no key: write ID:BASE64, a line each".to_owned() });
    }
    Ok(parsed)
}

/// What is wrong if this process lacks keys that stored secrets are sealed with; none if it has them all.
pub(crate) async fn trouble(vault: &Vault) -> Result<Option<String>, store::Error> {
    let missing = vault.missing_keys().await?;
    if missing.is_empty() {
        return Ok(None);
    }
    let ids = missing.into_iter().collect::<Vec<_>>().join(", ");
    Ok(Some(format!(
        "stored secrets are sealed with keys that this process does not have ({ids}): add them to secrets.key_file; if \
         they are \
         lost, set or delete the secrets that they sealed, and rotate what webhooks are signed with (`forebay webhook \
         rotate ID --overlap 0`)"
    )))
}

/// Puts the data key of every secret under the first of the configured keys, while the service runs or not.
pub async fn rotate(settings: &Settings, progress: impl FnMut(u64)) -> Result<Resealed, RotateError> {
    if settings.database.url.is_empty() {
        return Err(StartError::NoDatabase.into());
    }
    let keys = keys(settings).map_err(StartError::from)?;
    let target = Target::new(&settings.database.url).map_err(StartError::from)?;
    let store = Store::new(&target, 1).map_err(StartError::from)?;
    Ok(Vault::new(store, keys).reseal(progress).await?)
}

/// Why keys were not changed.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Vault(#[from] Error),
}
