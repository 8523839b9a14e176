//! Turns a page of this repository into a script that runs its commands as they are written.
//!
//! A comment above a block says what the block is. Readers of the page do not see the comment:
//!
//!     <!-- file: order.yaml -->        the block is this file
//!     <!-- not run: why -->            a block of commands that no test runs
//!     <!-- test: in the background --> commands that do not end: they are left running, once they say `ready`
//!
//! Invariants
//! - Every other block of `sh` is part of the script, in the order of the page.
//! - The script stops at the first command that fails.

use std::process::Command;

use super::cli::Cli;
use crate::tidy::repository::{read, root};

/// Where files of a page end in the script.
const END: &str = "END_OF_FILE";

/// A block between fences.
struct Block {
    /// What the comment above it says, without its brackets.
    comment: String,
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let text = read(page);
    let (mut found, mut comment, mut lines) = (Vec::new(), String::new(), text.lines());
    while let Some(line) = lines.next() {
        let is_in = line.len() - line.trim_start().len();
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
            let text = inside.map(|line| format!("{}\n", line.get(is_in..).unwrap_or_default())).collect();
            found.push(Block { comment: std::mem::take(&mut comment), language: language.to_owned(), text });
        }
        let above = line.trim().strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        comment = above.unwrap_or_default().to_owned();
    }
    found
}

/// The files and commands of a page, as one script for bash.
pub(crate) fn script(page: &str) -> String {
    let mut script = String::new();
    for Block { comment, language, text } in blocks(page) {
        if let Some(name) = comment.strip_prefix("file: ") {
            script.push_str(&format!("cat > {name} <<'{END}'\n{text}{END}\n"));
        } else if language == "sh" && comment == "test: in the background" {
            // `exec`, so that the job is the service itself rather than a shell around it.
            let text = text.replace("forebay serve", "exec forebay serve");
            // Emptied first: the log of an earlier start says `ready`, too.
            script.push_str(&format!(": > service.log\n{{\n{text}}} >> service.log 2>&1 &\nSERVICE=$!\n"));
            script.push_str("until grep -q '^ready' service.log; do kill -0 $SERVICE; sleep 0.1; done\n");
        } else if language == "sh" && !comment.starts_with("not run: ") {
            script.push_str(&text);
        }
    }
    script
}

/// The files that a page says to save; of several with one name, the last.
pub(crate) fn save_files(page: &str, user: &Cli) {
    for Block { comment, text, .. } in blocks(page) {
        if let Some(name) = comment.strip_prefix("file: ") {
            user.file(name, &text);
        }
    }
}

/// Makes a user's home look like a clone of this repository: the binary under test, and the examples.
pub(crate) fn clone(user: &Cli) {
    use std::os::unix::fs::symlink;
    std::fs::create_dir_all(user.home().join("target/debug")).expect("a directory");
    symlink(env!("CARGO_BIN_EXE_forebay"), user.home().join("target/debug/forebay")).expect("a link");
    symlink(root().join("examples"), user.home().join("examples")).expect("a link");
}

/// A script, as a user runs it whose path has the binary under test. What it leaves running ends with it.
pub(crate) fn bash(user: &Cli, script: &str) -> Command {
    let script = format!("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n{script}");
    let path = std::env::var("PATH").expect("a path");
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).env_clear().current_dir(user.home()).env("HOME", user.home());
    command.env("PATH", format!("{}:{path}", user.home().join("target/debug").display()));
    command
}

/// Runs a script that is to succeed: all that it says, on both outputs.
pub(crate) async fn run(user: &Cli, script: &str) -> String {
    let output = tokio::process::Command::from(bash(user, script)).output().await.expect("bash");
    let said = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{said}");
    said
}
