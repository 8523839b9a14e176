//! Passes trace context between the store, the spans of this process and the network.
//!
//! Invariants
//! - Nothing here fails. If spans are not recorded, the context is passed on unchanged.
//!
//! Not here: parsing and formatting trace context (`kernel::signals::trace`), recording and sending spans (`app`).

use kernel::signals::trace::TraceParent;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Makes a span the child of a trace context from outside this process. The span must not have been entered yet.
pub fn put_below(span: &Span, parent: TraceParent) {
    // Fails only if spans are not recorded at all.
    let _unrecorded = span.set_parent(Context::new().with_remote_span_context(context(parent)));
}

/// Links a span to another trace.
pub fn link(span: &Span, other: TraceParent) {
    span.add_link(context(other));
}

/// The trace context of a span. None if spans are not recorded.
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
