//! Runs the commands as a user without a terminal runs them.

use std::path::{Path, PathBuf};

use super::process::forebay;

/// A user: a home, and perhaps a server and a key in the environment.
pub(crate) struct Cli {
    home: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: i32,
}

impl Cli {
    /// A user who knows of no server.
    pub(crate) fn new() -> Cli {
        Cli { home: tempfile::tempdir().expect("a directory"), variables: Vec::new() }
    }

    pub(crate) fn of(server: &str, key: &str) -> Cli {
        let variables = vec![("FOREBAY_SERVER", server.to_owned()), ("FOREBAY_KEY", key.to_owned())];
        Cli { variables, ..Cli::new() }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// A file in the user's home; commands are run there, so its name is enough.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = forebay();
        command.env("HOME", self.home.path()).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.home.path()).args(arguments);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        let output = tokio::process::Command::from(self.command(arguments)).output().await.expect("the binary starts");
        Output {
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
            code: output.status.code().expect("not killed"),
        }
    }

    /// Runs a command that is to end well, and answers what it put out.
    pub(crate) async fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
        output.stdout
    }

    /// The same with `-o json`, read.
    pub(crate) async fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.ok(&[arguments, &["-o", "json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// All of a command for a snapshot: what it was, what it said, how it ended; ids and times redacted.
    pub(crate) async fn show(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let mut shown = format!("$ forebay {}\n{}", arguments.join(" "), output.stdout);
        shown.extend(output.stderr.lines().filter(|line| !is_passing(line)).map(|line| format!("! {line}\n")));
        if output.code != 0 {
            shown.push_str(&format!("= {}\n", output.code));
        }
        let shown = shown.replace(env!("CARGO_BIN_EXE_forebay"), "forebay");
        let mut shown = redact(&untagged(&shown));
        for (_, value) in self.variables.iter().filter(|(name, _)| *name == "FOREBAY_SERVER") {
            shown = shown.replace(value, "<server>");
        }
        shown.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Lines that a watcher sees only if it happens to look at that moment.
fn is_passing(line: &str) -> bool {
    let is = |text: &str| text.starts_with("waiting: ") || text.starts_with("RUNNING ");
    line.split_once("  ").is_some_and(|(tag, rest)| is_tag(tag) && is(rest))
}

/// The end of an id, with which a watcher's lines begin.
fn is_tag(text: &str) -> bool {
    text.len() == 6 && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// A text in which every such end has one name.
fn untagged(text: &str) -> String {
    let line = |line: &str| match line.split_once("  ") {
        Some((start, rest)) if is_tag(start.trim_start_matches("! ")) => format!("! <tag>  {rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// A text in which whatever differs from run to run has a fixed name.
pub(crate) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let fresh = !out.ends_with(|c: char| c.is_alphanumeric() || c == '.');
        let found = [(uuid(rest), "<id>"), (time(rest), "<time>"), (took(rest), "<took>")];
        match found.into_iter().find(|(length, _)| fresh && *length > 0) {
            Some((length, name)) => {
                out.push_str(name);
                rest = &rest[length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

fn uuid(text: &str) -> usize {
    let candidate = text.get(..36).filter(|candidate| candidate.is_ascii()).unwrap_or_default();
    let fits = |(at, c): (usize, char)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { c.is_ascii_hexdigit() };
    if !candidate.is_empty() && candidate.chars().enumerate().all(fits) { 36 } else { 0 }
}

fn time(text: &str) -> usize {
    let length = text.find(|c: char| !c.is_ascii_digit() && !"-T:.Z".contains(c)).unwrap_or(text.len());
    let candidate = &text[..length];
    if length >= 20 && candidate.ends_with('Z') && candidate.get(10..11) == Some("T") { length } else { 0 }
}

fn took(text: &str) -> usize {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = ["ms", "s"].into_iter().find(|unit| text[digits..].starts_with(unit)).unwrap_or_default();
    let length = digits + unit.len();
    let ends = !text[length..].starts_with(|c: char| c.is_alphanumeric());
    if digits > 0 && text.starts_with(|c: char| c.is_ascii_digit()) && !unit.is_empty() && ends { length } else { 0 }
}

#[test]
fn what_differs_from_run_to_run_is_redacted() {
    let text = "a 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a at 2030-01-31T09:00:00.5Z took 12ms, 1.2s of v1s and 3 s";
    assert_eq!(redact(text), "a <id> at <time> took <took>, <took> of v1s and 3 s");
}
