//! The stored form of an object's data key: encrypted under the server's or the client's key (envelope encryption).
//!
//! Layout:     docs/format/encryption.md: layout, key reference, nonce, encrypted data key, tag. The tag covers
//!             everything before the nonce.
//! Invariants: N1 an envelope does not depend on the object's name, so it stays valid after a rename, a copy, or as a
//!                version.

use margay_env::Random;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::EncryptionError;
use super::keys::{CustomerKey, DataKey, KEY_NAME_BYTES_MAX, MASTER_KEY_BYTES, MasterKeyId, MasterKeys, WrappingKey};

const LAYOUT: u8 = 1;
const BY_MASTER: u8 = 1;
const BY_CUSTOMER: u8 = 2;
const BY_NAMED: u8 = 3;
const NONCE_BYTES: usize = 12;
/// An encrypted data key with its tag.
const WRAPPED_BYTES: usize = MASTER_KEY_BYTES + super::TAG_BYTES as usize;

/// Error for an invalid stored form.
const DAMAGED: EncryptionError = EncryptionError::Damaged("the stored data key of an object");

/// Which key protects an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The server's key (SSE-S3).
    Master,
    /// The server's key of this name (SSE-KMS).
    Named(String),
    /// The client's key, which requests carry (SSE-C).
    Customer,
}

/// The key that an envelope needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outer {
    Master(MasterKeyId),
    Named(MasterKeyId, String),
    Customer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    outer: Outer,
    nonce: [u8; NONCE_BYTES],
    wrapped: [u8; WRAPPED_BYTES],
}

impl Outer {
    /// The beginning of the stored form, which the tag covers.
    fn encode(&self) -> Vec<u8> {
        match self {
            Outer::Master(id) => [&[LAYOUT, BY_MASTER][..], id].concat(),
            Outer::Customer => vec![LAYOUT, BY_CUSTOMER],
            Outer::Named(id, name) => [&[LAYOUT, BY_NAMED][..], id, &[name.len() as u8], name.as_bytes()].concat(),
        }
    }

    /// Also returns the rest.
    fn decode(document: &[u8]) -> Result<(Outer, &[u8]), EncryptionError> {
        match document {
            [LAYOUT, BY_CUSTOMER, rest @ ..] => Ok((Outer::Customer, rest)),
            [LAYOUT, BY_MASTER, rest @ ..] => {
                let (id, rest) = rest.split_first_chunk().ok_or(DAMAGED)?;
                Ok((Outer::Master(*id), rest))
            }
            [LAYOUT, BY_NAMED, rest @ ..] => {
                let (id, rest) = rest.split_first_chunk().ok_or(DAMAGED)?;
                let (len, rest) = rest.split_first().ok_or(DAMAGED)?;
                let (name, rest) = rest.split_at_checked(usize::from(*len)).ok_or(DAMAGED)?;
                let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= KEY_NAME_BYTES_MAX);
                Ok((Outer::Named(*id, name.ok_or(DAMAGED)?.to_owned()), rest))
            }
            _ => Err(DAMAGED),
        }
    }
}

impl Envelope {
    /// Encrypts a new or existing data key under the server's newest key or a client's.
    pub(crate) fn wrap(
        key: &DataKey,
        by: &WrappingKey,
        masters: &MasterKeys,
        random: &dyn Random,
    ) -> Result<Envelope, EncryptionError> {
        let (key_bytes, outer) = match by {
            WrappingKey::Customer(customer) => (customer.bytes(), Outer::Customer),
            WrappingKey::Master => {
                let (id, key) = masters.newest().ok_or(EncryptionError::NoMasterKey)?;
                (key, Outer::Master(id))
            }
            WrappingKey::Named(name) => {
                let (id, key) = masters.newest_named(name).ok_or(EncryptionError::NoNamedKey)?;
                (key, Outer::Named(id, name.clone()))
            }
        };
        let mut nonce = [0; NONCE_BYTES];
        random.fill(&mut nonce);
        let mut wrapped = [0; WRAPPED_BYTES];
        wrapped[..MASTER_KEY_BYTES].copy_from_slice(key.bytes());
        let tag = outer_key(key_bytes)
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(outer.encode()),
                &mut wrapped[..MASTER_KEY_BYTES],
            )
            .expect("a key is far shorter than the cipher's limit");
        wrapped[MASTER_KEY_BYTES..].copy_from_slice(tag.as_ref());
        Ok(Envelope { outer, nonce, wrapped })
    }

    /// Decrypts the data key; `customer` is needed if it is under a customer's key.
    pub(crate) fn open(
        &self,
        customer: Option<&CustomerKey>,
        masters: &MasterKeys,
    ) -> Result<DataKey, EncryptionError> {
        let key_bytes = match (&self.outer, customer) {
            (Outer::Master(id), _) => masters.find(*id).ok_or(EncryptionError::NoMasterKey)?,
            (Outer::Named(id, name), _) => masters.find_named(name, *id).ok_or(EncryptionError::NoMasterKey)?,
            (Outer::Customer, Some(customer)) => customer.bytes(),
            (Outer::Customer, None) => return Err(EncryptionError::KeyRequired),
        };
        let mut wrapped = self.wrapped;
        let opened = outer_key(key_bytes).open_in_place(
            Nonce::assume_unique_for_key(self.nonce),
            Aad::from(self.outer.encode()),
            &mut wrapped,
        );
        match (opened.ok().and_then(|key| key.first_chunk()), &self.outer) {
            (Some(key), _) => Ok(DataKey::new(*key)),
            (None, Outer::Customer) => Err(EncryptionError::WrongKey),
            (None, Outer::Master(_) | Outer::Named(..)) => {
                Err(EncryptionError::Damaged("the data key of an object does not decrypt"))
            }
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.outer.encode()[..], &self.nonce, &self.wrapped].concat()
    }

    pub(crate) fn decode(document: &[u8]) -> Result<Envelope, EncryptionError> {
        let (outer, rest) = Outer::decode(document)?;
        let (nonce, rest) = rest.split_first_chunk().ok_or(DAMAGED)?;
        let wrapped = rest.try_into().map_err(|_| DAMAGED)?;
        Ok(Envelope { outer, nonce: *nonce, wrapped })
    }
}

/// Which key an envelope needs, from its stored form.
pub(crate) fn decode_protection(document: &[u8]) -> Result<Protection, EncryptionError> {
    Ok(match Outer::decode(document)?.0 {
        Outer::Master(_) => Protection::Master,
        Outer::Named(_, name) => Protection::Named(name),
        Outer::Customer => Protection::Customer,
    })
}

fn outer_key(key: &[u8; MASTER_KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the length is that of the cipher's keys"))
}
