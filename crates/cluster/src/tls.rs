//! TLS between the processes of a volume.
//!
//! Why:        bytes of objects go over a network that others may listen to.
//! Layout:     one Ed25519 key pair for all processes of the volume, made of the secret that all of them have, shown by both ends as a raw
//!             public key (RFC 7250). So there are no authorities, names, dates and files, and nothing to renew (docs/design/0043).
//! Invariants: T1 both ends prove the pair, or nothing of a question is sent.
//!             T2 a process that speaks TLS with another key is a stranger and is never asked without TLS; only one that speaks no TLS
//!                at all is, and not with `StoreTls::Required`.
//!             T3 TLS replaces no signature: questions are signed as before.
//! Not here:   the first byte of a connection (margay-listener), questions and their signatures (question, key).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use margay_listener::tls::{Plain, Tls};
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring::default_provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::key::ClusterKey;
use crate::question::{FAILURE, REFUSED};

/// Whether questions and answers are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreTls {
    /// This process asks without. It answers with TLS whoever begins so.
    #[default]
    Off,
    /// This process asks with TLS whoever speaks it, and the others without. It answers both.
    Preferred,
    /// Neither asks nor answers without.
    Required,
}

/// The private key in PKCS #8, before its 32 bytes (RFC 8410).
const PKCS8_ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// Handshakes that fail are told of at most so often.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// No name is compared: the key says who it is.
const NAME: &str = "margay-store";

/// The key pair, and what both ends need of it.
#[derive(Clone)]
pub(crate) struct KeyPair {
    own: Arc<CertifiedKey>,
    provider: Arc<CryptoProvider>,
}

/// Accepts exactly the own public key.
#[derive(Debug)]
struct SameKey(KeyPair);

/// Asks with TLS.
#[derive(Clone)]
pub(crate) struct Connector(TlsConnector);

/// A connection to another process.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl Connection for TcpStream {}
impl Connection for TlsStream<TcpStream> {}

/// Why there is no protected connection.
#[derive(Debug)]
pub(crate) enum NoTls {
    /// The other end speaks no TLS, as far as it seems.
    NotSpoken(String),
    Failed(String),
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyPair(..)")
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connector")
    }
}

impl KeyPair {
    pub(crate) fn of(key: &ClusterKey) -> io::Result<KeyPair> {
        let provider = Arc::new(default_provider());
        let secret = PrivatePkcs8KeyDer::from([&PKCS8_ED25519[..], &key.tls_seed()].concat());
        let secret = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(secret)).map_err(io::Error::other)?;
        let public = secret.public_key().ok_or_else(|| io::Error::other("a key without its public part"))?;
        let public = CertificateDer::from(public.to_vec());
        Ok(KeyPair { own: Arc::new(CertifiedKey::new(vec![public], secret)), provider })
    }

    pub(crate) fn connector(&self) -> io::Result<Connector> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(io::Error::other)?.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(SameKey(self.clone())));
        let own = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.own));
        let mut config = builder.with_client_cert_resolver(Arc::new(own));
        // Connections are kept, so a handshake is rare; each one proves the key.
        config.resumption = Resumption::disabled();
        Ok(Connector(TlsConnector::from(Arc::new(config))))
    }

    /// For the port of questions.
    fn acceptor(&self, plain: Plain) -> io::Result<Tls> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(io::Error::other)?;
        let builder = builder.with_client_cert_verifier(Arc::new(SameKey(self.clone())));
        let own = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.own));
        let mut config = builder.with_cert_resolver(Arc::new(own));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let told: Mutex<Option<Instant>> = Mutex::new(None);
        let failed = move |peer: SocketAddr, error: &io::Error| {
            let mut told = told.lock();
            if told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
                *told = Some(Instant::now());
                let advice = "the servers of a volume, and nobody else, have its identity-key";
                tracing::warn!(%peer, %error, advice, "who asks for bytes of this store proved no key of this volume");
            }
        };
        Ok(Tls::of(config, plain, failed))
    }

    fn is_own(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        if self.own.end_entity_cert()? == shown {
            return Ok(());
        }
        Err(rustls::Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure))
    }

    fn is_signed(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.is_own(shown)?;
        let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.provider.signature_verification_algorithms)
    }
}

/// TLS of the port of questions, as `tls` wants it.
pub fn store_port_tls(key: &ClusterKey, tls: StoreTls) -> io::Result<Tls> {
    let plain = match tls {
        StoreTls::Off | StoreTls::Preferred => Plain::Served,
        StoreTls::Required => Plain::Told(without_tls_refused()),
    };
    KeyPair::of(key)?.acceptor(plain)
}

/// As the port answers, so that the one who asked can say it in one line.
fn without_tls_refused() -> Bytes {
    let said = "this server answers with TLS alone (store_tls=require); set store_tls=prefer where it was asked\n";
    let answer = format!(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\n{FAILURE}: {REFUSED}\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{said}",
        said.len()
    );
    answer.into()
}

impl Connector {
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, NoTls> {
        let name = ServerName::try_from(NAME).map_err(|error| NoTls::Failed(error.to_string()))?;
        self.0.connect(name, stream).await.map_err(|error| why_not(&error))
    }
}

/// T2.
fn why_not(error: &io::Error) -> NoTls {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (inner, error.kind()) {
        (Some(rustls::Error::InvalidMessage(_)), _)
        | (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            NoTls::NotSpoken(error.to_string())
        }
        (Some(_), _) => NoTls::Failed(format!(
            "what answers there proved no key of this volume ({error}); all its servers need the same file identity-key"
        )),
        (None, _) => NoTls::Failed(error.to_string()),
    }
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.is_own(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.is_signed(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.is_own(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.is_signed(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
