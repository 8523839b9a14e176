//! Hints: command lines that the user can paste.
//!
//! Invariants
//! - A hint is a complete command line: the program as the user called it, and every word quoted for a shell.
//!
//! Not here: which command a hint suggests (the commands).

use std::path::{Path, PathBuf};

use super::clean;

/// How this program is called from the current directory.
pub(crate) fn program() -> String {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    quote(&shown(&called, &here).display().to_string())
}

/// A complete command line.
pub(crate) fn command<S: AsRef<str>>(words: &[S]) -> String {
    let mut line = program();
    for word in words {
        line.push(' ');
        line.push_str(&quote(word.as_ref()));
    }
    line
}

/// A word quoted for a shell, without control characters.
pub(crate) fn quote(word: &str) -> String {
    let word = clean(word);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Shows a path below the current directory relative to it. A name without a directory, which the shell looks up in
/// `PATH`, is kept.
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
