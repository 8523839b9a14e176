//! Pages say what is there: links, commands, files, tests and codes exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::repository::{files, read, root};
use super::{check, rust};

const METHODS: [&str; 5] = ["GET", "POST", "PATCH", "PUT", "DELETE"];

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in files().iter().filter(|file| file.is_page()) {
        let here = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for target in page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
            if is_file && !root().join(here).join(target).exists() {
                broken.push(format!("{}: {target}", page.path));
            }
        }
    }
    check("links lead to files that exist", broken);
}

#[test]
fn every_file_and_script_that_is_named_is_there() {
    let mut missing = Vec::new();
    for page in files().iter().filter(|file| file.is_page()) {
        let words = page.text.split(|c: char| c.is_whitespace() || "`()[],;\"'|".contains(c));
        for word in words.map(|word| word.trim_end_matches(['.', ':'])) {
            let path = word.strip_prefix("./").unwrap_or(word);
            let path = path.split('#').next().unwrap_or(path);
            let is_ours = ["crates/", "docs/", "examples/", "bench/", "dev/"].iter().any(|top| path.starts_with(top));
            if is_ours && !path.contains(['*', '<', '{', '…']) && !root().join(path).exists() {
                missing.push(format!("{}: {word}", page.path));
            }
        }
    }
    check("pages name only files that exist", missing);
}

#[test]
fn every_test_that_the_architecture_names_is_there() {
    let tests = rust::names();
    let page = read("ARCHITECTURE.md");
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3 && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let named = page.split('`').skip(1).step_by(2).filter(is_name);
    let missing: Vec<String> = named.filter(|name| !tests.contains(*name)).map(str::to_owned).collect();
    check("ARCHITECTURE.md names tests that exist", missing);
}

#[test]
fn every_error_code_is_on_its_page_and_no_other() {
    let source = read("crates/server/src/http/problem.rs");
    let mut codes: BTreeSet<(String, u16)> = BTreeSet::new();
    for rest in source.split("(\"").skip(1) {
        let Some((code, rest)) = rest.split_once("\", StatusCode::") else { continue };
        let status = rest.split(',').next().unwrap_or_default();
        if code.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            codes.insert((code.to_owned(), number(status)));
        }
    }
    assert!(codes.len() > 10, "the codes are read from {codes:?}");
    let page = read("docs/errors.md");
    let listed: BTreeSet<(String, u16)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .flat_map(|(code, rest)| {
            let statuses = rest.split('|').next().unwrap_or_default();
            statuses
                .split(',')
                .filter_map(|status| Some((code.to_owned(), status.trim().parse().ok()?)))
                .collect::<Vec<_>>()
        })
        .collect();
    let missing = codes.difference(&listed).map(|(code, status)| format!("missing: {code} {status}"));
    let stale = listed.difference(&codes).map(|(code, status)| format!("not in problem.rs: {code} {status}"));
    check("docs/errors.md lists the codes of crates/server/src/http/problem.rs", missing.chain(stale).collect());
}

#[test]
fn every_address_that_a_page_names_is_served() {
    let document: serde_json::Value = serde_json::from_str(&read("docs/openapi.json")).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    // Where a description has a parameter, a page has one, or a variable.
    let is_given = |part: &str| part.starts_with(['{', '$']);
    let fits = |known: &str, named: &str| {
        let (known, named): (Vec<&str>, Vec<&str>) = (known.split('/').collect(), named.split('/').collect());
        let same = |(known, named): (&&str, &&str)| known == named || known.starts_with('{') && is_given(named);
        known.len() == named.len() && known.iter().zip(&named).all(same)
    };
    let (mut count, mut unknown) = (0, Vec::new());
    for page in files().iter().filter(|file| file.is_page()) {
        for line in page.text.lines() {
            let Some((before, rest)) = line.split_once("/api/v1/") else { continue };
            let end = rest.find(|c: char| c.is_whitespace() || "?`\"'|)".contains(c)).unwrap_or(rest.len());
            let named = format!("/api/v1/{}", &rest[..end]);
            let method = before.split([' ', '`']).rfind(|word| METHODS.contains(word)).map(str::to_lowercase);
            let serves = |operations: &serde_json::Value| {
                method.as_ref().is_none_or(|method| operations.get(method.as_str()).is_some())
            };
            count += 1;
            if !paths.iter().any(|(known, operations)| fits(known, &named) && serves(operations)) {
                unknown.push(format!("{}: {} {named}", page.path, method.unwrap_or_default()));
            }
        }
    }
    assert!(count > 20, "the addresses are found: {count}");
    check("pages name only addresses of docs/openapi.json, with methods they take", unknown);
}

fn number(status: &str) -> u16 {
    let known = BTreeMap::from([
        ("BAD_REQUEST", 400),
        ("UNAUTHORIZED", 401),
        ("FORBIDDEN", 403),
        ("NOT_FOUND", 404),
        ("METHOD_NOT_ALLOWED", 405),
        ("CONFLICT", 409),
        ("GONE", 410),
        ("PAYLOAD_TOO_LARGE", 413),
        ("UNSUPPORTED_MEDIA_TYPE", 415),
        ("UNPROCESSABLE_ENTITY", 422),
        ("TOO_MANY_REQUESTS", 429),
        ("INTERNAL_SERVER_ERROR", 500),
        ("SERVICE_UNAVAILABLE", 503),
        ("GATEWAY_TIMEOUT", 504),
    ]);
    *known.get(status).unwrap_or_else(|| panic!("teach this test what {status} is"))
}

#[test]
fn decisions_are_numbered_and_listed() {
    let files = files();
    let pages: Vec<&str> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix("docs/decisions/")?.strip_suffix(".md"))
        .filter(|name| *name != "README")
        .collect();
    let index = read("docs/decisions/README.md");
    let mut wrong = Vec::new();
    for (at, name) in pages.iter().enumerate() {
        if !name.starts_with(&format!("{:04}-", at + 1)) {
            wrong.push(format!("{name} is the {}th page", at + 1));
        }
        if !index.contains(&format!("({name}.md)")) {
            wrong.push(format!("{name} is not in docs/decisions/README.md"));
        }
    }
    check("decisions are NNNN-title.md without gaps, each in the list", wrong);
}

#[test]
fn what_users_will_notice_is_written_down() {
    assert!(read("CHANGELOG.md").contains("\n## Unreleased\n"), "CHANGELOG.md has a section Unreleased");
}
