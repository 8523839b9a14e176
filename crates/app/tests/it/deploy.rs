//! The alerts and dashboards in `deploy/` use only metrics that exist, and only labels that those metrics have.

use std::collections::BTreeSet;

use kernel::signals::{Kind, metrics};
use serde_json::Value;

use crate::tidy::repository::read;

/// Labels that whoever scrapes puts there, or that a histogram has.
const GIVEN: [&str; 3] = ["instance", "job", "le"];
/// Words of the query language that stand where a metric could.
const WORDS: [&str; 9] = ["and", "or", "unless", "by", "without", "on", "ignoring", "bool", "offset"];

/// The names a query reads, and the labels it asks them for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    names: BTreeSet<String>,
    labels: BTreeSet<String>,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

/// Reads a query: names that are no function and no word, labels in braces and behind `by`.
fn queried(query: &str) -> Read {
    let mut read = Read::default();
    let mut rest = query;
    let mut grouping = false;
    while let Some(first) = rest.chars().next() {
        if first == '{' {
            let (inside, after) = rest[1..].split_once('}').expect("a brace is closed");
            let parts = inside.split(',').filter_map(|part| part.split(['=', '!']).next());
            read.labels.extend(parts.map(|label| label.trim().to_owned()));
            rest = after;
        } else if first == '[' {
            rest = rest.split_once(']').expect("a range is closed").1;
        } else if first == '(' && grouping {
            let (inside, after) = rest[1..].split_once(')').expect("a group is closed");
            read.labels.extend(inside.split(',').map(|label| label.trim().to_owned()));
            (rest, grouping) = (after, false);
        } else if is_name(first) {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let calls = after.trim_start().starts_with('(') || after.trim_start().starts_with("by ");
            grouping = word == "by" || word == "without";
            if !calls && !WORDS.contains(&word) && !first.is_ascii_digit() {
                read.names.insert(word.to_owned());
            }
            rest = after;
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    read
}

/// What is wrong with a query.
fn wrong(query: &str) -> Vec<String> {
    let read = queried(query);
    let mut labels: BTreeSet<&str> = GIVEN.into_iter().collect();
    let mut wrong = Vec::new();
    for name in &read.names {
        let found = metrics::ALL.iter().find(|metric| match metric.kind {
            Kind::Histogram(_) => {
                ["_bucket", "_sum", "_count"].iter().any(|end| *name == format!("{}{end}", metric.name))
            }
            Kind::Counter | Kind::Gauge => name == metric.name,
        });
        match found {
            Some(metric) => labels.extend(metric.labels),
            None => wrong.push(format!("{query}: there is no metric {name}")),
        }
    }
    let unknown = read.labels.iter().filter(|label| !labels.contains(label.as_str()));
    wrong.extend(unknown.map(|label| format!("{query}: there is no label {label}")));
    if read.names.is_empty() {
        wrong.push(format!("{query}: it reads nothing"));
    }
    wrong
}

#[test]
fn a_query_is_read_as_it_is_meant() {
    let read = queried(
        "histogram_quantile(0.99, sum by (le, kind) (rate(a_bucket{x=\"1\", y!~\"b\"}[5m]))) > 3 and max(c) == 0",
    );
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(read, Read { names: set(&["a_bucket", "c"]), labels: set(&["le", "kind", "x", "y"]) });
    assert_eq!(wrong("sum(rate(queue_items_failed_total{reason=\"x\"}[5m]))"), Vec::<String>::new());
    assert_eq!(wrong("queue_items_failed_total{workspace=\"x\"}").len(), 1, "a label it does not have");
    assert_eq!(wrong("queue_processing_batch_size > 1").len(), 1, "a histogram has no plain value");
    assert_eq!(wrong("queue_item_failed_total").len(), 1, "no such metric");
}

#[test]
fn every_alert_reads_metrics_that_exist_and_says_what_to_do() {
    let text = read("deploy/prometheus/alerts.yaml");
    let file: Value = kernel::definition::source::read(&text).value.expect("YAML");
    let rules: Vec<&Value> = file["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"))
        .collect();
    assert!(rules.len() >= 10, "{} rules", rules.len());
    for rule in rules {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        assert!(text(&rule["alert"]).starts_with("Forebay"), "{rule}");
        assert_eq!(wrong(&text(&rule["expr"])), Vec::<String>::new());
        let (summary, runbook) = (text(&rule["annotations"]["summary"]), text(&rule["annotations"]["runbook"]));
        assert!(summary.ends_with('.') && runbook.len() > 60 && runbook.ends_with('.'), "{rule}");
        assert!(["page", "ticket"].contains(&text(&rule["labels"]["severity"]).as_str()), "{rule}");
    }
}

#[test]
fn the_dashboard_reads_metrics_that_exist_and_leaves_none_out() {
    let board: Value = serde_json::from_str(&read("deploy/grafana/forebay.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let queries: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().expect("a query"))
        .collect();
    let offenders: Vec<String> = queries.iter().flat_map(|query| wrong(query)).collect();
    assert_eq!(offenders, Vec::<String>::new());
    let shown = |name: &str| queries.iter().any(|query| query.contains(name));
    let missing: Vec<&str> = metrics::ALL.iter().map(|metric| metric.name).filter(|name| !shown(name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "metrics that no panel shows");
}
