//! The key with which a `dev` encrypts secrets: created once and saved in its data directory.
//!
//! Invariants
//! - Only its owner can read the file. An existing file is never replaced, because the secrets that its key encrypted
//!   could not be decrypted any more.
//! - A key in the settings takes precedence.

use std::io;
use std::path::Path;

use anyhow::Context;
use server::access::secrets::generate;
use server::config::Settings;

use crate::profile::write_private;

/// The name of the file in the data directory.
const FILE: &str = "secret-keys";

/// A new id for a key. The id is random, so that a secret of another key is not mistaken for a secret of this key.
fn new_id() -> String {
    let random = store::new_id().simple().to_string();
    format!("dev-{}", &random[random.len() - 12..])
}

/// Adds a key to the settings if they have none. Without a directory the key is not saved.
pub(super) fn ensure(settings: &mut Settings, data_dir: Option<&Path>) -> anyhow::Result<()> {
    let given = &mut settings.secrets;
    if given.key_file.is_some() || given.keys.is_some() {
        return Ok(());
    }
    let Some(directory) = data_dir else {
        given.keys = Some(generate(&new_id()).trim().to_owned());
        return Ok(());
    };
    let file = directory.join(FILE);
    match file.symlink_metadata() {
        // A link is refused: the directory belongs to the user of the database server, who may be another user.
        Ok(found) if !found.is_file() => {
            anyhow::bail!(
                "the key of the secrets cannot be read from {}, because it is not a regular file: remove it to get a \
                 new key, or set secrets.key_file to the file that has your key",
                file.display()
            )
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            write_private(&file, generate(&new_id()).trim()).with_context(|| format!("write {}", file.display()))?;
        }
        Err(error) => return Err(error).with_context(|| format!("look for {}", file.display())),
    }
    given.key_file = Some(file.display().to_string());
    Ok(())
}
