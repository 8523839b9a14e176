//! The texts of this repository must use plain words, and each name must have one meaning.
//!
//! Invariants
//! - Every refused phrase comes with the words to write instead. Reviews add to the list.
//!
//! Not here: how long a sentence of a page may be (`pages`), what names in SQL look like (`sql`).

use std::collections::{BTreeMap, BTreeSet};

use super::check;
use super::repository::{File, files};
use super::rust::code;

/// Phrases that readers had to read twice, and what to write instead.
const REFUSED: &[(&str, &str)] = &[
    ("another's", "name the owner: another process, another workspace"),
    ("anew", "again"),
    ("as it stands", "its status"),
    ("as many as may", "the limit is reached"),
    ("befall", "happen to"),
    ("begun anew", "restarted"),
    ("but for", "except"),
    ("by now", "name what happened before"),
    ("for so long", "for that long"),
    ("hence", "therefore"),
    ("how it stands", "its status"),
    ("in the way", "blocked by"),
    ("is told", "name the message: is notified, reports, is logged"),
    ("are told", "name the message: are notified, report, are logged"),
    ("no more, at once", "no longer, immediately"),
    ("not to be had", "unavailable"),
    ("ought", "should, or must"),
    ("shall", "must, or will"),
    ("so long as it", "while it"),
    ("tells of", "reports"),
    ("than nothing", "than zero"),
    ("thereby", "by this"),
    ("told of", "reported, notified"),
    ("told to stop", "asked to shut down"),
    ("what is not said", "omitted fields"),
];

/// Words of our own that were retired, as whole words of code and text, and the word that replaced each. A star stands
/// for any ending: `ripen*` also finds `ripened`.
const RETIRED: &[(&str, &str)] = &[
    ("aside", "blocked, or except"),
    ("follower*", "subscriber"),
    ("heard", "received"),
    ("insist*", "retry until"),
    ("nudge*", "notify"),
    ("pulse", "liveness"),
    ("ripen*", "promote"),
    ("rouse*", "wake"),
    ("told", "the event, the outcome or the message that it is"),
];

/// Public type names that more than three modules may define. Each names the same part of modules of one shape, so a
/// reader knows it with its module. They are: how a module fails (`Error`), what sorts of a thing there are (`Kind`),
/// the state machine of a row (`Status`, `Step`), and the settings of a kind of node (`Config`).
const KNOWN_EVERYWHERE: &[&str] = &["Config", "Error", "Kind", "Status", "Step"];
const MOST_MODULES: usize = 3;

/// Texts that quote the retired words, or that others wrote.
const QUOTES: &[&str] =
    &["crates/app/tests/it/tidy/words.rs", "docs/reference/renamed.md", "LICENSE", "docs/reference/openapi.json"];

fn is_ours(file: &File) -> bool {
    let written = [".rs", ".sql", ".md", ".sh", ".toml", ".yaml", ".py"].iter().any(|end| file.path.ends_with(end));
    let script = file.path.starts_with("dev/");
    (written || script) && !QUOTES.contains(&file.path.as_str())
}

#[test]
fn texts_say_it_in_plain_words() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| is_ours(file)) {
        for (number, line) in file.text.lines().enumerate() {
            for (phrase, instead) in REFUSED.iter().filter(|(phrase, _)| has(line, phrase)) {
                wrong.push(format!("{}:{}: \"{phrase}\"; write: {instead}", file.path, number + 1));
            }
        }
    }
    check("write for somebody who reads this for the first time", wrong);
}

#[test]
fn retired_words_do_not_come_back() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| is_ours(file)) {
        for (number, line) in file.text.lines().enumerate() {
            for word in line.split(|letter: char| !letter.is_alphanumeric()) {
                let word = word.to_lowercase();
                if let Some((_, instead)) = RETIRED.iter().find(|(retired, _)| is_retired(&word, retired)) {
                    wrong.push(format!("{}:{}: \"{word}\"; write: {instead}", file.path, number + 1));
                }
            }
        }
    }
    check("use the word that the tables of words give", wrong);
}

/// Whether a word is the retired one, or begins with it if a star follows.
fn is_retired(word: &str, retired: &str) -> bool {
    retired.strip_suffix('*').map_or(word == retired, |stem| word.starts_with(stem))
}

#[test]
fn a_type_name_means_one_thing() {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files().iter().filter(|file| file.is_rust() && file.path.contains("/src/")) {
        for name in types(&code(&file.text)) {
            modules.entry(name).or_default().insert(file.path.clone());
        }
    }
    let common =
        modules.iter().filter(|(name, paths)| paths.len() > MOST_MODULES && !KNOWN_EVERYWHERE.contains(&name.as_str()));
    let wrong = common
        .map(|(name, paths)| format!("{name}: {}", paths.iter().map(String::as_str).collect::<Vec<_>>().join(", ")));
    check("name a public type for what it is, so that a search finds it", wrong.collect());
}

/// The types that a file declares for others to use.
fn types(code: &str) -> Vec<String> {
    let declared = |line: &str| {
        let line = line.trim_start().strip_prefix("pub")?;
        let line = if line.starts_with('(') { line.split_once(')')?.1 } else { line };
        let (keyword, rest) = line.trim_start().split_once(' ')?;
        let name: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        // A macro declares a type of any name: `struct $name`.
        (!name.is_empty() && ["struct", "enum", "trait", "type", "union"].contains(&keyword)).then_some(name)
    };
    code.lines().filter_map(declared).collect()
}

/// Whether a line has these words, in any case and as whole words.
fn has(line: &str, phrase: &str) -> bool {
    let line = line.to_lowercase();
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(phrase).any(|(at, found)| {
        !is_part(line[..at].chars().next_back()) && !is_part(line[at + found.len()..].chars().next())
    })
}

#[test]
fn a_phrase_is_found_as_whole_words_only() {
    assert!(has("It begins Anew.", "anew") && has("told to stop", "told to stop"));
    assert!(!has("a renewed lease", "anew") && !has("shallow", "shall") && !has("shall_we", "shall"));
}

#[test]
fn a_retired_word_is_found_with_its_endings() {
    assert!(is_retired("ripened", "ripen*") && is_retired("told", "told"));
    assert!(!is_retired("retold", "told") && !is_retired("insisted", "insist"));
}

#[test]
fn a_type_is_found_with_any_visibility() {
    let code = "pub struct A;\n    pub(crate) enum B<T> {\npub(in crate::x) type C = u8;\nstruct D;\npub fn e() {}";
    assert_eq!(types(code), ["A", "B", "C"]);
}
