//! The keys: the server's own from its key file, a client's, and the one that each object has.
//!
//! Invariants: K1 no key is ever shown by `Debug` or named in an error.
//!             K2 the first master key encrypts what is new, and so does the first of a name; what is there names its
//!                key by id.
//! Not here:   reading the key file (the binary), the form of stored keys (envelope).

use std::fmt;

use ring::{digest, hmac};

use super::Protection;

/// Bytes of a master key, a customer's key and a data key: AES-256.
pub const MASTER_KEY_BYTES: usize = 32;

/// What a master key is known by: the begin of a digest of it.
pub(crate) type MasterKeyId = [u8; 4];

/// Says what the digest that names a master key is for.
const ID_INFO: &[u8] = b"margay master key id";
/// Says what the code that hides an MD5 is for.
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

/// Whose key a data key is encrypted under.
#[derive(Clone, Debug)]
pub enum WrappingKey {
    /// The server's newest (SSE-S3).
    Master,
    /// The server's newest of this name (SSE-KMS).
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

    /// The digest to show in the place of an MD5 that would tell something of content which only its customer may
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
