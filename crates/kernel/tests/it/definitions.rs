//! The corpus of definitions: invalid files that state their expected problems, and unusual files that are valid.
//!
//! An invalid file begins with a line `# expect: CODE LINE:COLUMN` for each of its problems, in their order.

use std::collections::BTreeSet;
use std::path::Path;

use kernel::definition::parse;
use kernel::definition::problem::{Code, Problem};

/// Every file of a folder of the corpus, by name.
#[expect(clippy::disallowed_methods, reason = "the corpus is files")]
pub(crate) fn corpus(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/definitions").join(folder);
    let entries = std::fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<(String, String)> = entries
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("text"))
        })
        .collect();
    files.sort();
    files
}

/// What a file says of itself.
fn expected(text: &str) -> Vec<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().take_while(|line| line.starts_with('#'));
    lines.filter_map(|line| line.strip_prefix("# expect: ")).map(str::to_owned).collect()
}

fn shown(problem: &Problem) -> String {
    match (problem.line, problem.column) {
        (Some(line), Some(column)) => format!("{} {line}:{column}", problem.code.name()),
        _ => problem.code.name().to_owned(),
    }
}

#[test]
fn every_problem_of_the_corpus_is_reported_with_its_code_and_location() {
    let files = corpus("bad");
    assert!(files.len() >= 50, "{} files", files.len());
    let mut wrong = Vec::new();
    let mut codes = BTreeSet::new();
    for (name, text) in files {
        let problems = parse::check_text(&text).err().unwrap_or_default();
        codes.extend(problems.iter().map(|problem| problem.code));
        let (seen, expected) = (problems.iter().map(shown).collect::<Vec<_>>(), expected(&text));
        if seen != expected || expected.is_empty() {
            let all: Vec<String> =
                problems.iter().map(|problem| format!("# expect: {}  {problem}", shown(problem))).collect();
            wrong.push(format!("{name}\n  expected {expected:?}\n{}", all.join("\n")));
        }
        for problem in problems {
            shows_what_stands_there(&name, &text, &problem);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let unseen: Vec<&str> = Code::ALL.iter().filter(|code| !codes.contains(code)).map(|code| code.name()).collect();
    assert_eq!(unseen, ["too_many"], "every code has a file");
}

/// A problem's text is what is at its line and column.
fn shows_what_stands_there(name: &str, text: &str, problem: &Problem) {
    let (Some(line), Some(column), Some(shown)) = (problem.line, problem.column, &problem.text) else { return };
    let line = kernel::definition::source::line(text, line).unwrap_or_else(|| panic!("{name}: line {line} is there"));
    let rest: String = line.chars().skip(column as usize - 1).collect();
    assert!(rest.starts_with(shown.as_str()), "{name}: {problem:?} is at {rest:?}");
}

#[test]
fn what_only_looks_wrong_is_accepted() {
    let files = corpus("good");
    assert!(files.len() >= 20, "{} files", files.len());
    for (name, text) in files {
        if let Err(problems) = parse::check_text(&text) {
            panic!("{name}: {problems:#?}");
        }
    }
}

#[test]
fn a_file_is_checked_like_the_document_in_it() {
    for (name, text) in corpus("bad").into_iter().chain(corpus("good")) {
        let source = kernel::definition::source::read(&text);
        let Some(document) = source.value.as_ref().filter(|_| source.problems.is_empty()) else { continue };
        let messages = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let (by_text, by_value) = (parse::check_text(&text), parse::check(document));
        assert_eq!(by_text.map_err(messages), by_value.map_err(messages), "{name}");
    }
}
