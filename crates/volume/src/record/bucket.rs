//! A bucket: its root directory and what is set on it.
//!
//! Layout:     1, root ino, created, versioning byte, object lock byte, owner text
//! Invariants: the row's version is the identity of the root directory; usage lives in counters, not here.

use margay_env::Timestamp;

use super::wire::{Damaged, Reader, Writer};
use crate::key::Ino;

const LAYOUT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) root: Ino,
    pub(crate) created: Timestamp,
    /// 0 never on, 1 on, 2 suspended; always 0 in this format version.
    pub(crate) versioning: u8,
    /// 0 off, 1 on; always 0 in this format version.
    pub(crate) object_lock: u8,
    /// Empty: the root account.
    pub(crate) owner: String,
}

impl Bucket {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(32);
        writer.byte(LAYOUT);
        writer.varint(self.root.0);
        writer.time(self.created);
        writer.byte(self.versioning);
        writer.byte(self.object_lock);
        writer.bytes(self.owner.as_bytes());
        writer.finish()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Bucket, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let bucket = Bucket {
            root: Ino(reader.varint()?),
            created: reader.time()?,
            versioning: reader.byte()?,
            object_lock: reader.byte()?,
            owner: reader.text()?.to_owned(),
        };
        reader.end()?;
        Ok(bucket)
    }
}
