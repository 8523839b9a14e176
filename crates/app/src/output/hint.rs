//! Commands for people to paste.
//!
//! Invariants
//! - A hint is a whole command line: the program as it was called here, and every word quoted as a shell needs it.
//!
//! Not here: which command to hint at (the commands).

use std::path::{Path, PathBuf};

use super::clean;

/// How a person at this directory calls this program.
pub(crate) fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    quote(&shown(&called, &here).display().to_string())
}

/// A whole command line.
pub(crate) fn command<S: AsRef<str>>(words: &[S]) -> String {
    let mut line = program();
    for word in words {
        line.push(' ');
        line.push_str(&quote(word.as_ref()));
    }
    line
}

/// A word as a shell reads it back. What would upset a terminal is dropped.
pub(crate) fn quote(word: &str) -> String {
    let word = clean(word);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// A path below this directory is shown from here; a bare name was found by the shell and stays one.
fn shown(called: &Path, here: &Path) -> PathBuf {
    match called.strip_prefix(here) {
        _ if called.as_os_str().is_empty() => PathBuf::from("forebay"),
        Ok(below) if called.is_absolute() && !below.as_os_str().is_empty() => Path::new(".").join(below),
        _ => called.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let table = [
            ("plain-1.2_x", "plain-1.2_x"),
            ("@latest:order", "@latest:order"),
            ("two words", "'two words'"),
            ("it's", r"'it'\''s'"),
            ("$(rm)", "'$(rm)'"),
            ("a\u{1b}[2Jb", "ab"),
            ("*", "'*'"),
            ("", "''"),
        ];
        for (word, quoted) in table {
            assert_eq!(quote(word), quoted, "{word:?}");
        }
    }

    #[test]
    fn the_program_is_shown_as_it_was_called_or_from_here() {
        let table = [
            ("forebay", "forebay"),
            ("./target/debug/forebay", "./target/debug/forebay"),
            ("/repo/target/debug/forebay", "./target/debug/forebay"),
            ("/usr/bin/forebay", "/usr/bin/forebay"),
            ("", "forebay"),
        ];
        for (called, expected) in table {
            assert_eq!(shown(Path::new(called), Path::new("/repo")), Path::new(expected), "{called}");
        }
    }
}
