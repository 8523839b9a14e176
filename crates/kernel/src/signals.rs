//! What the service tells its operators: every metric, span and log event, in one table.
//!
//! Invariants
//! - Names, types, labels, levels and fields here are a contract; code uses these constants, and a
//!   test walks the table against a running service.
//! - No label has a value per workspace, execution or node: what grows with the tenants is no label.
//!
//! Not here: counting and logging (`engine`, `server`), the page that is made of this
//! (`docs/metrics.md`), other log lines, which are for people and may change.

pub mod events;
pub mod metrics;
pub mod spans;
pub mod trace;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Counter,
    Gauge,
    /// With the upper bounds of its buckets.
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
    /// What to do about it.
    pub act: &'static str,
}

/// A span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub name: &'static str,
    /// The span it lies in.
    pub within: Option<&'static str>,
    pub fields: &'static [&'static str],
    pub help: &'static str,
}

/// How loud a log event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// A log event. `{}` in its message stands for a number or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub message: &'static str,
    pub level: Level,
    pub fields: &'static [&'static str],
    pub help: &'static str,
}

impl Kind {
    /// As `# TYPE` says it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "ERROR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Debug => "DEBUG",
        }
    }
}

impl Event {
    /// The message with something in its gap.
    pub fn filled(&self, with: impl std::fmt::Display) -> String {
        self.message.replacen("{}", &with.to_string(), 1)
    }

    /// Is this text such a message?
    pub fn is(&self, text: &str) -> bool {
        match self.message.split_once("{}") {
            Some((head, tail)) => {
                text.len() > head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
            }
            None => text == self.message,
        }
    }
}
