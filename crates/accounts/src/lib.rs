//! Accounts of a server: its root keys, its users and their keys, and the keys that encrypt data.
//!
//! Why:        all that decides who may call, and all secrets, is kept in one place.
//! Layout:     `root_keys`, `encryption_keys` (files of the data directory), `fingerprint` (whether they are those of the
//!             volume; `key_files` looks beforehand), `identities` (users, in the volume), `provider_keys` (public keys of an identity provider).
//! Invariants: K1 a file of keys is never changed when it exists, nor made anew where the volume was used with one.  K2 a secret is never shown by `Debug`.
//! Not here:   what rights mean (margay-iam), signatures (margay-s3), encryption of data (margay-volume).

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
