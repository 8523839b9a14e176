//! Every statement is valid against the real schema, and schema.sql equals it.

use std::path::{Path, PathBuf};

use store::testing::Database;

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_text_names_the_functions_of_this_release() {
    let mut found = Vec::new();
    for folder in
        ["sql", "functions", "tests", "../app/tests/it", "../engine/tests", "../temporal/tests", "../../bench"]
    {
        files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    for file in found {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for (at, _) in text.match_indices("forebay_r") {
            let name: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let numbered = name[9..].starts_with(|c: char| c.is_ascii_digit());
            // No release has the number 0: tests use it for an older one.
            assert!(
                !numbered || [store::release::SCHEMA, "forebay_r0"].contains(&name.as_str()),
                "{} names {name}",
                file.display()
            );
        }
    }
}

#[tokio::test]
async fn every_statement_is_prepared_by_the_real_server() {
    let database = Database::new().await;
    // Like the store, without a search path, so that a name without its schema is noticed.
    let client = database.target.connect().await.expect("a connection");
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("sql"), &mut found);
    assert!(found.len() > 40, "the walk finds the statements");
    for file in found {
        let text = std::fs::read_to_string(&file).expect("a readable file");
        if let Err(error) = client.prepare(&text).await {
            panic!("{}: {}", file.display(), error.as_db_error().map_or(error.to_string(), ToString::to_string));
        }
    }
}
