//! Trace context between the store, the spans of this process and the wire.
//!
//! Invariants
//! - Nothing here fails: where no spans are recorded, context is passed on as it came.
//!
//! Not here: reading and writing it (`kernel::signals::trace`), recording and sending spans (`app`).

use kernel::signals::trace::TraceParent;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Puts a span that was not entered yet below a context from elsewhere.
pub fn put_below(span: &Span, parent: TraceParent) {
    // Refused only where spans are not recorded at all.
    let _unrecorded = span.set_parent(Context::new().with_remote_span_context(context(parent)));
}

/// Notes that a span has to do with another trace.
pub fn link(span: &Span, other: TraceParent) {
    span.add_link(context(other));
}

/// The context of a span, if spans are recorded.
pub fn of(span: &Span) -> Option<TraceParent> {
    let context = span.context();
    let context = context.span().span_context().clone();
    context.is_valid().then(|| TraceParent {
        trace_id: u128::from_be_bytes(context.trace_id().to_bytes()),
        span_id: u64::from_be_bytes(context.span_id().to_bytes()),
        sampled: context.is_sampled(),
    })
}

fn context(parent: TraceParent) -> SpanContext {
    let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (TraceId::from(parent.trace_id), SpanId::from(parent.span_id));
    SpanContext::new(trace, span, flags, true, TraceState::default())
}
