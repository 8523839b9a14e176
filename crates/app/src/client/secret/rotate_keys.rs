//! `secret rotate-keys`: encrypts every stored secret with the first of the configured keys.
//!
//! Invariants
//! - If some secrets could not be decrypted, the command names them and fails. The operator may drop an old key only
//!   after the command succeeded.
//!
//! Not here: the encryption itself (`server::access::secrets`).

use anyhow::bail;
use server::access::secrets::{self, RotateError};

use crate::client::Format;
use crate::exit::{Exit, report_result};
use crate::output;
use crate::serve::start_error;
use crate::settings::{DatabaseArgs, ServiceArgs, SettingsArgs};

/// Encrypt every stored secret with the first of the configured keys
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The older keys can be dropped once the command has succeeded. Every process must know the new key before that key \
becomes the first key: docs/reference/secrets.md has the steps. The command talks to the database and needs no \
server. It can be repeated, and can run while the service runs.

Example:
  forebay secret rotate-keys --database-url postgresql://forebay@db/forebay --set \
        secrets.key_file=/etc/forebay/secret-keys")]
pub(crate) struct RotateKeysArgs {
    #[command(flatten)]
    sources: SettingsArgs,
    #[command(flatten)]
    database: DatabaseArgs,
}

impl RotateKeysArgs {
    pub(super) async fn run(self) -> Exit {
        report_result(self.rotate().await, Format::Table)
    }

    async fn rotate(self) -> anyhow::Result<Exit> {
        let settings = self.sources.load(&self.database, &ServiceArgs::default())?.settings;
        let progress = |so_far| {
            // The rotation continues even if its progress cannot be written.
            let _ = output::print_note(format!("{so_far} secrets encrypted so far…"));
        };
        let done = secrets::rotate_keys(&settings, progress).await.map_err(|error| match error {
            RotateError::Start(error) => start_error(error),
            RotateError::Vault(error) => error.into(),
        })?;
        output::print_line(format!("secrets encrypted with the first key: {}", done.resealed))?;
        for (secret, key) in &done.unopened {
            output::print_note(format!("{secret} cannot be decrypted: it was encrypted with the key {key}"))?;
        }
        match done.unopened.len() {
            0 => Ok(Exit::Done),
            count => bail!(
                "{count} secrets could not be decrypted and were not changed: configure the keys named above too, and \
                 run this command again"
            ),
        }
    }
}
