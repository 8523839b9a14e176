//! Asking before something that cannot be undone.
//!
//! Invariants
//! - Nothing is done without a yes: typed at a terminal, or given as `--yes`.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Context;

use crate::exit::usage;

/// Whether the user is sure.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Sure {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Sure {
    /// Is the user sure? Asked on standard error, so that data stays data.
    pub(crate) fn confirm(self, question: &str) -> anyhow::Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(usage(format!("{question} There is no terminal to ask at: give --yes to go on")));
        }
        let mut screen = io::stderr().lock();
        write!(screen, "{question} [y/N] ").and_then(|()| screen.flush()).context("ask")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).context("read the answer")?;
        Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
    }
}
