//! Connections: how a URL becomes a pool, and what every session is told.
//!
//! Invariants
//! - No session waits for ever: idle transactions, statements and locks are all bounded.
//! - Strictness never depends on session state; only LISTEN and the heartbeat use a connection of their own.
//!
//! Not here: who asks for what (`Store`).

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
pub use tokio_postgres::Client;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

/// What a session is told at its start. Whatever statistics say of an empty queue, its rows are found
/// by an index: a plan is kept while the table fills. A small sample says how large a table is. Without a search path
/// a name that lacks its schema fails in the first test that meets it.
const SESSION: &str = "-c search_path= -c idle_in_transaction_session_timeout=10s -c statement_timeout=30s \
    -c lock_timeout=5s \
    -c jit=off -c enable_seqscan=off -c random_page_cost=1.1 -c default_statistics_target=10";

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    #[error("the database URL cannot be read: {0}")]
    Malformed(tokio_postgres::Error),
    #[error("no certificate authority was found on this machine, and the database URL asks for TLS")]
    NoAuthorities,
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the connection pool cannot be built: {0}")]
    Pool(String),
}

/// Where the database is, ready to be connected to.
#[derive(Clone)]
pub struct Target {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

impl Target {
    /// Reads a URL such as `postgresql://user:password@host/database?sslmode=require`.
    pub fn new(url: &str) -> Result<Target, UrlError> {
        let mut config = Config::from_str(url).map_err(UrlError::Malformed)?;
        if config.get_application_name().is_none() {
            config.application_name("forebay");
        }
        let options = match config.get_options() {
            Some(given) => format!("{SESSION} {given}"),
            None => SESSION.to_owned(),
        };
        config.options(&options);
        config.connect_timeout(Duration::from_secs(5));
        config.keepalives_idle(Duration::from_secs(15));
        config.tcp_user_timeout(Duration::from_secs(20));
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let tls = if local || config.get_ssl_mode() == SslMode::Disable { None } else { Some(tls(&config)?) };
        Ok(Target { config, tls })
    }

    /// A pool of at most `size` connections.
    pub fn pool(&self, size: usize) -> Result<Pool, UrlError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &self.tls {
            Some(tls) => Manager::from_config(self.config.clone(), tls.clone(), recycling),
            None => Manager::from_config(self.config.clone(), NoTls, recycling),
        };
        Pool::builder(manager)
            .max_size(size)
            // The one used last has its plans and pages at hand; the others rest.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(5)))
            .create_timeout(Some(Duration::from_secs(5)))
            .recycle_timeout(Some(Duration::from_secs(5)))
            .build()
            .map_err(|error| UrlError::Pool(error.to_string()))
    }

    /// One connection outside any pool; the task that drives it ends with it.
    pub async fn connect(&self) -> Result<Client, Error> {
        Ok(match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(connection);
                client
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(connection);
                client
            }
        })
    }

    /// One connection whose notifications come out of the returned receiver; it closes with the connection.
    pub async fn listen(
        &self,
        channels: &[&str],
    ) -> Result<(Client, tokio::sync::mpsc::UnboundedReceiver<String>), Error> {
        let (send, receive) = tokio::sync::mpsc::unbounded_channel();
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(forward(connection, send));
                client
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(forward(connection, send));
                client
            }
        };
        for channel in channels {
            client.batch_execute(&format!("LISTEN {channel}")).await?;
        }
        Ok((client, receive))
    }
}

async fn forward<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    send: tokio::sync::mpsc::UnboundedSender<String>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        if let tokio_postgres::AsyncMessage::Notification(notification) = message
            && send.send(notification.payload().to_owned()).is_err()
        {
            return;
        }
    }
}

/// `prefer`, the default, takes what the server offers: nothing is proven by it, so no certificate
/// is asked for. `require` is checked against this machine's authorities.
fn tls(config: &Config) -> Result<MakeRustlsConnect, UrlError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let client = if config.get_ssl_mode() == SslMode::Require {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(UrlError::NoAuthorities);
        }
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        let anybody = Arc::new(Anybody { provider });
        builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(client))
}

/// Takes any certificate, for connections that need not be encrypted at all.
#[derive(Debug)]
struct Anybody {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
