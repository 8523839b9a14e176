//! Asks for confirmation before an action that cannot be undone.
//!
//! Invariants
//! - The action runs only after the user typed yes at a terminal, or if `--yes` is given.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::Context;

use crate::exit::usage_error;

/// How the user confirms an action.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Confirmation {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Confirmation {
    /// Asks the question and returns whether the user confirms. The question goes to stderr, because stdout is for
    /// data.
    pub(crate) fn confirm(self, question: &str) -> anyhow::Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(usage_error(format!("{question} There is no terminal to ask at: confirm with --yes")));
        }
        let mut screen = io::stderr().lock();
        write!(screen, "{question} [y/N] ").and_then(|()| screen.flush()).context("ask")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).context("read the answer")?;
        Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
    }
}
