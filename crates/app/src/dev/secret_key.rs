//! The key of a `dev` that seals its secrets: made once for its data, kept beside it.
//!
//! Invariants
//! - Only its owner can read the file. One that is there is never replaced: what it sealed would be lost.
//! - A key that the settings name goes before it.

use std::io;
use std::path::Path;

use anyhow::Context;
use server::access::secrets::generate;
use server::config::Settings;

use crate::profile::write_private;

/// Its name in the data directory.
const FILE: &str = "secret-keys";

/// An id that no key before this one had: what another key sealed must not look as if this one opened it.
fn new_id() -> String {
    let random = store::new_id().simple().to_string();
    format!("dev-{}", &random[random.len() - 12..])
}

/// Gives the settings a key if they have none; without a directory it is kept nowhere.
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
        // Not through a link: the directory is the database server's, whose user may be another.
        Ok(found) if !found.is_file() => anyhow::bail!("{} is no file", file.display()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            write_private(&file, generate(&new_id()).trim()).with_context(|| format!("write {}", file.display()))?;
        }
        Err(error) => return Err(error).with_context(|| format!("look for {}", file.display())),
    }
    given.key_file = Some(file.display().to_string());
    Ok(())
}
