//! TLS to the server, as the URL asks for it.
//!
//! Why:        rows and, with a password, who may change them, go over a network.
//! Example:    `postgres://margay@db/margay?sslmode=verify-full&sslrootcert=/etc/margay/ca.pem`
//! Invariants: X1 `sslmode` means what it means to libpq: `disable`, `prefer` (the default: encrypted if the server can, not verified),
//!                `require` (encrypted; verified against `sslrootcert` if it is given), `verify-ca`, `verify-full` (and the name).
//!             X2 without `sslrootcert` the authorities are those of the operating system.
//! Not here:   the PostgreSQL side of the handshake (tokio-postgres).

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Words of a URL that tokio-postgres does not know, or of which it knows fewer values.
const OWN_WORDS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verify {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// The wanted protection, and the URL without it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsWish {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

/// Takes the words about TLS out of a URL, or out of `key=value` words.
pub(crate) fn split(place: &str) -> Result<(String, TlsWish), String> {
    let mut wish = TlsWish::default();
    let mut take = |word: &str| -> Result<bool, String> {
        let Some((name, value)) = word.split_once('=').filter(|(name, _)| OWN_WORDS.contains(name)) else {
            return Ok(false);
        };
        let value = decoded(value).ok_or_else(|| format!("{name} is no text"))?;
        match name {
            "sslmode" => wish.mode = Some(value),
            "sslrootcert" => wish.root = Some(value),
            "sslcert" => wish.certificate = Some(value),
            _ => wish.key = Some(value),
        }
        Ok(true)
    };
    let (before, words, joint) = match place.split_once('?') {
        Some((before, words)) if place.contains("://") => (Some(before), words.split('&').collect::<Vec<_>>(), "&"),
        _ if place.contains("://") => return Ok((place.to_owned(), wish)),
        _ => (None, place.split(' ').collect(), " "),
    };
    let mut others = Vec::new();
    for word in words {
        if !take(word)? {
            others.push(word);
        }
    }
    let others = others.join(joint);
    let rest = match before {
        Some(before) if others.is_empty() => before.to_owned(),
        Some(before) => format!("{before}?{others}"),
        None => others,
    };
    Ok((rest, wish))
}

/// `%2F` is `/`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// What makes connections safe; reads the files.
pub(crate) fn protect(config: &mut tokio_postgres::Config, wish: &TlsWish) -> Result<Tls, String> {
    use tokio_postgres::config::SslMode;
    let (mode, verify) = match wish.mode.as_deref() {
        Some("disable") => (SslMode::Disable, Verify::Nothing),
        None | Some("prefer") => (SslMode::Prefer, Verify::Nothing),
        Some("require") if wish.root.is_none() => (SslMode::Require, Verify::Nothing),
        Some("require" | "verify-ca") => (SslMode::Require, Verify::Authority),
        Some("verify-full") => (SslMode::Require, Verify::AuthorityAndName),
        Some(other) => {
            return Err(format!("sslmode={other} is none of disable, prefer, require, verify-ca, verify-full"));
        }
    };
    if verify == Verify::Nothing && wish.root.is_some() {
        return Err("sslrootcert verifies nothing with this sslmode: add sslmode=verify-full".to_owned());
    }
    config.ssl_mode(mode);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier { inner: authorities(wish, verify, &provider)?, verify, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(verifier));
    let made = match (&wish.certificate, &wish.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(Path::new(certificate))?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("sslkey {key}: {error}"))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| format!("sslcert {certificate}: {error}"))?
        }
        (None, None) => builder.with_no_client_auth(),
        _ => return Err("sslcert and sslkey go together".to_owned()),
    };
    Ok(Tls(Arc::new(made)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| format!("{}: {error}", path.display()))?;
    if all.is_empty() { Err(format!("{} has no certificate", path.display())) } else { Ok(all) }
}

fn authorities(
    wish: &TlsWish,
    verify: Verify,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<WebPkiServerVerifier>>, String> {
    if verify == Verify::Nothing {
        return Ok(None);
    }
    let trusted = match wish.root.as_deref() {
        None | Some("system") => rustls_native_certs::load_native_certs().certs,
        Some(path) => certificates(Path::new(path))?,
    };
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        // A bundle may have an authority that this library does not support; the others still count.
        let _ = roots.add(certificate);
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    let advice =
        "no authority is known that PostgreSQL's certificate could be verified against; name one with sslrootcert";
    verifier.map(Some).map_err(|error| format!("{advice}: {error}"))
}

#[derive(Debug)]
struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    verify: Verify,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
                if self.verify == Verify::Authority =>
            {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes the protected end of a connection.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Tls")
    }
}

/// For one host.
pub(crate) struct ToHost {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Protected;
    type TlsConnect = ToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<ToHost> {
        // A socket of this machine has no name, and the server does not offer TLS there.
        let name = ServerName::try_from(if host.is_empty() { "localhost" } else { host }.to_owned());
        let name = name.map_err(|_| io::Error::other(format!("{host} is no name that a certificate can prove")))?;
        Ok(ToHost { connector: TlsConnector::from(Arc::clone(&self.0)), name })
    }
}

impl TlsConnect<Socket> for ToHost {
    type Stream = Protected;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Protected>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { Ok(Protected(Box::new(self.connector.connect(self.name, stream).await?))) })
    }
}

#[derive(Debug)]
pub(crate) struct Protected(Box<tokio_rustls::client::TlsStream<Socket>>);

impl AsyncRead for Protected {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Protected {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl TlsStream for Protected {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_about_tls_are_taken_out_of_a_place() {
        let taken = |place: &str| split(place).unwrap();
        let full = taken("postgres://m@db:5432/x?connect_timeout=3&sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem");
        assert_eq!(full.0, "postgres://m@db:5432/x?connect_timeout=3");
        assert_eq!((full.1.mode.as_deref(), full.1.root.as_deref()), (Some("verify-full"), Some("/etc/ca.pem")));
        assert_eq!(taken("postgres://m@db/x?sslmode=require").0, "postgres://m@db/x");
        assert_eq!(taken("postgres://m@db/x").1, TlsWish::default());
        let words = taken("host=db sslmode=disable user=m");
        assert_eq!((words.0.as_str(), words.1.mode.as_deref()), ("host=db user=m", Some("disable")));
        assert!(split("postgres://m@db/x?sslrootcert=%zz").is_err() && split("host=a sslkey=%2").is_err());
    }

    #[test]
    fn what_protects_nothing_is_refused() {
        let refused = |words: &str| {
            let (rest, wish) = split(words).unwrap();
            protect(&mut rest.parse().unwrap(), &wish).unwrap_err()
        };
        assert!(refused("host=db sslmode=verify").contains("verify-full"));
        assert!(refused("host=db sslrootcert=/none").contains("add sslmode=verify-full"));
        assert!(refused("host=db sslmode=verify-full sslrootcert=/none").contains("/none"));
        assert!(refused("host=db sslmode=require sslcert=/none").contains("go together"));
    }
}
