//! Tests the published schema with a JSON Schema validator, as an editor does, and the pages that are generated from
//! the kernel.

use expect_test::expect_file;
use jsonschema::Validator;
use kernel::definition::Kind;
use kernel::definition::problem::Code;
use kernel::definition::{parse, source};
use kernel::kind;
use serde_json::Value;

use crate::definitions::corpus;
use crate::page::wrap;

fn validator() -> Validator {
    jsonschema::draft202012::new(&parse::schema::workflow()).expect("a schema")
}

#[test]
fn the_published_schema_is_the_kernels() {
    let text = format!("{:#}\n", parse::schema::workflow());
    expect_file!["../../../../docs/reference/workflow.schema.json"].assert_eq(&text);
}

#[test]
fn what_is_valid_is_valid_by_the_schema() {
    let validator = validator();
    // From this crate's folder of definitions to the examples that ship.
    for (name, text) in corpus("good").into_iter().chain(corpus("../../../../examples")) {
        if !name.ends_with(".yaml") {
            continue;
        }
        let document = source::read(&text).value.expect("a document");
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn what_has_the_wrong_shape_is_refused_by_the_schema() {
    let validator = validator();
    let shape = [Code::MissingField, Code::UnknownField, Code::WrongType, Code::UnknownKind, Code::BadName];
    let (mut refused, mut accepted, mut missed) = (0, Vec::new(), Vec::new());
    for (name, text) in corpus("bad") {
        let problems = parse::check_text(&text).err().unwrap_or_default();
        let Some(document) = source::read(&text).value else { continue };
        if !validator.is_valid(&document) {
            refused += 1;
            continue;
        }
        if problems.iter().any(|problem| shape.contains(&problem.code)) {
            missed.push(name.clone());
        }
        accepted.push(name);
    }
    // Names that only a reader is misled by, and a blank one.
    let beyond = [
        "byte-order-mark.yaml",
        "name-blank.yaml",
        "name-escape-sequence.yaml",
        "name-turned-around.yaml",
        "name-zero-width.yaml",
    ];
    assert_eq!(missed, beyond, "of {accepted:?}");
    assert!(refused >= 35, "{refused} refused, accepted: {accepted:?}");
}

#[test]
fn the_page_of_kinds_is_current() {
    let mut page =
        "# Kinds of nodes\n\nEach kind of node, and the fields of its `with`. A test generates this page from the \
        code of the kernel. The endpoint `GET /api/v1/workflow/nodes` returns the same with a JSON Schema for each \
        kind.\n\nThe manner of a kind says how engines perform it: it `computes`, `calls` another system, `waits` for \
        a time, `waits_for_answer` from outside, `spawns` a child, or `loops` over items.\n\nAny text field may \
        contain expressions, written `${{ … }}`. The value of such a field is checked at run time, when it is known.\n"
            .to_owned();
    for kind in Kind::ALL {
        let about = kind::describe(kind);
        page.push_str(&format!("\n## {}\n\n{} Manner: `{}`.", about.kind, about.summary, about.manner));
        if !about.labels.is_empty() {
            page.push_str(&format!(" Branches: `{}`.", about.labels.join("`, `")));
        }
        if !about.secret_fields.is_empty() {
            page.push_str(&format!(" These fields may contain secrets: `{}`.", about.secret_fields.join("`, `")));
        }
        page.push_str("\n\n| field | |\n|---|---|\n");
        let required = |name: &str| {
            let listed = about.schema["required"].as_array();
            listed.is_some_and(|names| names.iter().any(|required| required == name))
        };
        for (name, field) in about.schema["properties"].as_object().expect("fields") {
            let needed = if required(name) { "required. " } else { "" };
            let words = field["description"].as_str().expect("every field says what it is");
            page.push_str(&format!("| `{name}` | {needed}{words}{} |\n", choices(field)));
        }
    }
    expect_file!["../../../../docs/reference/kinds.md"].assert_eq(&wrap(&page));
}

/// The words that a field takes, if it takes only some.
fn choices(field: &Value) -> String {
    let first = field["anyOf"].as_array().and_then(|any| any.first()).and_then(|first| first["enum"].as_array());
    let words: Vec<String> =
        first.into_iter().flatten().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
    if words.is_empty() { String::new() } else { format!(" One of {}.", words.join(", ")) }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the page is a file")]
fn every_code_of_a_problem_is_on_its_page_and_no_other() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/definitions.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let table = page.split("\n## Problems\n").nth(1).expect("the part about problems");
    let listed: Vec<(&str, &str)> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")).collect();
    let codes: Vec<(&str, &str)> = Code::ALL.iter().map(|code| code.describe()).collect();
    assert_eq!(listed, codes);
}
