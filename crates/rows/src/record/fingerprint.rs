//! Fingerprints of the secrets in one of the server's key files.
//!
//! Why:        every server of a volume must have the same secrets, and a lost file must not be made anew in silence.
//! Layout:     1, 16 bytes salt, varint count, then for each secret 16 bytes
//! Invariants: P1 at most `FINGERPRINTS_MAX` of them.
//! Not here:   how a fingerprint is made of a secret (margay-accounts).

use super::wire::{Damaged, Reader, Writer};

const LAYOUT: u8 = 1;
/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;
/// Bytes of what is kept of one secret.
pub const FINGERPRINT_BYTES: usize = 16;
/// Secrets of one file: a line of the key file for encryption has at least 64 of its 16 KiB.
pub const FINGERPRINTS_MAX: usize = 256;

/// A file of secrets. A file keeps its byte for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum KeyFile {
    /// The root keys, from a file or from the environment.
    Root = b'r',
    /// The key that seals the secrets of users.
    Identity = b'i',
    /// The keys of objects that are encrypted at rest.
    Encryption = b'e',
}

/// What is kept of the secrets of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    pub salt: [u8; SALT_BYTES],
    /// One for each secret, in no order that means anything.
    pub of_secrets: Vec<[u8; FINGERPRINT_BYTES]>,
}

impl Fingerprints {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.of_secrets.len() <= FINGERPRINTS_MAX, "P1");
        let mut writer = Writer::new(SALT_BYTES + 4 + self.of_secrets.len() * FINGERPRINT_BYTES);
        writer.byte(LAYOUT);
        writer.raw(&self.salt);
        writer.varint(self.of_secrets.len() as u64);
        self.of_secrets.iter().for_each(|one| writer.raw(one));
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<Fingerprints, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let salt = reader.array()?;
        let count = reader.small::<usize>()?;
        if count > FINGERPRINTS_MAX {
            return Err(Damaged("too many fingerprints"));
        }
        let of_secrets = (0..count).map(|_| reader.array()).collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Fingerprints { salt, of_secrets })
    }
}
