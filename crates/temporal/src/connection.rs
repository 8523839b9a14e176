//! The connection to Temporal: made when it is first needed, and again when making it failed.
//!
//! Invariants
//! - No call waits longer than it was given, and none is repeated behind our back: whether to repeat is the
//!   breaker's to say.
//! - A connection that was made once mends itself.
//!
//! Not here: what is sent (`client`), which search attributes there are (`attributes`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, GrpcCompression, RetryOptions, RpcOptions,
    TlsOptions, Url,
};
use tokio::sync::Mutex;

use crate::attributes::Attributes;
use crate::codec;
use crate::settings::Settings;

/// How long a connection may take to be made, with the first question that Temporal is asked.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a call may take.
pub(crate) const CALL: Duration = Duration::from_secs(5);

/// A connection, and what the namespace behind it knows.
pub(crate) struct Linked {
    pub(crate) client: Client,
    pub(crate) attributes: Attributes,
}

/// A connection that is there, or is to be made.
#[derive(Default)]
pub(crate) struct Link(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Unmade,
    Failed {
        at: Instant,
        reason: String,
    },
    Made(Arc<Linked>),
}

impl Link {
    /// The connection. Who waited while it could not be made is told why, instead of trying the same in turn.
    pub(crate) async fn get(&self, settings: &Settings) -> Result<Arc<Linked>, String> {
        let since = Instant::now();
        let mut state = self.0.lock().await;
        match &*state {
            State::Made(linked) => return Ok(Arc::clone(linked)),
            State::Failed { at, reason } if *at >= since => return Err(reason.clone()),
            State::Unmade | State::Failed { .. } => {}
        }
        match dial(settings).await {
            Ok(client) => {
                let linked = Arc::new(Linked { client, attributes: Attributes::unasked() });
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

/// Connects. Says why not in words that hold no secret.
pub(crate) async fn dial(settings: &Settings) -> Result<Client, String> {
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
        // Compressing costs more than it saves: 15 to 40 % of the rate of starts.
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

/// A server that misses a client's certificate only says so by its silence.
fn hint(error: &str) -> &'static str {
    let refused = ["connection closed", "CertificateRequired", "broken pipe", "connection reset"];
    match refused.iter().any(|sign| error.contains(sign)) {
        true => " (it may ask for a certificate: engine.temporal.client_cert_file)",
        false => "",
    }
}

/// What every call of ours carries: one try, with an end.
pub(crate) fn once() -> RpcOptions {
    RpcOptions::builder().timeout(CALL).retry_options(RetryOptions::no_retries()).build()
}

/// An error with what lies behind it.
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
