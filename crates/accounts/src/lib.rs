//! Accounts of a server: its root keys, its users and their keys, and the keys that encrypt data.
//!
//! Why:        keeps all secrets, and all data that decides who may call, in one crate.
//! Layout:     `root_keys`, `encryption_keys` (files in the data directory), `fingerprint` (whether they belong to the
//!             volume; `key_files` checks before a start), `identities` (users, in the volume), `provider_keys` (public
//!             keys of an identity provider).
//! Invariants: K1 an existing key file is never changed, and none is created where the volume was used with one.
//!             K2 `Debug` never shows a secret.
//! Not here:   the meaning of rights (margay-iam), signatures (margay-s3), encryption of data (margay-volume).

pub mod encryption_keys;
mod error;
pub mod fingerprint;
pub mod identities;
pub mod key_files;
pub mod provider_keys;
pub mod root_keys;

pub use error::AccountsError;
pub use identities::Identities;
pub use root_keys::RootKeys;
