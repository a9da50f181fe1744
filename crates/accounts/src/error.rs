//! Why keys or identities cannot be had.
//!
//! Invariants: each message is one line that says what to do.

#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// The environment names half a pair of keys, or keys that cannot be.
    #[error("{0}")]
    Environment(String),
    /// A file of keys cannot be read, believed or made.
    #[error("{0}")]
    File(String),
    /// The keys are not those that the volume was used with.
    #[error("{0}")]
    Refused(String),
    #[error("the users cannot be read: {0}")]
    Volume(#[source] margay_volume::Error),
    #[error("the fingerprints of the key files cannot be read or kept: {0}")]
    Fingerprint(#[source] margay_volume::Error),
}
