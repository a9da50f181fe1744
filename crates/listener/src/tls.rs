//! TLS from two PEM files, which can be replaced while the server runs.
//!
//! Why:        certificates are renewed every few weeks; that must not need a restart.
//! Invariants: T1 a certificate and key are used only after they were checked against each other; a bad pair leaves the
//!                old one in use.
//!             T2 a connection keeps the certificate that it began with.
//! Not here:   obtaining certificates, who is trusted where the caller brings its own configuration (`Tls::of`).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use margay_env::{Env, files};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::TlsError;
use crate::validity::not_after;

/// How often the two files are checked for changes.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Largest PEM file, in bytes.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// Accepts TLS connections; cheap to clone.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    /// `None`: the configuration came from the caller, and stays.
    files: Option<Arc<State>>,
    plain: Plain,
    failed: Option<Failed>,
}

/// Told of a handshake that failed.
type Failed = Arc<dyn Fn(SocketAddr, &io::Error) + Send + Sync>;

/// What becomes of a connection whose first byte is not that of a handshake.
#[derive(Clone, Debug)]
pub enum Plain {
    /// The handshake fails.
    Fails,
    /// It is served without TLS.
    Served,
    /// It is sent these bytes and closed.
    Told(Bytes),
}

/// How a connection begins.
pub(crate) enum Beginning {
    Tls,
    Served,
    Told(Bytes),
}

/// The first byte of a TLS handshake; no request of HTTP begins so.
const HANDSHAKE: u8 = 22;

struct State {
    env: Env,
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<CertifiedKey>,
    /// Content of both files at the last check, valid or not.
    seen: Mutex<(Vec<u8>, Vec<u8>)>,
    /// The last problem that was logged.
    complaint: Mutex<String>,
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "State({})", self.certificate.display())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tls({:?})", self.files)
    }
}

impl ResolvesServerCert for State {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

/// Result of `Tls::reload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    Unchanged,
    Replaced,
}

impl Tls {
    pub fn load(env: &Env, certificate: PathBuf, key: PathBuf) -> Result<Tls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let seen = read(env, &certificate, &key).map_err(TlsError)?;
        let pair = parse(&provider, &seen)
            .map_err(|error| TlsError(format!("TLS from {} and {}: {error}", certificate.display(), key.display())))?;
        let state = Arc::new(State {
            env: env.clone(),
            certificate,
            key,
            provider: Arc::clone(&provider),
            current: ArcSwap::from_pointee(pair),
            seen: Mutex::new(seen),
            complaint: Mutex::new(String::new()),
        });
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(format!("TLS: {error}")))?;
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::clone(&state) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Tls { acceptor, files: Some(state), plain: Plain::Fails, failed: None })
    }

    /// With a configuration that no file changes. `failed` is called for each handshake that fails.
    pub fn of(
        config: ServerConfig,
        plain: Plain,
        failed: impl Fn(SocketAddr, &io::Error) + Send + Sync + 'static,
    ) -> Tls {
        Tls { acceptor: TlsAcceptor::from(Arc::new(config)), files: None, plain, failed: Some(Arc::new(failed)) }
    }

    /// Waits for the first byte if it decides anything.
    pub(crate) async fn beginning(&self, stream: &TcpStream) -> io::Result<Beginning> {
        if matches!(self.plain, Plain::Fails) {
            return Ok(Beginning::Tls);
        }
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first == [HANDSHAKE] {
            return Ok(Beginning::Tls);
        }
        Ok(match &self.plain {
            Plain::Fails => Beginning::Tls,
            Plain::Served => Beginning::Served,
            Plain::Told(answer) => Beginning::Told(answer.clone()),
        })
    }

    pub async fn accept(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let accepted = self.acceptor.accept(stream).await;
        if let (Err(error), Some(failed)) = (&accepted, &self.failed) {
            failed(peer, error);
        }
        accepted
    }

    /// When the certificate in use ends, in seconds since 1970; `None` without one, or if that cannot be read.
    pub fn ends_at(&self) -> Option<i64> {
        let current = self.files.as_ref()?.current.load();
        not_after(current.cert.first()?)
    }

    /// Reads the files again; blocks on the disk. Files that were invalid before and did not change are `Unchanged`.
    pub fn reload(&self) -> Result<Reload, String> {
        let Some(state) = &self.files else { return Ok(Reload::Unchanged) };
        let fresh = read(&state.env, &state.certificate, &state.key)?;
        let mut seen = state.seen.lock();
        if *seen == fresh {
            return Ok(Reload::Unchanged);
        }
        let pair = parse(&state.provider, &fresh);
        *seen = fresh;
        state.current.store(Arc::new(pair?));
        Ok(Reload::Replaced)
    }
}

/// As `refresh`, on a thread that may wait for a disk.
pub async fn refresh_apart(tls: &Tls) {
    let tls = tls.clone();
    // Fails only when the runtime ends, and then the certificate is no longer needed.
    let _ = tokio::task::spawn_blocking(move || refresh(&tls)).await;
}

/// Checks the files now and logs the result.
pub fn refresh(tls: &Tls) {
    let Some(state) = &tls.files else { return };
    match tls.reload() {
        Ok(Reload::Unchanged) => {}
        Ok(Reload::Replaced) => {
            tracing::info!(certificate = %state.certificate.display(), "TLS certificate replaced")
        }
        Err(error) => {
            let mut complaint = state.complaint.lock();
            if *complaint != error {
                tracing::error!(%error, "TLS certificate not replaced, the old one stays in use");
                *complaint = error;
            }
        }
    }
}

fn read(env: &Env, certificate: &PathBuf, key: &PathBuf) -> Result<(Vec<u8>, Vec<u8>), String> {
    let one = |path: &PathBuf| {
        files::read(env, path, PEM_BYTES_MAX)
            .map_err(|error| format!("{} cannot be read: {error}; {}", path.display(), files::remedy(&error)))
    };
    Ok((one(certificate)?, one(key)?))
}

fn parse(provider: &CryptoProvider, (certificate, key): &(Vec<u8>, Vec<u8>)) -> Result<CertifiedKey, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the certificate file is no PEM: {error}"))?;
    if chain.is_empty() {
        return Err(
            "the certificate file holds no certificate; it must begin with -----BEGIN CERTIFICATE-----".to_owned()
        );
    }
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key file holds no private key: {error}"))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| format!("certificate and key do not fit: {error}"))
}
