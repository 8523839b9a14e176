//! The table of signals is well formed, and `docs/reference/metrics.md` is generated from it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use expect_test::expect_file;
use kernel::run::failure::Class;
use kernel::signals::{Event, Kind, Metric, Span, events, metrics, spans};

use crate::page::wrap;

const CLASSES: [Class; 16] = [
    Class::HttpClientError,
    Class::HttpServerError,
    Class::ControlFlowError,
    Class::ValidationError,
    Class::SecurityError,
    Class::Timeout,
    Class::ExecutionError,
    Class::UnstorableOutput,
    Class::Stalled,
    Class::CrashLoop,
    Class::EngineLost,
    Class::DispatchRefused,
    Class::WorkspaceGone,
    Class::DefinitionGone,
    Class::BadGraph,
    Class::DeadlinePassed,
];

#[test]
fn names_are_plain_and_unique() {
    let names: Vec<&str> = metrics::ALL.iter().map(|metric| metric.name).collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len());
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    for Metric { name, kind, labels, help, action } in metrics::ALL {
        assert!(plain(name) && labels.iter().all(|label| plain(label)), "{name}");
        assert!(help.ends_with('.') && action.ends_with('.') && !help.contains('\n'), "{name}: whole sentences");
        if let Kind::Histogram(buckets) = kind {
            assert!(!buckets.is_empty() && buckets.is_sorted(), "{name}: {buckets:?}");
        }
    }
    for Span { name, parent, .. } in spans::ALL {
        assert!(parent.is_none_or(|outer| spans::ALL.iter().any(|span| span.name == outer)), "{name}");
    }
}

/// The names that the source documents fix.
const WITHOUT_PREFIX: [&str; 7] = [
    "queue_processing_batch_size",
    "queue_processing_duration_seconds",
    "queue_items_dispatched_total",
    "queue_items_at_capacity_total",
    "queue_items_failed_total",
    "queue_stale_recovery_count",
    "shedlock_acquisition_failures",
];

#[test]
fn a_metric_name_has_the_prefix_and_a_counter_ends_in_total() {
    let without: Vec<&str> =
        metrics::ALL.iter().map(|metric| metric.name).filter(|name| !name.starts_with("forebay_")).collect();
    assert_eq!(BTreeSet::from_iter(without), BTreeSet::from(WITHOUT_PREFIX));
    for Metric { name, kind, .. } in metrics::ALL.iter().filter(|metric| metric.name.starts_with("forebay_")) {
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
    }
}

#[test]
fn a_message_matches_with_any_value_in_its_placeholder() {
    let Event { message, .. } = events::PROCESSING;
    assert_eq!(events::PROCESSING.message_with(7), "Processing 7 queue items");
    assert!(events::PROCESSING.matches("Processing 7 queue items") && !events::PROCESSING.matches("Processing  items"));
    assert!(!events::PROCESSING.matches("Processing queue items"), "{message} without a value in its placeholder");
    assert!(
        events::AT_CAPACITY.matches("Workspace at capacity") && !events::AT_CAPACITY.matches("Workspace at capacity!")
    );
}

#[test]
fn a_failure_reason_is_named_as_in_the_api() {
    for class in CLASSES {
        assert_eq!(serde_json::to_value(class).expect("a name"), class.name());
    }
}

#[test]
fn the_metrics_page_is_current() {
    let mut page = HEAD.to_owned();
    let labels =
        |metric: &Metric| metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    for metric in metrics::ALL {
        let kind = metric.kind.name();
        let by = if metric.labels.is_empty() { String::new() } else { format!(" by {}", labels(metric)) };
        let Metric { name, help, action, .. } = metric;
        let (help, action) = (wrapped(&format!("{kind}{by}. {help}")), wrapped(&format!("*What to do.* {action}")));
        write!(page, "\n### `{name}`\n\n{help}\n\n{action}\n").expect("a string takes all");
    }
    page += SPANS;
    for Span { name, parent, fields, help } in spans::ALL {
        let parent = parent.map_or_else(|| "-".to_owned(), |outer| format!("`{outer}`"));
        writeln!(page, "| `{name}` | {parent} | {} | {help} |", fields.join(", ")).expect("a string takes all");
    }
    page += EVENTS;
    for Event { message, level, fields, help } in events::ALL {
        writeln!(page, "| {message} | {} | {} | {help} |", level.name(), fields.join(", "))
            .expect("a string takes all");
    }
    expect_file!["../../../../docs/reference/metrics.md"].assert_eq(&wrap(&page));
}

/// The text in lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= 120 => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

const HEAD: &str = "\
# Metrics, spans and log events

Generated from the table in `crates/kernel/src/signals.rs` by a test (`crates/kernel/tests/it/signals.rs`). Do not edit
it by hand: run that test with `UPDATE_EXPECT=1`. Another test runs the service and checks that it emits each signal.

## Metrics

Each process serves its own metrics at `/metrics`, in the Prometheus text format. If a metric is meant as a sum or a
maximum over processes, its text says so. No label names a workspace, an execution or a node. All names begin with
`forebay_`, except seven that are fixed by the source documents. The dashboard `deploy/grafana/forebay.json` and the
alerts `deploy/prometheus/alerts.yaml` use these metrics.
";

const SPANS: &str = "
## Spans

Forebay sends spans over OTLP/HTTP if `OTEL_EXPORTER_OTLP_ENDPOINT` is set; the other standard `OTEL_*` variables apply.
The execution stores the `traceparent` of its start request. Its run, its nodes and their requests belong to that trace,
also after a crash and in another process. Without a `traceparent`, the trace id is the execution's id.

| span | parent | fields | what it covers |
|---|---|---|---|
";

const EVENTS: &str = "
## Log events

Forebay logs to standard error, as text, or with `--log-format json` as one JSON object per line. The messages, levels
and fields below are stable. Other log lines may change. `{}` stands for a number or a name. An empty queue logs
nothing.

| message | level | fields | when |
|---|---|---|---|
";
