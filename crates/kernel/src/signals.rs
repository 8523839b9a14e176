//! What operators can observe: every metric, span and log event, in one table.
//!
//! Invariants
//! - Names, types, labels, levels and fields are a public contract. The code uses these constants, and a test compares
//!   the table with a running service.
//! - No label has a value for each workspace, execution or node. So the number of series does not grow with the number
//!   of workspaces.
//!
//! Not here: counting and logging (`engine`, `server`), the page that is generated from this table
//! (`docs/reference/metrics.md`), and all other log lines, which are no contract and may change.

pub mod events;
pub mod metrics;
pub mod spans;
pub mod trace;

use crate::names::names;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Counter,
    Gauge,
    /// Holds the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// What it measures.
    pub help: &'static str,
    /// What an operator should do about its values.
    pub action: &'static str,
}

/// A span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub name: &'static str,
    /// The name of its parent span.
    pub parent: Option<&'static str>,
    pub fields: &'static [&'static str],
    pub help: &'static str,
}

names! {
    /// The level of a log event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Level { Error = "ERROR", Warn = "WARN", Info = "INFO", Debug = "DEBUG" }
}

/// A log event. Its message may have the placeholder `{}` for a number or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub message: &'static str,
    pub level: Level,
    pub fields: &'static [&'static str],
    pub help: &'static str,
}

impl Kind {
    /// The name in the `# TYPE` line of the Prometheus text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

impl Event {
    /// The message with its placeholder replaced by `value`.
    pub fn message_with(&self, value: impl std::fmt::Display) -> String {
        self.message.replacen("{}", &value.to_string(), 1)
    }

    /// Does this text match the message, with any value in the placeholder?
    pub fn matches(&self, text: &str) -> bool {
        match self.message.split_once("{}") {
            Some((head, tail)) => {
                text.len() > head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
            }
            None => text == self.message,
        }
    }
}
