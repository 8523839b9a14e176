//! Connections: how a URL becomes a pool, and the options of every session.
//!
//! Invariants
//! - No session waits forever: idle transactions, statements and lock waits have timeouts.
//! - Correctness never depends on session state. Only LISTEN and the heartbeat use connections of their own.
//!
//! Not here: the statements (`Store`).

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

/// Session options. Sequential scans are off, because PostgreSQL keeps a plan that it made for an empty queue while the
/// table fills. A small statistics target is enough to estimate a table's size. The search path is empty, so that a
/// name without its schema fails in the first test that runs it.
const SESSION: &str = "-c search_path= -c idle_in_transaction_session_timeout=10s -c statement_timeout=30s \
    -c lock_timeout=5s \
    -c jit=off -c enable_seqscan=off -c random_page_cost=1.1 -c default_statistics_target=10";

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseUrlError {
    #[error("the database URL is invalid: {0}")]
    Malformed(tokio_postgres::Error),
    #[error("the database URL requires TLS, but no certificate authority is installed on this machine")]
    NoAuthorities,
    #[error("TLS setup failed: {0}")]
    Tls(#[from] rustls::Error),
    #[error("failed to build the connection pool: {0}")]
    Pool(String),
}

/// The address of the database, ready for connections.
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
    /// Parses a URL such as `postgresql://user:password@host/database?sslmode=require`.
    pub fn new(url: &str) -> Result<Target, DatabaseUrlError> {
        let mut config = Config::from_str(url).map_err(DatabaseUrlError::Malformed)?;
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
    pub fn pool(&self, size: usize) -> Result<Pool, DatabaseUrlError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match &self.tls {
            Some(tls) => Manager::from_config(self.config.clone(), tls.clone(), recycling),
            None => Manager::from_config(self.config.clone(), NoTls, recycling),
        };
        Pool::builder(manager)
            .max_size(size)
            // The connection that was used last has its plans and pages cached, so it is used again first.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(Duration::from_secs(5)))
            .create_timeout(Some(Duration::from_secs(5)))
            .recycle_timeout(Some(Duration::from_secs(5)))
            .build()
            .map_err(|error| DatabaseUrlError::Pool(error.to_string()))
    }

    /// Opens one connection outside any pool. The task that drives it ends with it.
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

    /// Opens one connection whose notifications arrive in the returned receiver. The receiver closes with the
    /// connection.
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

/// With `sslmode=prefer`, the default, TLS is used if the server offers it. An attacker could remove that offer, so
/// checking a certificate would prove nothing, and none is checked. With `sslmode=require`, the certificate is checked
/// against this machine's certificate authorities.
fn tls(config: &Config) -> Result<MakeRustlsConnect, DatabaseUrlError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let client = if config.get_ssl_mode() == SslMode::Require {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(DatabaseUrlError::NoAuthorities);
        }
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        let anybody = Arc::new(Anybody { provider });
        builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(client))
}

/// Accepts any certificate, for `sslmode=prefer`.
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
