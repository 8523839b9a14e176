//! A small OTLP/HTTP collector, which receives spans as JSON and keeps them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A span as it came.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) fields: BTreeMap<String, Value>,
    /// The traces it is linked to.
    pub(crate) links: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    pub(crate) async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let collector = Collector { address, spans: Arc::default() };
        let router = Router::new().route("/v1/traces", post(take)).with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        collector
    }

    /// The standard variables that send spans here, soon.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.address)),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json".to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
        ]
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().clone()
    }
}

async fn take(State(collector): State<Collector>, Json(body): Json<Value>) -> Json<Value> {
    let mut spans = collector.spans.lock();
    for span in list(&body["resourceSpans"]).flat_map(|it| list(&it["scopeSpans"])).flat_map(|it| list(&it["spans"])) {
        let text = |field: &str| span[field].as_str().unwrap_or_default().to_owned();
        let field = |it: &Value| Some((it["key"].as_str()?.to_owned(), it["value"].clone()));
        spans.push(Span {
            name: text("name"),
            trace: text("traceId"),
            id: text("spanId"),
            parent: text("parentSpanId"),
            fields: list(&span["attributes"]).filter_map(field).collect(),
            links: list(&span["links"]).filter_map(|link| link["traceId"].as_str().map(str::to_owned)).collect(),
        });
    }
    Json(json!({}))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
