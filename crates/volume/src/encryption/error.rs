//! Why bytes or keys could not be encrypted or decrypted.

/// Contains no information about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptionError {
    /// It is under a customer's key, and none was given.
    #[error("the key of its owner is needed")]
    KeyRequired,
    #[error("it is encrypted under another key than the one given")]
    WrongKey,
    #[error("the server has no such key: see the key file of the data directory")]
    NoMasterKey,
    #[error("the server's key file has no key of that name")]
    NoNamedKey,
    #[error("{0}")]
    Damaged(&'static str),
    #[error("the range lies outside the object")]
    InvalidRange,
}
