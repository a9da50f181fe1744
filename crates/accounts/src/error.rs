//! Errors of keys and identities.
//!
//! Invariants: E1 each message is one line that says what to do.

#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// The environment names only one of the two root keys, or invalid keys.
    #[error("{0}")]
    Environment(String),
    /// A key file cannot be read, is damaged, or cannot be created.
    #[error("{0}")]
    File(String),
    /// The keys differ from those that the volume was used with.
    #[error("{0}")]
    Refused(String),
    #[error("the users cannot be read: {0}")]
    Volume(#[source] margay_volume::Error),
    #[error("the fingerprints of the key files cannot be read or kept: {0}")]
    Fingerprint(#[source] margay_volume::Error),
}
