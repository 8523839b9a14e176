//! A TLS proxy in front of Temporal. It may require a client certificate and an API key, and it counts calls. The real
//! server behind it answers the calls that it accepts.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::temporal::server;

/// The name in the server's certificate.
pub(crate) const NAME: &str = "temporal.test";

/// Who is let through.
#[derive(Clone, Default)]
pub(crate) struct Demands {
    pub(crate) tls: bool,
    pub(crate) certificate: bool,
    pub(crate) key: Option<String>,
    /// This method is let through from its second call on.
    pub(crate) shy: Option<&'static str>,
}

pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    files: tempfile::TempDir,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    calls: Mutex<BTreeMap<String, usize>>,
    credentials: Mutex<BTreeSet<String>>,
}

type Answer = Response<Either<Incoming, Empty<Bytes>>>;

impl Gate {
    pub(crate) async fn start(demands: Demands) -> Gate {
        let files = tempfile::tempdir().expect("a directory");
        let acceptor = demands.tls.then(|| tls(&files, demands.certificate));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let (noted, key, shy) = (Arc::clone(&seen), demands.key, demands.shy);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen, key) = (acceptor.clone(), Arc::clone(&noted), key.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => pass(stream, seen, key, shy).await,
                        // One that does not get through sees its connection end.
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                pass(stream, seen, key, shy).await;
                            }
                        }
                    }
                });
            }
        });
        Gate { address, files, seen }
    }

    /// The settings that find it and believe it: its address, its authority and its name.
    pub(crate) fn settings(&self) -> Vec<String> {
        vec![
            format!("engine.temporal.address=https://{}", self.address),
            format!("engine.temporal.ca_file={}", self.file("ca.pem")),
            format!("engine.temporal.server_name={NAME}"),
        ]
    }

    /// The settings with which a client shows its certificate.
    pub(crate) fn certificate(&self) -> Vec<String> {
        let (certificate, key) = (self.file("client.pem"), self.file("client.key"));
        vec![
            format!("engine.temporal.client_cert_file={certificate}"),
            format!("engine.temporal.client_key_file={key}"),
        ]
    }

    /// A file beside its certificates, with this in it.
    pub(crate) fn keep(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).expect("a file");
        self.file(name)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, method: &str) -> usize {
        let calls = self.seen.calls.lock();
        calls.iter().filter(|(path, _)| path.ends_with(&format!("/{method}"))).map(|(_, count)| count).sum()
    }

    /// Every `authorization` that was shown, none as an empty one.
    pub(crate) fn credentials(&self) -> Vec<String> {
        self.seen.credentials.lock().iter().cloned().collect()
    }
}

/// An authority, and certificates by it for the server and for a client.
fn tls(files: &tempfile::TempDir, certificate: bool) -> TlsAcceptor {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    // Two authorities of one name would differ in their signatures alone.
    params.distinguished_name.push(DnType::CommonName, store::new_id().to_string());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("an authority");
    let issuer = Issuer::new(params, key);
    let issue = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        (params.signed_by(&key, &issuer).expect("a certificate"), key)
    };
    let ((server, server_key), (client, client_key)) = (issue(NAME), issue("forebay.test"));
    for (name, text) in
        [("ca.pem", authority.pem()), ("client.pem", client.pem()), ("client.key", client_key.serialize_pem())]
    {
        fs::write(files.path().join(name), text).expect("a file");
    }
    let config = match certificate {
        false => rustls::ServerConfig::builder().with_no_client_auth(),
        true => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone()).expect("an authority");
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().expect("a verifier");
            rustls::ServerConfig::builder().with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
    let mut config = config.with_single_cert(vec![server.der().clone()], key).expect("a configuration");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Passes one connection's calls on.
async fn pass(
    near: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    seen: Arc<Seen>,
    key: Option<String>,
    shy: Option<&'static str>,
) {
    let target = server().trim_start_matches("http://").to_owned();
    let Ok(far) = TcpStream::connect(&target).await else { return };
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(far)).await;
    let Ok((sender, connection)) = handshake else { return };
    tokio::spawn(connection);
    let service = service_fn(move |request| {
        let allowed = seen.note(&request, key.as_deref(), shy);
        forward(sender.clone(), target.clone(), request, allowed)
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ended = served.serve_connection(TokioIo::new(near), service).await;
}

impl Seen {
    /// Notes a call; answers whether it may pass.
    fn note(&self, request: &Request<Incoming>, key: Option<&str>, shy: Option<&str>) -> bool {
        let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.credentials.lock().insert(shown.to_owned());
        let path = request.uri().path().to_owned();
        let shy = shy.is_some_and(|method| path.ends_with(&format!("/{method}")));
        let mut calls = self.calls.lock();
        let count = calls.entry(path).or_default();
        *count += 1;
        !(shy && *count == 1) && key.is_none_or(|key| shown == format!("Bearer {key}"))
    }
}

async fn forward(
    mut sender: SendRequest<Incoming>,
    target: String,
    mut request: Request<Incoming>,
    allowed: bool,
) -> Result<Answer, hyper::Error> {
    if !allowed {
        let answer = Response::builder().header("content-type", "application/grpc").header("grpc-status", "16");
        let answer = answer.header("grpc-message", "this key is not known").body(Either::Right(Empty::new()));
        return Ok(answer.expect("an answer"));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("http://{target}{path}").parse::<Uri>().expect("an address");
    Ok(sender.send_request(request).await?.map(Either::Left))
}
