//! An object's data key as it is stored with the object: encrypted under the server's or the client's key.
//!
//! Layout:     byte 1, byte protection (1 the server's key, 2 the client's), with 1: 4 bytes id of the master key;
//!             12 bytes nonce, 32 bytes encrypted data key, 16 bytes tag. All before the nonce is covered by the tag.
//! Invariants: an envelope says nothing of the object's name, so it goes along with a rename, a copy and a version.

use margay_env::Random;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::EncryptionError;
use super::keys::{CustomerKey, DataKey, MASTER_KEY_BYTES, MasterKeyId, MasterKeys, WrappingKey};

const LAYOUT: u8 = 1;
const BY_MASTER: u8 = 1;
const BY_CUSTOMER: u8 = 2;
const NONCE_BYTES: usize = 12;
/// An encrypted data key with its tag.
const WRAPPED_BYTES: usize = MASTER_KEY_BYTES + super::TAG_BYTES as usize;

/// What is said of a stored form that is none.
const DAMAGED: EncryptionError = EncryptionError::Damaged("the stored data key of an object");

/// Under whose key an object is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The server's (SSE-S3).
    Master,
    /// The client's, which it sends along (SSE-C).
    Customer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// The front, which the tag covers.
    front: Vec<u8>,
    master: Option<MasterKeyId>,
    nonce: [u8; NONCE_BYTES],
    wrapped: [u8; WRAPPED_BYTES],
}

impl Envelope {
    /// A new data key, or one that is there, under the server's newest key or a client's.
    pub(crate) fn wrap(
        key: &DataKey,
        by: &WrappingKey,
        masters: &MasterKeys,
        random: &dyn Random,
    ) -> Result<Envelope, EncryptionError> {
        let (outer, master) = match by {
            WrappingKey::Customer(customer) => (customer.bytes(), None),
            WrappingKey::Master => {
                let (id, key) = masters.newest().ok_or(EncryptionError::NoMasterKey)?;
                (key, Some(*id))
            }
        };
        let front = front(master);
        let mut nonce = [0; NONCE_BYTES];
        random.fill(&mut nonce);
        let mut wrapped = [0; WRAPPED_BYTES];
        wrapped[..MASTER_KEY_BYTES].copy_from_slice(key.bytes());
        let tag = outer_key(outer)
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(&front),
                &mut wrapped[..MASTER_KEY_BYTES],
            )
            .expect("a key is far shorter than the cipher's limit");
        wrapped[MASTER_KEY_BYTES..].copy_from_slice(tag.as_ref());
        Ok(Envelope { front, master, nonce, wrapped })
    }

    /// The data key; the customer's key is needed when it is under one.
    pub(crate) fn open(
        &self,
        customer: Option<&CustomerKey>,
        masters: &MasterKeys,
    ) -> Result<DataKey, EncryptionError> {
        let outer = match (self.master, customer) {
            (Some(id), _) => masters.find(id).ok_or(EncryptionError::NoMasterKey)?,
            (None, Some(customer)) => customer.bytes(),
            (None, None) => return Err(EncryptionError::KeyRequired),
        };
        let mut wrapped = self.wrapped;
        let opened = outer_key(outer).open_in_place(
            Nonce::assume_unique_for_key(self.nonce),
            Aad::from(&self.front),
            &mut wrapped,
        );
        let key = opened.ok().and_then(|key| key.first_chunk());
        match (key, self.master) {
            (Some(key), _) => Ok(DataKey::new(*key)),
            (None, None) => Err(EncryptionError::WrongKey),
            (None, Some(_)) => Err(EncryptionError::Damaged("the data key of an object does not decrypt")),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.front[..], &self.nonce, &self.wrapped].concat()
    }

    pub(crate) fn decode(document: &[u8]) -> Result<Envelope, EncryptionError> {
        let protection = decode_protection(document)?;
        let (master, rest) = match protection {
            Protection::Master => {
                let (id, rest) = document[2..].split_first_chunk().ok_or(DAMAGED)?;
                (Some(*id), rest)
            }
            Protection::Customer => (None, &document[2..]),
        };
        let (nonce, rest) = rest.split_first_chunk().ok_or(DAMAGED)?;
        let wrapped = rest.try_into().map_err(|_| DAMAGED)?;
        Ok(Envelope { front: front(master), master, nonce: *nonce, wrapped })
    }
}

/// Whose key it takes, from the stored form.
pub(crate) fn decode_protection(document: &[u8]) -> Result<Protection, EncryptionError> {
    match document {
        [LAYOUT, BY_MASTER, ..] => Ok(Protection::Master),
        [LAYOUT, BY_CUSTOMER, ..] => Ok(Protection::Customer),
        _ => Err(DAMAGED),
    }
}

fn front(master: Option<MasterKeyId>) -> Vec<u8> {
    match master {
        Some(id) => [&[LAYOUT, BY_MASTER][..], &id].concat(),
        None => vec![LAYOUT, BY_CUSTOMER],
    }
}

fn outer_key(key: &[u8; MASTER_KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the length is that of the cipher's keys"))
}
