//! Parses Rust text as far as the checks need it: which parts are code, and how long functions are.
//!
//! Invariants
//! - Blanking out comments and literals moves no line, so a reported line number is correct.
//!
//! Not here: the code that macros generate.

use std::collections::BTreeSet;

use super::repository::{File, files};

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) lines: usize,
    /// Those that are not wholly comment or literal.
    pub(super) lines_of_code: usize,
}

/// The text with comments and the insides of literals blanked out.
pub(super) fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = literal(rest).unwrap_or(0);
        if length == 0 {
            // The whole of a word at once, so that a literal's prefix is never taken for its end.
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let taken = word.max(first.len_utf8());
            out.push_str(&rest[..taken]);
            rest = &rest[taken..];
            continue;
        }
        out.extend(rest[..length].chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &rest[length..];
    }
    out
}

/// The names of all functions of the repository.
pub(super) fn names() -> BTreeSet<String> {
    let sources = files().into_iter().filter(File::is_rust);
    sources.flat_map(|file| functions(&code(&file.text))).map(|function| function.name).collect()
}

/// The functions of a text that `code` has been through.
pub(super) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word = code[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !is_word || name.is_empty() {
            continue;
        }
        if let Some(end) = body_end(&code[at..]) {
            let line = code[..at].matches('\n').count() + 1;
            let lines_of_code = code[at..at + end].lines().filter(|line| !line.trim().is_empty()).count();
            found.push(Function { name, line, lines: code[at..at + end].matches('\n').count() + 1, lines_of_code });
        }
    }
    found
}

/// Where a function's body ends; nothing for one without a body.
fn body_end(function: &str) -> Option<usize> {
    let (mut braces, mut others) = (0usize, 0usize);
    for (at, c) in function.char_indices() {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            ';' if braces == 0 && others == 0 => return None,
            '{' => braces += 1,
            '}' if braces <= 1 => return (braces == 1).then_some(at + 1),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

/// The length of the comment or literal that a text begins with.
fn literal(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(text.find("*/").map_or(text.len(), |at| at + 2));
    }
    if let Some(quoted) = ["\"", "b\"", "c\""].into_iter().find(|quote| text.starts_with(quote)) {
        return Some(quoted.len() + closing(&text[quoted.len()..], '"'));
    }
    raw(text).or_else(|| character(text))
}

fn raw(text: &str) -> Option<usize> {
    let start = ["r", "br", "cr"]
        .into_iter()
        .find(|start| text.strip_prefix(start).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"')))?;
    let hashes = text[start.len()..].find('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let open = start.len() + hashes + 1;
    Some(text[open..].find(&end).map_or(text.len(), |at| open + at + end.len()))
}

/// A character, and not a lifetime.
fn character(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    let first = rest.chars().next()?;
    let is_character = first == '\\' || rest[first.len_utf8()..].starts_with('\'');
    is_character.then(|| 1 + closing(rest, '\''))
}

/// How far it is to behind the closing quote.
fn closing(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[test]
fn literals_and_comments_are_no_code() {
    let text = "let a = \"fn { \\\" {\"; // fn b() {\nlet c = r#\"}\"}\"#; let d = '{'; let e = '\\''; fn f<'a>() {\n}";
    let code = code(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.matches('{').count(), 1, "{code}");
    assert_eq!(functions(&code), [Function { name: "f".to_owned(), line: 2, lines: 2, lines_of_code: 2 }]);
}

#[test]
fn a_function_without_a_body_has_no_length() {
    assert_eq!(functions("trait A { fn a(&self); fn b(&self) -> [u8; 2] {\n\n} }").len(), 1);
}
