//! SQL as people read it: short lines, and names that are words.

use super::repository::{File, files};
use super::{LONGEST_LINE, check};

/// Names of one letter that stay, and why.
const SHORT_NAMES: &[(&str, &str, &str)] =
    &[("crates/store/functions/candidate.sql", "c", "a parameter keeps its name for as long as its release lasts")];

fn texts() -> impl Iterator<Item = File> {
    let ours = |path: &str| path.starts_with("crates/store/functions/") || path.starts_with("crates/store/sql/");
    files().into_iter().filter(move |file| ours(&file.path) && file.path.ends_with(".sql"))
}

#[test]
fn sql_is_no_wider_than_code() {
    let mut wide = Vec::new();
    for file in texts() {
        let lines = file.text.lines().enumerate().filter(|(_, line)| line.chars().count() > LONGEST_LINE);
        wide.extend(lines.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    check("break SQL at 120 columns, one clause a line", wide);
}

#[test]
fn names_in_sql_are_words() {
    let kept = |file: &File, name: &str| SHORT_NAMES.iter().any(|(path, kept, _)| *path == file.path && *kept == name);
    let mut wrong = Vec::new();
    for file in texts() {
        let names = short_names(&file).into_iter().filter(|(_, name)| !kept(&file, name));
        wrong.extend(names.map(|(line, name)| format!("{}:{line}: {name}", file.path)));
    }
    check("say what a table, a step or a variable holds: execution, item, wait", wrong);
}

/// Every name of one letter with its line.
fn short_names(file: &File) -> Vec<(usize, String)> {
    let code = code(&file.text);
    let words = code.lines().enumerate().flat_map(|(number, line)| {
        let words = line.split(|letter: char| !letter.is_alphanumeric() && !"_$".contains(letter));
        words.map(move |word| (number + 1, word))
    });
    let short = |word: &str| word.len() == 1 && word.chars().all(|letter| letter.is_ascii_lowercase());
    words.filter(|(_, word)| short(word)).map(|(line, word)| (line, word.to_owned())).collect()
}

/// A text without its comments and what it quotes, line by line.
fn code(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let end = if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if next == '\'' || next == '"' {
            rest[1..].find(next).map_or(rest.len(), |at| at + 2)
        } else {
            kept.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        kept.push(' ');
        kept.extend(rest[..end].chars().filter(|letter| *letter == '\n'));
        rest = &rest[end..];
    }
    kept
}

#[test]
fn what_is_quoted_or_told_is_no_name() {
    let found = |text: &str| {
        let file = File { path: String::new(), text: text.to_owned(), is_executable: false };
        short_names(&file).into_iter().map(|(line, name)| format!("{line}{name}")).collect::<Vec<_>>().join(" ")
    };
    let told =
        "-- a word\nSELECT E'\\n b', \"c\", /*d*/item.id, $1::text COLLATE \"C\" FROM item WHERE note = 'it''s e'";
    assert_eq!(found(told), "");
    assert_eq!(found("SELECT q.id\nFROM forebay.execution_queue q"), "1q 2q");
    assert_eq!(found("WITH x AS (SELECT 1 AS n)\n, y (k) AS (SELECT 2)"), "1x 1n 2y 2k");
}
