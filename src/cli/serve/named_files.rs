//! The files that a server's settings name: keys of identity providers, authorities of targets, logs of requests.
//!
//! Invariants: F1 they are read, or opened, before anything is made; what is wrong with one is a wrong setting.
//! Not here:   its own certificate (margay-listener).

use std::path::Path;
use std::sync::Arc;

use margay_accounts::provider_keys::ProviderKeys;
use margay_env::{Env, OpenMode, files};
use margay_jobs::notify::Target;
use margay_s3::sts::{KeySet, KeySource, Provider};

use crate::exit::Failure;
use crate::settings::{Oidc, OidcKeys, Settings};

/// Maximum size of a file of certificate authorities, in bytes; a distribution's list has 250 KiB.
const AUTHORITIES_BYTES_MAX: u64 = 4 << 20;
/// Maximum size of a file with an identity provider's keys, in bytes.
const PROVIDER_KEYS_BYTES_MAX: u64 = 1024 * 1024;

/// The identity providers whose tokens are accepted.
pub(super) fn providers(env: &Env, settings: &Settings) -> Result<Vec<Provider>, Failure> {
    let Some(oidc) = &settings.oidc else { return Ok(Vec::new()) };
    let keys = provider_keys(env, oidc)?;
    Ok(vec![Provider::new(&oidc.issuer, &oidc.audience, keys)])
}

/// Keys in a file are read now; others are fetched when the first token arrives.
fn provider_keys(env: &Env, oidc: &Oidc) -> Result<Arc<dyn KeySource>, Failure> {
    let fail = |name: &str, path: &Path, error: &dyn std::fmt::Display| {
        Failure::usage(format!("{name}: {} cannot be used: {error}", path.display()))
    };
    let mut place = match &oidc.keys {
        OidcKeys::File(path) => {
            let fail = |error: &dyn std::fmt::Display| fail("oidc.keys", path, error);
            let keys = files::read(env, path, PROVIDER_KEYS_BYTES_MAX).map_err(|error| fail(&error))?;
            return Ok(Arc::new(KeySet::parse(&keys).map_err(|error| fail(&error))?));
        }
        OidcKeys::Fetched(place) => place.clone(),
    };
    if let (true, Some(path)) = (place.endpoint().is_secure(), &oidc.ca) {
        let fail = |error: &dyn std::fmt::Display| fail("oidc.ca", path, error);
        let authorities = files::read(env, path, AUTHORITIES_BYTES_MAX).map_err(|error| fail(&error))?;
        place.endpoint().trust(&authorities).map_err(|error| fail(&error))?;
    }
    Ok(Arc::new(ProviderKeys::new(place, Arc::clone(&env.clock))))
}

/// Logs of requests would be missed only when somebody needs them.
pub(in crate::cli) fn check_logs(env: &Env, settings: &Settings) -> Result<(), Failure> {
    for (name, path) in [("audit_log", &settings.audit_log), ("access_log", &settings.access_log)] {
        // A first start makes the data directory later.
        let Some(path) = path.as_ref().filter(|path| !path.starts_with(&settings.data)) else { continue };
        env.disk.open(path, OpenMode::OpenOrCreate).map_err(|error| {
            let advice = files::remedy(&error);
            Failure::usage(format!("{name}: {} cannot be written: {error}; {advice}", path.display()))
        })?;
    }
    Ok(())
}

/// Where events are sent, with the authorities that prove it.
pub(super) fn targets(env: &Env, settings: &Settings) -> Result<Vec<Target>, Failure> {
    let mut targets = settings.notify.clone();
    if let Some(path) = &settings.notify_ca {
        let fail = |error: &dyn std::fmt::Display| Failure::usage(format!("notify_ca {}: {error}", path.display()));
        let authorities = files::read(env, path, AUTHORITIES_BYTES_MAX).map_err(|error| fail(&error))?;
        for target in targets.iter_mut().filter(|target| target.endpoint.is_secure()) {
            target.endpoint.trust(&authorities).map_err(|error| fail(&error))?;
        }
    }
    Ok(targets)
}
