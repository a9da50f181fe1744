//! The options that name a server, and as whom to use it.
//!
//! Why:        every command takes the same options, with one precedence: flag, `MARGAY_*`, `AWS_*`, what the
//!             caller found in a data directory, default.
//! Not here:   what a server is (margay-client).

use std::path::PathBuf;
use std::sync::Arc;

use margay_client::target::{Addressing, parse_endpoint};
use margay_client::tls;
pub use margay_client::{Credentials, REGION_DEFAULT, Target};

use crate::error::BenchError;

/// Where `margay serve` listens unless it was told otherwise.
pub const ENDPOINT_DEFAULT: &str = "http://127.0.0.1:9000";

#[derive(Clone, Debug, Default, clap::Args)]
pub struct TargetArgs {
    /// Server to talk to [default: $MARGAY_ENDPOINT, $AWS_ENDPOINT_URL or http://127.0.0.1:9000]
    #[arg(long, value_name = "URL", global = true)]
    pub endpoint: Option<String>,
    /// Access key [default: $MARGAY_ACCESS_KEY or $AWS_ACCESS_KEY_ID]
    #[arg(long, value_name = "KEY", global = true)]
    pub access_key: Option<String>,
    /// Secret key [default: $MARGAY_SECRET_KEY or $AWS_SECRET_ACCESS_KEY; rather use those: a flag shows in `ps`]
    #[arg(long, value_name = "KEY", global = true)]
    pub secret_key: Option<String>,
    /// Region named in signatures
    #[arg(long, value_name = "NAME", default_value = REGION_DEFAULT, global = true)]
    pub region: String,
    /// PEM file of the authority that signed the server's certificate, for https [default: $AWS_CA_BUNDLE or the system's]
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
}

fn from_environment(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

impl TargetArgs {
    /// Settles options and environment; `found` are keys that the caller knows of, used when nothing else names any.
    pub fn resolve(&self, found: Option<Credentials>) -> Result<Arc<Target>, BenchError> {
        self.resolve_as(self.credentials(found)?)
    }

    /// As [`TargetArgs::resolve`] with keys that are settled.
    pub(crate) fn resolve_as(&self, credentials: Credentials) -> Result<Arc<Target>, BenchError> {
        let url = self
            .endpoint
            .clone()
            .or_else(|| from_environment(&["MARGAY_ENDPOINT", "AWS_ENDPOINT_URL"]))
            .unwrap_or_else(|| ENDPOINT_DEFAULT.to_owned());
        let (host, port, secure, authority) = parse_endpoint(&url)?;
        let tls = if secure {
            let ca = self.ca.clone().or_else(|| from_environment(&["AWS_CA_BUNDLE"]).map(PathBuf::from));
            Some(tls::Connector::new(&host, ca.as_deref())?)
        } else {
            None
        };
        Ok(Arc::new(Target {
            authority,
            host,
            port,
            region: self.region.clone(),
            credentials: credentials.into(),
            tls,
            addressing: Addressing::Path,
        }))
    }

    fn credentials(&self, found: Option<Credentials>) -> Result<Credentials, BenchError> {
        let access_key =
            self.access_key.clone().or_else(|| from_environment(&["MARGAY_ACCESS_KEY", "AWS_ACCESS_KEY_ID"]));
        let secret_key =
            self.secret_key.clone().or_else(|| from_environment(&["MARGAY_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"]));
        match (access_key, secret_key, found) {
            (Some(access_key), Some(secret_key), _) => Ok(Credentials { access_key, secret_key }),
            (None, None, Some(found)) => Ok(found),
            (Some(_), None, _) => Err(BenchError::Usage("an access key without a secret key; set both".to_owned())),
            (None, Some(_), _) => Err(BenchError::Usage("a secret key without an access key; set both".to_owned())),
            (None, None, None) => Err(BenchError::Usage(
                "no keys: set MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY (or AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY), or give --access-key and --secret-key"
                    .to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_key_pair_is_refused() {
        let args = TargetArgs { access_key: Some("a".to_owned()), ..TargetArgs::default() };
        let found = Some(Credentials { access_key: "x".to_owned(), secret_key: "y".to_owned() });
        if std::env::var_os("MARGAY_SECRET_KEY").is_none() && std::env::var_os("AWS_SECRET_ACCESS_KEY").is_none() {
            assert!(matches!(args.credentials(found), Err(BenchError::Usage(_))));
        }
    }
}
