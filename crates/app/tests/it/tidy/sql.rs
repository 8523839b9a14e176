//! SQL must be easy to read: short lines, as in settings and scripts, and names that are whole words.

use std::collections::BTreeMap;

use super::repository::{File, files};
use super::{LONGEST_FILE, LONGEST_FUNCTION, LONGEST_LINE, check};

/// SQL functions that are longer, with their length. No new one is added, and a number grows only with a rule that the
/// function must decide.
const LONG_FUNCTIONS: &[(&str, usize)] = &[
    ("forebay.backlog_room", 64),
    ("forebay.enqueue_many", 155),
    ("forebay.unblock", 89),
    ("forebay_r1.after_end", 115),
    ("forebay_r1.answer_wait", 73),
    ("forebay_r1.append_events", 64),
    ("forebay_r1.begin_runs", 69),
    ("forebay_r1.claim", 214),
    ("forebay_r1.claim_tasks", 92),
    ("forebay_r1.complete", 68),
    ("forebay_r1.create_child", 70),
    ("forebay_r1.heartbeat", 70),
    ("forebay_r1.list_executions", 69),
    ("forebay_r1.open_wait", 84),
    ("forebay_r1.record", 161),
    ("forebay_r1.report_attempts", 84),
    ("forebay_r1.retire_executions", 66),
    ("forebay_r1.sample_shard", 75),
    ("forebay_r1.start_jobs", 102),
];

/// The statements and functions that ship.
fn texts() -> impl Iterator<Item = File> {
    let ours = |path: &str| path.starts_with("crates/store/functions/") || path.starts_with("crates/store/sql/");
    files().into_iter().filter(move |file| ours(&file.path) && file.path.ends_with(".sql"))
}

/// Texts that people write line by line, beside Rust and pages: SQL, settings and scripts. The dumped schema, documents
/// of workflows and what tests read are data.
fn written() -> impl Iterator<Item = File> {
    let ending = |path: &str| [".sql", ".toml", ".yaml", ".yml"].iter().any(|end| path.ends_with(end));
    let is_data =
        |path: &str| path == "crates/store/schema.sql" || path.starts_with("examples/") || path.contains("/tests/");
    files().into_iter().filter(move |file| {
        let path = file.path.as_str();
        (ending(path) || path.starts_with("dev/")) && !is_data(path)
    })
}

#[test]
fn sql_settings_and_scripts_are_no_wider_than_code() {
    let mut wide = Vec::new();
    for file in written() {
        let lines = file.text.lines().enumerate().filter(|(_, line)| line.chars().count() > LONGEST_LINE);
        wide.extend(lines.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
    }
    check("break SQL, settings and scripts at 120 columns; SQL one clause a line", wide);
}

#[test]
fn sql_is_no_longer_than_code() {
    let long = texts().filter(|file| file.text.lines().count() >= LONGEST_FILE);
    let long = long.map(|file| format!("{}: {} lines", file.path, file.text.lines().count()));
    check("split files of SQL of 400 lines and more: one idea a file", long.collect());
    let all: BTreeMap<String, usize> = texts().flat_map(|file| functions(&file.text)).collect();
    let allowed = |name: &str| LONG_FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, lines)| *lines);
    let long = all.iter().filter(|(name, lines)| **lines >= allowed(name).map_or(LONGEST_FUNCTION, |most| most + 1));
    let long = long.map(|(name, lines)| format!("{name}: {lines} lines"));
    let stale = LONG_FUNCTIONS.iter().filter_map(|(name, listed)| match all.get(*name).copied().unwrap_or(0) {
        lines if lines < LONGEST_FUNCTION => Some(format!("{name} is short now: take it off the list")),
        lines if lines < *listed => Some(format!("{name} has {lines} lines now: list that number")),
        _ => None,
    });
    check(
        "split SQL functions of 60 lines and more; those that are listed may only shrink",
        long.chain(stale).collect(),
    );
}

/// The functions that a text defines, each with its number of lines.
fn functions(text: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("CREATE OR REPLACE FUNCTION ") {
            found.push((rest.split('(').next().unwrap_or(rest).to_owned(), 0));
            is_open = true;
        }
        if let Some((_, lines)) = found.last_mut().filter(|_| is_open) {
            *lines += 1;
            is_open = !line.ends_with("$fn$;");
        }
    }
    found
}

#[test]
fn a_function_of_sql_ends_with_its_body() {
    let text = "-- a\nCREATE OR REPLACE FUNCTION one(a int)\nAS $fn$\n    SELECT 1\n$fn$;\n\n-- b\n\
                CREATE OR REPLACE FUNCTION two() AS $fn$ SELECT 2 $fn$;\n";
    assert_eq!(functions(text), [("one".to_owned(), 4), ("two".to_owned(), 1)]);
}

#[test]
fn names_in_sql_are_words() {
    let mut wrong = Vec::new();
    for file in texts() {
        let names = short_names(&file).into_iter();
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
fn quoted_text_and_comments_hold_no_names() {
    let found = |text: &str| {
        let file = File { path: String::new(), text: text.to_owned(), is_executable: false };
        short_names(&file).into_iter().map(|(line, name)| format!("{line}{name}")).collect::<Vec<_>>().join(" ")
    };
    let observed =
        "-- a word\nSELECT E'\\n b', \"c\", /*d*/item.id, $1::text COLLATE \"C\" FROM item WHERE note = 'it''s e'";
    assert_eq!(found(observed), "");
    assert_eq!(found("SELECT q.id\nFROM forebay.execution_queue q"), "1q 2q");
    assert_eq!(found("WITH x AS (SELECT 1 AS n)\n, y (k) AS (SELECT 2)"), "1x 1n 2y 2k");
}
