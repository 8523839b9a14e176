//! The connection to Temporal: opened when it is first needed, and retried after a failure.
//!
//! Invariants
//! - No call waits longer than its time limit. The SDK retries no call by itself: the breaker decides about retries.
//! - An established connection reconnects by itself.
//!
//! Not here: the requests (`client`), the known search attributes (`search_attributes`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use temporalio_client::tonic::Request;
use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, GrpcCompression, RetryOptions, RpcOptions,
    TlsOptions, Url,
};
use tokio::sync::Mutex;

use crate::codec;
use crate::search_attributes::SearchAttributeNames;
use crate::settings::TemporalSettings;

/// Time limit for connecting, including the first request to Temporal.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit of a call.
const CALL: Duration = Duration::from_secs(5);

/// A connection, and what is known about its namespace.
pub(crate) struct NamespaceClient {
    pub(crate) client: Client,
    pub(crate) attributes: SearchAttributeNames,
}

/// A connection, open or still to be opened.
#[derive(Default)]
pub(crate) struct LazyConnection(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Unmade,
    Failed {
        at: Instant,
        reason: String,
    },
    Made(Arc<NamespaceClient>),
}

impl LazyConnection {
    /// Returns the connection. If several callers wait for one attempt to connect and it fails, all get its error.
    pub(crate) async fn get(&self, settings: &TemporalSettings) -> Result<Arc<NamespaceClient>, String> {
        let since = Instant::now();
        let mut state = self.0.lock().await;
        match &*state {
            State::Made(linked) => return Ok(Arc::clone(linked)),
            State::Failed { at, reason } if *at >= since => return Err(reason.clone()),
            State::Unmade | State::Failed { .. } => {}
        }
        match dial(settings).await {
            Ok(client) => {
                let linked = Arc::new(NamespaceClient { client, attributes: SearchAttributeNames::unread() });
                linked.attributes.names(&linked.client).await;
                *state = State::Made(Arc::clone(&linked));
                Ok(linked)
            }
            Err(reason) => {
                *state = State::Failed { at: Instant::now(), reason: reason.clone() };
                Err(reason)
            }
        }
    }
}

/// Connects. The error text contains no secret.
pub(crate) async fn dial(settings: &TemporalSettings) -> Result<Client, String> {
    let address = Url::parse(&settings.address).map_err(|error| format!("engine.temporal.address: {error}"))?;
    let tls = (address.scheme() == "https").then(|| {
        let pair = settings.tls.client_pem.clone();
        let client =
            pair.map(|(cert, key)| ClientTlsOptions::builder().client_cert(cert).client_private_key(key).build());
        TlsOptions::builder()
            .maybe_server_root_ca_cert(settings.tls.ca_pem.clone())
            .maybe_domain(settings.tls.server_name.clone())
            .maybe_client_tls_options(client)
            .build()
    });
    let connection = ConnectionOptions::new(address)
        .identity(format!("forebay-{}", std::process::id()))
        .connect_timeout(CONNECT / 2)
        // Compression costs more than it saves: 15 to 40 % of the rate of starts.
        .grpc_compression(GrpcCompression::None)
        .maybe_tls_options(tls)
        .maybe_api_key(settings.api_key.clone())
        .build();
    let options =
        ClientOptions::new(settings.namespace.clone()).data_converter(codec::converter(&settings.keys)).build();
    let connect = async {
        let connection = Connection::connect(connection).await.map_err(|error| chain(&error))?;
        Client::new(connection, options).map_err(|error| chain(&error))
    };
    match tokio::time::timeout(CONNECT, connect).await {
        Ok(connected) => connected.map_err(|error| {
            let hint = if settings.tls.client_pem.is_none() { hint(&error) } else { "" };
            format!("Temporal at {}: {error}{hint}", settings.address)
        }),
        Err(_) => Err(format!("Temporal at {} did not answer within {} s", settings.address, CONNECT.as_secs())),
    }
}

/// A hint for the error text of a server that requires a client certificate: it just closes the connection.
fn hint(error: &str) -> &'static str {
    let refused = ["connection closed", "CertificateRequired", "broken pipe", "connection reset"];
    match refused.iter().any(|sign| error.contains(sign)) {
        true => " (the server may require a client certificate: set engine.temporal.client_cert_file)",
        false => "",
    }
}

/// The options of every call: one attempt, with a time limit.
pub(crate) fn once() -> RpcOptions {
    RpcOptions::builder().timeout(CALL).retry_options(RetryOptions::no_retries()).build()
}

/// A request with a time limit.
pub(crate) fn timed<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    request.set_timeout(CALL);
    request
}

/// An error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        let behind_it = behind.to_string();
        if !text.contains(&behind_it) {
            text = format!("{text}: {behind_it}");
        }
        source = behind.source();
    }
    text
}
