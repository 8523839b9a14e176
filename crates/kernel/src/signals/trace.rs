//! W3C trace context: the trace that a request or an execution belongs to, and its parent span.
//!
//! Invariants
//! - A header that cannot be parsed is ignored. It never fails a request.
//! - If the start request has no context, the trace id is derived from the execution id. So all calls of the execution,
//!   before and after any crash, belong to one trace.
//!
//! Not here: recording spans and sending them (`engine::trace`, `app`).

use std::fmt;

use crate::ids::ExecutionId;

/// The content of a `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: u128,
    pub span_id: u64,
    /// The sender records the trace.
    pub sampled: bool,
}

/// The length of version, trace id, span id and flags, with three dashes.
const LEN: usize = 55;

impl TraceParent {
    /// Reads a header. A newer version of the format is read like version 00, as the standard requires.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let text = text.trim();
        let (head, rest) = text.split_at_checked(LEN)?;
        let mut parts = head.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let newer = version != "00";
        let ends_well = if newer { rest.is_empty() || rest.starts_with('-') } else { rest.is_empty() };
        if parts.next().is_some() || version == "ff" || !ends_well {
            return None;
        }
        hex(version, 2)?;
        let found = TraceParent {
            trace_id: hex(trace, 32)?,
            span_id: u64::try_from(hex(span, 16)?).ok()?,
            sampled: hex(flags, 2)? & 1 == 1,
        };
        (found.trace_id != 0 && found.span_id != 0).then_some(found)
    }

    /// The context of an execution whose start request has no trace context.
    pub fn of_execution(execution: ExecutionId) -> TraceParent {
        let (_, low) = execution.0.as_u64_pair();
        TraceParent { trace_id: execution.0.as_u128(), span_id: low.max(1), sampled: false }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// Reads exactly this many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let good = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(good)).then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written_back() {
        for text in [GOOD, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"] {
            assert_eq!(TraceParent::parse(text).map(|it| it.to_string()), Some(text.to_owned()));
        }
        let newer = TraceParent::parse("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more");
        assert_eq!(newer, TraceParent::parse(GOOD));
    }

    #[test]
    fn what_cannot_be_read_is_no_context() {
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-é",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_execution_without_a_context_belongs_to_the_trace_of_its_id() {
        let id = ExecutionId("0198c2a4-7d1e-7c3a-9b1f-0a1b2c3d4e5f".parse().expect("an id"));
        let own = TraceParent::of_execution(id).to_string();
        assert_eq!(own, "00-0198c2a47d1e7c3a9b1f0a1b2c3d4e5f-9b1f0a1b2c3d4e5f-00");
        assert!(TraceParent::parse(&own).is_some());
    }
}
