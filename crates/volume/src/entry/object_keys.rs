//! Encryption of objects: data key, streams, and stored sizes.
//!
//! Why:        connects the cipher, which knows no rows, with operations, which know no cipher.
//! Invariants: O1 an object is encrypted if and only if it has a document with its data key; replacing its bytes by
//!                unencrypted ones removes the document.
//!             O2 each part is one stream; a simple object is one.

use bytes::Bytes;
use margay_rows::key;
use margay_rows::kinds::{Document, Documents};
use margay_rows::record::FileEntry;
use margay_rows::record::multipart::decode_part_sizes;

use crate::api::{CopyEncryption, Error, ObjectInfo};
use crate::draft::Seen;
use crate::encryption::{
    CustomerKey, DataKey, Envelope, MASTER_KEY_BYTES, Protection, WrappingKey, decode_protection, encrypted_len,
};
use crate::open::Volume;
use crate::reader::Lock;

/// A new data key for an object or upload, and the document to store with it.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub key: DataKey,
    pub document: Bytes,
}

impl ObjectInfo {
    /// The kind of key that protects the object; `None` if it is unencrypted.
    pub fn protection(&self) -> Option<Protection> {
        protection_of(&self.documents)
    }
}

impl Protection {
    /// The kind of key that protects an object or upload with these documents; `None` if it is unencrypted.
    pub fn of(documents: &Documents) -> Option<Protection> {
        protection_of(documents)
    }
}

fn protection_of(documents: &Documents) -> Option<Protection> {
    // An undecodable document is reported when the key is needed.
    documents.get(&Document::Encryption).map(|document| decode_protection(document).unwrap_or(Protection::Master))
}

/// Stored size of a file, if its entry alone determines it.
pub(crate) fn stored_len_by_itself(file: &FileEntry) -> Option<u64> {
    match (file.is_encrypted(), file.etag.parts) {
        (false, _) => Some(file.size),
        (true, 0) => Some(encrypted_len(file.size)),
        (true, _) => None,
    }
}

/// What reading a file needs, from rows that were read while its row was unchanged: an encrypted file is never treated
/// as an unencrypted one.
pub(crate) fn needed_lock(file: &FileEntry, found: Option<Lock>) -> Result<Option<Lock>, Error> {
    match found {
        None if file.is_encrypted() => Err(Error::Corrupt("the data key of an encrypted object is gone".to_owned())),
        found => Ok(found),
    }
}

impl Volume {
    /// A new data key for an object or an upload.
    pub fn new_data_key(&self, by: &WrappingKey) -> Result<NewKey, Error> {
        let mut bytes = [0; MASTER_KEY_BYTES];
        self.env.random.fill(&mut bytes);
        let key = DataKey::new(bytes);
        let document = self.data_key_document(&key, by)?;
        Ok(NewKey { key, document })
    }

    /// The data key in a document; the customer's key is needed if it is under one.
    pub fn open_data_key(&self, document: &[u8], customer: Option<&CustomerKey>) -> Result<DataKey, Error> {
        Ok(Envelope::decode(document)?.open(customer, &self.options.master_keys)?)
    }

    /// The data key document of a copy that shares its source's bytes; `None` when both are unencrypted. Sharing needs
    /// the same kind of key: under a customer's key the ETag hides the content, and the server never had the data key.
    pub(crate) fn copied_key(&self, source: Option<&Bytes>, keys: &CopyEncryption) -> Result<Option<Bytes>, Error> {
        let protection = source.map(|document| decode_protection(document)).transpose()?;
        if keys.source.is_some() && protection != Some(Protection::Customer) {
            return Err(Error::KeyNotApplicable);
        }
        let target = keys.target.as_ref().or(source.map(|_| &WrappingKey::Master));
        if target.map(WrappingKey::protection) != protection {
            return Err(Error::NotShareable);
        }
        let (Some(document), Some(target)) = (source, target) else { return Ok(None) };
        let key = self.open_data_key(document, keys.source.as_ref())?;
        self.data_key_document(&key, target).map(Some)
    }

    fn data_key_document(&self, key: &DataKey, by: &WrappingKey) -> Result<Bytes, Error> {
        let envelope = Envelope::wrap(key, by, &self.options.master_keys, &*self.env.random)?;
        Ok(envelope.encode().into())
    }

    /// What is needed to decrypt a file, if it is encrypted.
    pub(crate) fn lock_of(&self, file: &FileEntry, seen: &mut Seen) -> Result<Option<Lock>, Error> {
        if !file.is_encrypted() {
            return Ok(None);
        }
        let row = self.get(&key::document(file.ino, Document::Encryption), seen)?;
        // Missing if the file was replaced meanwhile, which `FileEntry::needs` distinguishes from damage.
        let Some(row) = row else { return Ok(None) };
        let envelope = Envelope::decode(&row.value)?;
        Ok(Some(Lock { envelope, plain_lens: self.streams_of(file, seen)? }))
    }

    /// Stored size of a file.
    pub(crate) fn stored_len(&self, file: &FileEntry, seen: &mut Seen) -> Result<u64, Error> {
        match stored_len_by_itself(file) {
            Some(len) => Ok(len),
            None => Ok(self.streams_of(file, seen)?.into_iter().map(encrypted_len).sum()),
        }
    }

    /// Decrypted size of each stream.
    fn streams_of(&self, file: &FileEntry, seen: &mut Seen) -> Result<Vec<u64>, Error> {
        let sizes = if file.part_rows { self.get(&key::part_sizes(file.ino), seen)? } else { None };
        match sizes {
            Some(row) => Ok(decode_part_sizes(&row.value, file.etag.parts)?),
            None => Ok(vec![file.size]),
        }
    }
}
