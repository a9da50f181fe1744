//! What a volume stores of users and of the server's key files.
//!
//! Not here:   the key files and users themselves (margay-accounts), keys of encrypted objects (entry).

mod identities;
mod key_fingerprints;

pub use self::identities::{IDENTITY_CHANGES_MAX, Identities, IdentityChange, IdentityRow};
pub use self::key_fingerprints::{KnownFingerprints, stored_key_fingerprints};
