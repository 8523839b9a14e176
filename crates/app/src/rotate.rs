//! `secrets rotate`: puts every secret under the first of the configured keys.
//!
//! Invariants
//! - It says what it could not do, and ends badly then: a key may be dropped only after it ended well.
//!
//! Not here: how it is done (`server::access::secrets`).

use anyhow::bail;
use clap::{Args, Subcommand};
use server::access::secrets::{self, RotateError};

use crate::output;
use crate::serve::start_error;
use crate::settings::{Database, Service, Sources};

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Rotate(RotateArgs),
}

/// Put every secret under the first of the configured keys, so that older ones can be dropped
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forebay secrets rotate --database-url postgresql://forebay@db/forebay --set \
        secrets.key_file=/etc/forebay/secret-keys\n\nEvery process must know the new key before it becomes the first; \
        docs/secrets.md has the steps. It may be repeated, and run while the service does.")]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    database: Database,
}

impl Command {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Command::Rotate(args) = self;
        let settings = args.sources.load(&args.database, &Service::default())?.settings;
        let progress = |so_far| {
            // That nobody reads the progress is no reason to stop.
            let _ = output::note(format!("{so_far} so far…"));
        };
        let done = secrets::rotate(&settings, progress).await.map_err(|error| match error {
            RotateError::Start(error) => start_error(error),
            RotateError::Vault(error) => error.into(),
        })?;
        output::line(format!("{} put under the first key", done.resealed))?;
        for (secret, key) in &done.unopened {
            output::note(format!("{secret} cannot be opened: it was sealed with the key {key}"))?;
        }
        match done.unopened.len() {
            0 => Ok(()),
            count => bail!("{count} were left as they are: add the key they were sealed with, and repeat"),
        }
    }
}
