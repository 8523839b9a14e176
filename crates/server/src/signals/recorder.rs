//! The process's metrics: one recorder, with the type, buckets and meaning of each from the table.
//!
//! Invariants
//! - Counters without labels are there from the start, at zero: a rate has its first point.
//! - What histograms gather is folded regularly, so that it takes no more memory when nobody scrapes.
//!
//! Not here: the table (`kernel::signals`), counting (whoever does the work).

use std::sync::OnceLock;
use std::time::Duration;

use kernel::signals::{Kind, metrics};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use store::Store;
use tokio_util::sync::CancellationToken;

/// How often what histograms gathered is folded.
const FOLD_EVERY: Duration = Duration::from_secs(5);

/// The recorder, installed by the first call, however many services run in this process.
pub(crate) fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        if ::metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("Another metrics recorder is installed; /metrics stays empty");
        }
        describe();
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
                if *metric == metrics::STUCK {
                    for why in ["idle", "failing"] {
                        ::metrics::gauge!(metric.name, "why" => why).set(0.0);
                    }
                }
            }
            Kind::Histogram(_) => ::metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// Folds what histograms gathered until told to stop.
pub(crate) async fn fold(stop: CancellationToken) {
    loop {
        recorder().run_upkeep();
        tokio::select! { () = tokio::time::sleep(FOLD_EVERY) => {}, () = stop.cancelled() => return }
    }
}

/// How a pool is used, as it is at this moment.
pub(crate) fn pool(name: &'static str, store: &Store) {
    let used = store.pool_use();
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    for (state, connections) in [("in_use", used.in_use), ("idle", used.idle), ("max", used.max)] {
        ::metrics::gauge!(metrics::POOL_CONNECTIONS.name, "pool" => name, "state" => state).set(count(connections));
    }
    ::metrics::gauge!(metrics::POOL_WAITING.name, "pool" => name).set(count(used.waiting));
}
