//! Encryption keys: the server's master keys, customers' keys, and data keys.
//!
//! Invariants: K1 `Debug` and errors never show a key.
//!             K2 the first master key, or the first of a name, encrypts new data; existing data refers to its key by
//!                id.
//! Not here:   reading the key file (margay-accounts), stored data keys (envelope).

use std::fmt;

use ring::{digest, hmac};

use super::Protection;

/// Bytes of a master key, a customer's key and a data key: AES-256.
pub const MASTER_KEY_BYTES: usize = 32;

/// Identifies a master key: the first bytes of a digest of it.
pub(crate) type MasterKeyId = [u8; 4];

/// Context of the digest that identifies a master key.
const ID_INFO: &[u8] = b"margay master key id";
/// Context of the code that hides an MD5.
const ETAG_INFO: &[u8] = b"margay etag";

/// Longest name of a master key, in bytes.
pub const KEY_NAME_BYTES_MAX: usize = 128;

/// The server's keys, the newest first: those for SSE-S3, and those that requests name (SSE-KMS). May be empty.
#[derive(Clone, Default)]
pub struct MasterKeys {
    keys: Vec<(MasterKeyId, [u8; MASTER_KEY_BYTES])>,
    named: Vec<(String, MasterKeyId, [u8; MASTER_KEY_BYTES])>,
}

impl MasterKeys {
    pub fn new(keys: &[[u8; MASTER_KEY_BYTES]]) -> MasterKeys {
        MasterKeys { keys: keys.iter().map(|key| (id_of(key), *key)).collect(), named: Vec::new() }
    }

    /// With these keys, of names up to `KEY_NAME_BYTES_MAX`.
    pub fn with_named(mut self, named: &[(String, [u8; MASTER_KEY_BYTES])]) -> MasterKeys {
        self.named = named.iter().map(|(name, key)| (name.clone(), id_of(key), *key)).collect();
        self
    }

    pub(crate) fn newest(&self) -> Option<(MasterKeyId, &[u8; MASTER_KEY_BYTES])> {
        self.keys.first().map(|(id, key)| (*id, key))
    }

    pub(crate) fn newest_named(&self, name: &str) -> Option<(MasterKeyId, &[u8; MASTER_KEY_BYTES])> {
        self.named.iter().find(|(own, ..)| own == name).map(|(_, id, key)| (*id, key))
    }

    pub(crate) fn find(&self, id: MasterKeyId) -> Option<&[u8; MASTER_KEY_BYTES]> {
        self.keys.iter().find(|(own, _)| *own == id).map(|(_, key)| key)
    }

    pub(crate) fn find_named(&self, name: &str, id: MasterKeyId) -> Option<&[u8; MASTER_KEY_BYTES]> {
        self.named.iter().find(|(own, own_id, _)| (own.as_str(), *own_id) == (name, id)).map(|(.., key)| key)
    }
}

fn id_of(key: &[u8; MASTER_KEY_BYTES]) -> MasterKeyId {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(ID_INFO);
    context.update(key);
    let digest = context.finish();
    *digest.as_ref().first_chunk().expect("a digest is longer than an id")
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MasterKeys({} keys and {} named, hidden)", self.keys.len(), self.named.len())
    }
}

/// A key that a client sends along with each request for an object (SSE-C).
#[derive(Clone)]
pub struct CustomerKey([u8; MASTER_KEY_BYTES]);

impl CustomerKey {
    pub fn new(key: [u8; MASTER_KEY_BYTES]) -> CustomerKey {
        CustomerKey(key)
    }

    pub(crate) fn bytes(&self) -> &[u8; MASTER_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CustomerKey(hidden)")
    }
}

/// The key under which a data key is encrypted.
#[derive(Clone, Debug)]
pub enum WrappingKey {
    /// The server's newest key (SSE-S3).
    Master,
    /// The server's newest key of this name (SSE-KMS).
    Named(String),
    /// A client's (SSE-C).
    Customer(CustomerKey),
}

impl WrappingKey {
    pub fn protection(&self) -> Protection {
        match self {
            WrappingKey::Master => Protection::Master,
            WrappingKey::Named(name) => Protection::Named(name.clone()),
            WrappingKey::Customer(_) => Protection::Customer,
        }
    }
}

/// The key of one object or upload.
#[derive(Clone)]
pub struct DataKey([u8; MASTER_KEY_BYTES]);

impl DataKey {
    pub(crate) fn new(key: [u8; MASTER_KEY_BYTES]) -> DataKey {
        DataKey(key)
    }

    pub(crate) fn bytes(&self) -> &[u8; MASTER_KEY_BYTES] {
        &self.0
    }

    /// Replaces an MD5 by a keyed digest, since the MD5 would reveal something about content that only its customer may
    /// know.
    pub fn hide(&self, md5: [u8; 16]) -> [u8; 16] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut context = hmac::Context::with_key(&key);
        context.update(ETAG_INFO);
        context.update(&md5);
        *context.sign().as_ref().first_chunk().expect("a code is longer than an MD5")
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DataKey(hidden)")
    }
}
