//! Every example on the page about expressions has the value that the page states.

use std::sync::Arc;

use kernel::expression::{Expression, NodeScope, Scope};
use kernel::ids::NodeKey;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/reference/expressions.md");

fn scope() -> Scope {
    let data = PAGE.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has its data");
    let data: Value = serde_json::from_str(data).expect("the data is JSON");
    let shared = |name: &str| Arc::new(data[name].clone());
    let nodes = data["nodes"].as_object().expect("nodes").iter().map(|(key, node)| {
        let status = node["status"].as_str().expect("a status").to_owned();
        let part = |name: &str| Arc::new(node[name].clone());
        (NodeKey::new(key).expect("a key"), NodeScope { status, output: part("output"), error: part("error") })
    });
    Scope {
        inputs: shared("inputs"),
        nodes: nodes.collect(),
        trigger: shared("trigger"),
        vars: shared("vars"),
        execution: data["execution"].clone(),
        workspace: data["workspace"].clone(),
        secrets: None,
        ..Scope::default()
    }
}

/// The rows of the tables that give examples: what is evaluated, and its value.
fn examples() -> Vec<(String, Value)> {
    let row = |line: &str| {
        let line = line.replace("\\|", "\u{1}");
        let mut cells = line.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace('\u{1}', "|"));
        let code = |cell: String| cell.strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
        let (source, value) = (code(cells.next()?)?, code(cells.next()?)?);
        cells.next()?;
        let value = serde_json::from_str(&value).unwrap_or_else(|error| panic!("{line}: {error}"));
        Some((source, value))
    };
    PAGE.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

#[test]
fn every_example_of_the_page_has_the_value_that_it_says() {
    let scope = scope();
    let examples = examples();
    assert!(examples.len() > 70, "the page has its examples: {}", examples.len());
    for (source, expected) in examples {
        let value = Expression::parse(&source).unwrap_or_else(|error| panic!("{source}: {error}")).eval(&scope);
        assert_eq!(value, Ok(expected), "{source}");
    }
}

#[test]
fn every_function_has_an_example_on_the_page() {
    let error = Expression::parse("nothing_like_it()").expect_err("no such function").message;
    assert!(error.contains("use one of"), "{error}");
    for name in Expression::functions() {
        let called = format!("{name}(");
        assert!(examples().iter().any(|(source, _)| source.contains(&called)), "{name} has no example");
    }
}
