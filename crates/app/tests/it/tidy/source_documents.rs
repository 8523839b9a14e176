//! In `docs/explanation/source-documents.md` every statement of the documents has a number, and says where the service
//! keeps it or why it does not.

use std::collections::BTreeSet;

use super::repository::{read, root};
use super::{check, rust};

/// The documents, the letter of their statements, and how many they make: one that is left out is missed.
const DOCUMENTS: [(&str, char, usize); 5] = [
    ("dispatcher.md", 'D', 71),
    ("queue-processor.md", 'P', 87),
    ("flow-queue-processing.md", 'Q', 114),
    ("flow-workflow-execution.md", 'E', 81),
    ("workflow-queue-projection.md", 'W', 24),
];

/// A statement, and what the page says of it.
struct Statement {
    document: String,
    id: String,
    says: String,
    here: String,
}

fn statements() -> Vec<Statement> {
    let (mut found, mut document) = (Vec::new(), String::new());
    for line in read("docs/explanation/source-documents.md").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut document);
        }
        let Some(row) = line.strip_prefix("| ").and_then(|rest| rest.strip_suffix(" |")) else { continue };
        if let [id, says, here] = row.split(" | ").collect::<Vec<_>>()[..]
            && is_id(id)
        {
            let (id, says, here) = (id.to_owned(), says.trim().to_owned(), here.trim().to_owned());
            found.push(Statement { document: document.clone(), id, says, here });
        }
    }
    found
}

/// A letter of a document and a number.
fn is_id(word: &str) -> bool {
    let (letter, number) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    let known = DOCUMENTS.iter().any(|(_, of, _)| letter == of.to_string());
    known && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

#[test]
fn every_statement_of_the_source_documents_has_its_number() {
    let (all, mut wrong) = (statements(), Vec::new());
    for (name, letter, count) in DOCUMENTS {
        let title = format!("{name}: {count} statements");
        let of: Vec<&Statement> = all.iter().filter(|statement| statement.document == title).collect();
        if of.len() != count {
            wrong.push(format!("## {title}: the page has {} under that title", of.len()));
        }
        for (at, statement) in of.iter().enumerate() {
            if statement.id != format!("{letter}{}", at + 1) {
                wrong.push(format!("{}: the {}th statement of {name}", statement.id, at + 1));
            }
            if statement.says.is_empty() {
                wrong.push(format!("{}: says nothing", statement.id));
            }
        }
    }
    check("docs/explanation/source-documents.md numbers every statement of the five documents", wrong);
}

#[test]
fn every_statement_of_the_source_documents_is_kept_somewhere_or_says_why_not() {
    let tests = rust::names();
    let (all, metrics) = (statements(), read("docs/reference/metrics.md"));
    let ids: BTreeSet<&str> = all.iter().map(|statement| statement.id.as_str()).collect();
    let mut wrong = Vec::new();
    for Statement { id, here, .. } in &all {
        let mut grounds = 0;
        for word in here.split('`').skip(1).step_by(2) {
            let is_name = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let is_path = word.contains('/') && !word.contains(' ') || word.ends_with(".md");
            if is_path && !word.starts_with("./") && root().join(word).exists() || tests.contains(word) {
                grounds += 1;
            } else if is_name && word.matches('_').count() >= 3 && !metrics.contains(&format!("`{word}`")) {
                wrong.push(format!("{id}: there is no test or metric {word}"));
            } else if word.starts_with("./dev/") || metrics.contains(&format!("`{word}`")) {
                grounds += 1;
            }
        }
        let plain: String = here.split('`').step_by(2).collect();
        for word in plain.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| is_id(word)) {
            match ids.contains(word) {
                true => grounds += 1,
                false => wrong.push(format!("{id}: there is no statement {word}")),
            }
        }
        if grounds == 0 && !here.starts_with("**Theirs**") && !here.contains("docs/reference/settings.md") {
            wrong.push(format!("{id}: names neither a test nor a file, and does not say why not"));
        }
    }
    check("docs/explanation/source-documents.md names what keeps each statement", wrong);
}
