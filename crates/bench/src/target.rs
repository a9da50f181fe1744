//! The options that name a server, and as whom to use it.
//!
//! Why:        every command takes the same options, with one precedence: flag, `MARGAY_*`, `AWS_*`, what the
//!             caller found in a data directory, default.
//! Not here:   what a server is, and keys in files of AWS's tools (margay-client).

use std::path::PathBuf;
use std::sync::Arc;

use margay_client::credentials::Keys;
use margay_client::target::{Addressing, parse_endpoint};
use margay_client::tls;
pub use margay_client::{Credentials, KeyChain, REGION_DEFAULT, Target};

use crate::error::BenchError;

/// Where `margay serve` listens unless it was told otherwise.
pub const ENDPOINT_DEFAULT: &str = "http://127.0.0.1:9000";

const NO_KEYS: &str = "no keys: set MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY (or AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY)";

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
    /// Region named in signatures [default: us-east-1]
    #[arg(long, value_name = "NAME", global = true)]
    pub region: Option<String>,
    /// PEM file of the authority that signed the server's certificate, for https [default: $AWS_CA_BUNDLE or the system's]
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
}

fn from_environment(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// Keys that nobody gave to the command, and what else is known where they are.
#[derive(Debug)]
pub struct FoundKeys {
    pub keys: KeyChain,
    pub endpoint: Option<String>,
    pub region: Option<String>,
}

impl TargetArgs {
    /// Settles options and environment; `found` are keys that the caller knows of, used when nothing else names any.
    pub fn resolve(&self, found: Option<Credentials>) -> Result<Arc<Target>, BenchError> {
        self.resolve_as(self.credentials(found)?)
    }

    /// As [`TargetArgs::resolve`] with keys that are settled.
    pub(crate) fn resolve_as(&self, credentials: Credentials) -> Result<Arc<Target>, BenchError> {
        self.resolve_found(FoundKeys { keys: credentials.into(), endpoint: None, region: None })
    }

    /// As [`TargetArgs::resolve`], of keys that may end; `find` is asked when neither options nor environment have any, and the
    /// error of its keys says where was looked. `listens`: where a server is that the caller knows of, if nothing names another one.
    pub fn resolve_or(
        &self,
        find: impl FnOnce() -> Result<FoundKeys, String>,
        listens: impl FnOnce() -> Option<String>,
    ) -> Result<Arc<Target>, BenchError> {
        let Some(pair) = self.given()? else {
            let missing = |error: String| BenchError::Usage(format!("{NO_KEYS}; {error}"));
            let found = find().map_err(missing)?;
            found.keys.keys_now().map_err(|error| missing(error.to_string()))?;
            return self.resolve_found(found);
        };
        // Those of the environment may be temporary.
        let is_of_environment = from_environment(&["AWS_ACCESS_KEY_ID"]).is_some_and(|own| own == pair.access_key);
        let token = from_environment(&["AWS_SESSION_TOKEN"]).filter(|_| is_of_environment);
        let keys = KeyChain::fixed(Keys::permanent(pair, token));
        self.resolve_found(FoundKeys { keys, endpoint: listens(), region: None })
    }

    fn resolve_found(&self, found: FoundKeys) -> Result<Arc<Target>, BenchError> {
        let url = self
            .endpoint
            .clone()
            .or_else(|| from_environment(&["MARGAY_ENDPOINT", "AWS_ENDPOINT_URL"]))
            .or(found.endpoint)
            .unwrap_or_else(|| ENDPOINT_DEFAULT.to_owned());
        let region = self.region.clone().or(found.region);
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
            region: region.unwrap_or_else(|| REGION_DEFAULT.to_owned()),
            credentials: found.keys,
            tls,
            addressing: Addressing::Path,
        }))
    }

    fn credentials(&self, found: Option<Credentials>) -> Result<Credentials, BenchError> {
        self.given()?.or(found).ok_or_else(|| BenchError::Usage(NO_KEYS.to_owned()))
    }

    /// Keys of options and environment.
    fn given(&self) -> Result<Option<Credentials>, BenchError> {
        let access_key =
            self.access_key.clone().or_else(|| from_environment(&["MARGAY_ACCESS_KEY", "AWS_ACCESS_KEY_ID"]));
        let secret_key =
            self.secret_key.clone().or_else(|| from_environment(&["MARGAY_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"]));
        match (access_key, secret_key) {
            (Some(access_key), Some(secret_key)) => Ok(Some(Credentials { access_key, secret_key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(BenchError::Usage("an access key without a secret key; set both".to_owned())),
            (None, Some(_)) => Err(BenchError::Usage("a secret key without an access key; set both".to_owned())),
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
