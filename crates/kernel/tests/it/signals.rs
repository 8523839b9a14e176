//! The table of signals: well formed, and written down in `docs/metrics.md`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use expect_test::expect_file;
use kernel::run::failure::Class;
use kernel::signals::{Event, Kind, Metric, Span, events, metrics, spans};

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
fn names_are_plain_and_each_is_there_once() {
    let names: Vec<&str> = metrics::ALL.iter().map(|metric| metric.name).collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len());
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    for Metric { name, kind, labels, help, act } in metrics::ALL {
        assert!(plain(name) && labels.iter().all(|label| plain(label)), "{name}");
        assert!(help.ends_with('.') && act.ends_with('.') && !help.contains('\n'), "{name}: whole sentences");
        if let Kind::Histogram(buckets) = kind {
            assert!(!buckets.is_empty() && buckets.is_sorted(), "{name}: {buckets:?}");
        }
    }
    for Span { name, within, .. } in spans::ALL {
        assert!(within.is_none_or(|outer| spans::ALL.iter().any(|span| span.name == outer)), "{name}");
    }
}

#[test]
fn a_message_is_recognised_with_anything_in_its_gap() {
    let Event { message, .. } = events::PROCESSING;
    assert_eq!(events::PROCESSING.filled(7), "Processing 7 queue items");
    assert!(events::PROCESSING.is("Processing 7 queue items") && !events::PROCESSING.is("Processing  items"));
    assert!(!events::PROCESSING.is("Processing queue items"), "{message} without anything in its gap");
    assert!(events::AT_CAPACITY.is("Workspace at capacity") && !events::AT_CAPACITY.is("Workspace at capacity!"));
}

#[test]
fn a_reason_is_the_name_that_failures_have_on_the_wire() {
    for class in CLASSES {
        assert_eq!(serde_json::to_value(class).expect("a name"), class.name());
    }
}

#[test]
fn the_page_of_signals_is_written_down() {
    let mut page = HEAD.to_owned();
    let labels =
        |metric: &Metric| metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    for metric in metrics::ALL {
        let kind = metric.kind.name();
        let by = if metric.labels.is_empty() { String::new() } else { format!(" by {}", labels(metric)) };
        let Metric { name, help, act, .. } = metric;
        write!(page, "\n### `{name}`\n\n{kind}{by}. {help}\n\n*What to do.* {act}\n").expect("a string takes all");
    }
    page += SPANS;
    for Span { name, within, fields, help } in spans::ALL {
        let within = within.map_or_else(|| "-".to_owned(), |outer| format!("`{outer}`"));
        writeln!(page, "| `{name}` | {within} | {} | {help} |", fields.join(", ")).expect("a string takes all");
    }
    page += EVENTS;
    for Event { message, level, fields, help } in events::ALL {
        writeln!(page, "| {message} | {} | {} | {help} |", level.name(), fields.join(", "))
            .expect("a string takes all");
    }
    expect_file!["../../../../docs/metrics.md"].assert_eq(&page);
}

const HEAD: &str = "\
# Signals

Made from the table in `crates/kernel/src/signals.rs` by the test `signals` (`crates/kernel/tests/it/signals.rs`); do
not edit by hand. `UPDATE_EXPECT=1` writes this page anew. Another test runs the service and finds each of these.

## Metrics

At `/metrics`, as Prometheus text. Every process tells of itself; where a sum or a maximum over processes is meant, the
metric says so. No label names a workspace, an execution or a node. The dashboard in `deploy/grafana/forebay.json` and
the alerts in `deploy/prometheus/alerts.yaml` use these names.
";

const SPANS: &str = "
## Spans

Sent over OTLP/HTTP when `OTEL_EXPORTER_OTLP_ENDPOINT` is set; the other standard `OTEL_*` variables apply. A start
request's `traceparent` is kept with the execution: its run, its nodes and what they send out belong to that trace, also
after a crash and in another process. Without one, the trace's id is the execution's.

| span | within | fields | what it is |
|---|---|---|---|
";

const EVENTS: &str = "
## Log events

On standard error, as text or, with `--log-format json`, one object a line. These messages, levels and fields stay; other
lines are for people and may change. `{}` stands for a number or a name. An empty queue logs nothing.

| message | level | fields | when |
|---|---|---|---|
";
