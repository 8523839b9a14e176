//! The links, commands, files, tests and codes that a page names must exist. Pages must be easy to read, with short
//! sentences and lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::repository::{files, read, root};
use super::{check, rust};

const METHODS: [&str; 5] = ["GET", "POST", "PATCH", "PUT", "DELETE"];

const LONGEST_SENTENCE: usize = 40;
const LONGEST_README: usize = 150;

/// A paragraph or a list item of a page. Tables, headings, comments and blocks of code are neither.
struct Paragraph {
    line: usize,
    text: String,
}

/// The lines of a page that are prose, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_other = ["|", "#", "<!--"].iter().any(|start| line.trim_start().starts_with(start));
        (!is_code && !is_fence && !is_other).then_some((at + 1, line))
    })
}

fn paragraphs(page: &str) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut next = 0;
    for (line, text) in prose(page) {
        let text = text.trim();
        let item = text.split_once(' ').filter(|(mark, _)| {
            ["-", "*"].contains(mark) || mark.strip_suffix('.').is_some_and(|number| number.parse::<u32>().is_ok())
        });
        match found.last_mut() {
            Some(last) if line == next && item.is_none() && !text.is_empty() => {
                last.text.push(' ');
                last.text.push_str(text);
            }
            _ if text.is_empty() => continue,
            _ => found.push(Paragraph { line, text: item.map_or(text, |(_, rest)| rest).to_owned() }),
        }
        next = line + 1;
    }
    found
}

/// The sentences of a text: each ends with a mark and a space behind it.
fn sentences(text: &str) -> Vec<&str> {
    let (mut found, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices(' ') {
        let before = text[start..at].trim_end_matches(['"', '\'', ')', '*', '`']);
        if before.ends_with(['.', '!', '?']) {
            found.push(text[start..at].trim());
            start = at + 1;
        }
    }
    found.push(text[start..].trim());
    found
}

#[test]
fn sentences_are_short() {
    let mut long = Vec::new();
    for page in files().iter().filter(|file| file.is_page()) {
        for Paragraph { line, text } in paragraphs(&page.text) {
            for sentence in sentences(&text) {
                let words = sentence.split_whitespace().count();
                if words > LONGEST_SENTENCE {
                    long.push(format!("{}:{line}: {words} words: {sentence}", page.path));
                }
            }
        }
    }
    check("split sentences of more than 40 words", long);
}

#[test]
fn lines_of_pages_are_short() {
    let mut long = Vec::new();
    for page in files().iter().filter(|file| file.is_page()) {
        let too_long = prose(&page.text).filter(|(_, line)| line.chars().count() > super::LONGEST_LINE);
        long.extend(too_long.map(|(at, _)| format!("{}:{at}", page.path)));
    }
    check("wrap prose at 120 columns (except tables and blocks of code)", long);
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= LONGEST_README, "README.md has {lines} lines, of {LONGEST_README}: move the rest to docs/");
}

#[test]
fn prose_is_distinguished_from_the_rest() {
    let page = "# Head\n\nOne. Two\nlines (too.) Three?\n- an item\n  of two lines\n\n1. first\n\n```sh\nno\n```\n| no |\nend\n";
    let found: Vec<String> =
        paragraphs(page).iter().map(|it| format!("{} {:?}", it.line, sentences(&it.text))).collect();
    let expected = [
        r#"3 ["One.", "Two lines (too.)", "Three?"]"#,
        r#"5 ["an item of two lines"]"#,
        r#"8 ["first"]"#,
        r#"14 ["end"]"#,
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in files().iter().filter(|file| file.is_page()) {
        let here = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for link in page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = if target.is_empty() { root().join(&page.path) } else { root().join(here).join(target) };
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if !file.exists() || !heading.is_empty() && !anchors(&text).contains(heading) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    check("links lead to files and headings that exist", broken);
}

/// The anchors of a page's headings: lower case, a minus for each space, no other punctuation.
fn anchors(page: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
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
    for rest in source.split('(').filter_map(|rest| rest.trim_start().strip_prefix('"')) {
        let Some((code, rest)) = rest.split_once("\",") else { continue };
        let Some(status) = rest.trim_start().strip_prefix("StatusCode::") else { continue };
        let status = status.split(',').next().unwrap_or_default();
        if code.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            codes.insert((code.to_owned(), number(status)));
        }
    }
    assert!(codes.len() > 10, "the codes are read from {codes:?}");
    let page = read("docs/reference/errors.md");
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
    check(
        "docs/reference/errors.md lists the codes of crates/server/src/http/problem.rs",
        missing.chain(stale).collect(),
    );
}

#[test]
fn every_address_that_a_page_names_is_served() {
    let document: serde_json::Value = serde_json::from_str(&read("docs/reference/openapi.json")).expect("JSON");
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
    check("pages name only addresses of docs/reference/openapi.json, with methods they take", unknown);
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
