//! The client's end of TLS.
//!
//! Not here: the server's end (the binary).

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::ClientError;

/// Trusted authorities, and the name that the server must prove.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connector").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Connector {
    /// Reads the authorities from the PEM file `ca`, or from the operating system; `host` is the name or address that
    /// the server must prove.
    pub fn new(host: &str, ca: Option<&Path>) -> Result<Connector, ClientError> {
        let unreadable = |reason: String| match ca {
            Some(ca) => ClientError::Usage(format!("--ca {}: {reason}", ca.display())),
            None => ClientError::Usage(format!("the system's list of authorities: {reason}; name one with --ca FILE")),
        };
        let certificates = match ca {
            None => rustls_native_certs::load_native_certs().certs,
            Some(ca) => CertificateDer::pem_file_iter(ca)
                .and_then(Iterator::collect)
                .map_err(|error| unreadable(error.to_string()))?,
        };
        Connector::of(host, certificates).map_err(unreadable)
    }

    /// As `new`, with the authorities of PEM text.
    pub(crate) fn of_pem(host: &str, authorities: &[u8]) -> Result<Connector, ClientError> {
        let certificates = CertificateDer::pem_slice_iter(authorities).collect::<Result<Vec<_>, _>>();
        let connector = certificates.map_err(|error| error.to_string());
        connector.and_then(|certificates| Connector::of(host, certificates)).map_err(ClientError::Usage)
    }

    fn of(host: &str, certificates: Vec<CertificateDer<'static>>) -> Result<Connector, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            // A bundle may contain an authority that this library does not support; the others still count.
            let _ = roots.add(certificate);
        }
        if roots.is_empty() {
            return Err("no usable certificate inside".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host} is no name that a certificate can prove"))?;
        Ok(Connector { config: Arc::new(config), name })
    }

    /// Performs the handshake on a new connection.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsConnector::from(Arc::clone(&self.config)).connect(self.name.clone(), stream).await.map_err(told)
    }
}

/// What went wrong with TLS; that the other side answers in plain text is said so.
pub(crate) fn told(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            io::Error::new(error.kind(), "it does not speak TLS; is its address http:// and not https://?")
        }
        _ => error,
    }
}
