//! Where logs and spans go: logs to standard error, spans to an OTLP collector if the standard OpenTelemetry variables
//! name one.
//!
//! Invariants
//! - Nothing is sent anywhere unless `OTEL_EXPORTER_OTLP_ENDPOINT`, or its form for traces, is set.
//! - If the collector cannot be reached, spans are lost and the service continues.
//!
//! Not here: the table of signals (`kernel::signals`).

use anyhow::{Context, bail};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use server::config::{Log, LogFormat};
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::exit::usage_error;
use crate::output;

/// The crates whose spans are sent. Spans of other crates are not sent.
const TRACED: [&str; 4] = ["engine", "server", "store", "temporal"];

/// Sends the remaining spans when the service stops.
#[derive(Debug)]
pub(crate) struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts logging and, if a collector is configured, tracing.
    pub(crate) fn start(log: &Log, usual: &str) -> anyhow::Result<Telemetry> {
        let filter = log.filter.as_deref().unwrap_or(usual);
        let invalid = |error| {
            let hint = "write for example info,store=debug";
            usage_error(format!("invalid log filter {filter:?} (--log or log.filter): {error}; {hint}"))
        };
        // Below the level `warn`, the database driver logs the notices of the server, and the parameters of every
        // statement, which may be customers' inputs. So these levels are on only if the filter names the driver.
        let quiet = if filter.contains("tokio_postgres") { "" } else { ",tokio_postgres=warn" };
        let filter = EnvFilter::try_new(format!("{filter}{quiet}")).map_err(invalid)?;
        // Colors are only for terminals: a file or a journal would keep the escape codes.
        let color = output::StreamStyle::stderr(false).color;
        let lines = tracing_subscriber::fmt::layer().with_ansi(color).with_writer(std::io::stderr);
        let lines = match log.format {
            LogFormat::Json => lines.json().with_filter(filter).boxed(),
            LogFormat::Text => lines.with_filter(filter).boxed(),
        };
        let provider = provider()?;
        let spans = provider.as_ref().map(|provider| {
            let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("forebay")).with_location(false);
            layer.with_filter(LevelFilter::DEBUG).with_filter(filter_fn(is_traced))
        });
        tracing_subscriber::registry().with(lines).with(spans).init();
        Ok(Telemetry { provider })
    }

    /// Sends the remaining spans. Called after the service has stopped.
    pub(crate) fn stop(self) {
        if let Some(provider) = self.provider
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(error = %error, "Some spans could not be sent to the OTLP endpoint");
        }
    }
}

fn is_traced(metadata: &Metadata<'_>) -> bool {
    let root = metadata.target().split("::").next().unwrap_or_default();
    metadata.is_span() && TRACED.contains(&root)
}

fn provider() -> anyhow::Result<Option<SdkTracerProvider>> {
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let endpoint = given("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| given("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let disabled = given("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let exporter = given("OTEL_TRACES_EXPORTER");
    if endpoint.is_none() || disabled || exporter.as_deref() == Some("none") {
        return Ok(None);
    }
    let protocol = given("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| given("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if protocol.as_deref() == Some("grpc") {
        bail!("OTEL_EXPORTER_OTLP_PROTOCOL is grpc, which is not supported: set it to http/protobuf or http/json");
    }
    let exporter: Result<SpanExporter, ExporterBuildError> = SpanExporter::builder().with_http().build();
    let exporter = exporter.context("set up the export of spans (OTEL_EXPORTER_OTLP_*)")?;
    let mut resource = Resource::builder();
    if given("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("forebay");
    }
    let resource =
        resource.with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
    Ok(Some(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()))
}
