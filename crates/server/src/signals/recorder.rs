//! The process's one metrics recorder. It takes the type, buckets and help text of each metric from the table of
//! metrics.
//!
//! Invariants
//! - Counters without labels exist from the start, at zero, so that Prometheus can compute a rate from the first
//!   increment.
//! - The samples of histograms are aggregated into buckets regularly. Otherwise they would use more and more memory
//!   while nothing scrapes the metrics.
//!
//! Not here: the table of metrics (`kernel::signals`), recording values (the module of each feature).

use std::sync::OnceLock;
use std::time::Duration;

use kernel::signals::{Kind, metrics};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use store::Store;
use tokio_util::sync::CancellationToken;

/// How often the samples of histograms are aggregated.
const AGGREGATE_EVERY: Duration = Duration::from_secs(5);

/// The recorder of this process. The first call installs it.
pub(crate) fn global_recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        if ::metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("Another metrics recorder is already installed in this process; /metrics stays empty");
        }
        describe();
        let release = store::release::NUMBER.to_string();
        ::metrics::gauge!(metrics::BUILD_INFO.name, "version" => env!("CARGO_PKG_VERSION"), "release" => release)
            .set(1.0);
        handle
    })
}

fn builder() -> PrometheusBuilder {
    metrics::ALL.iter().fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
        Kind::Histogram(buckets) => builder
            .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
            .expect("every histogram of the table has buckets"),
        Kind::Counter | Kind::Gauge => builder,
    })
}

fn describe() {
    for metric in metrics::ALL {
        match metric.kind {
            Kind::Counter => {
                ::metrics::describe_counter!(metric.name, metric.help);
                if metric.labels.is_empty() {
                    ::metrics::counter!(metric.name).absolute(0);
                }
            }
            Kind::Gauge => {
                ::metrics::describe_gauge!(metric.name, metric.help);
                if *metric == metrics::BREAKER_STATE {
                    ::metrics::gauge!(metric.name).set(0.0);
                }
                if *metric == metrics::RUNS_STUCK {
                    for reason in ["no_worker", "worker_failing"] {
                        ::metrics::gauge!(metric.name, "reason" => reason).set(0.0);
                    }
                }
            }
            Kind::Histogram(_) => ::metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// Aggregates the samples of histograms until `stop` is cancelled.
pub(crate) async fn aggregate_periodically(stop: CancellationToken) {
    loop {
        global_recorder().run_upkeep();
        tokio::select! { () = tokio::time::sleep(AGGREGATE_EVERY) => {}, () = stop.cancelled() => return }
    }
}

/// Publishes how many connections of a pool are in use at this moment.
pub(crate) fn publish_pool_metrics(name: &'static str, store: &Store) {
    let used = store.pool_use();
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    for (state, connections) in [("in_use", used.in_use), ("idle", used.idle), ("max", used.max)] {
        ::metrics::gauge!(metrics::POOL_CONNECTIONS.name, "pool" => name, "state" => state).set(count(connections));
    }
    ::metrics::gauge!(metrics::POOL_WAITING.name, "pool" => name).set(count(used.waiting));
}
