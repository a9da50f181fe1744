//! Multipart uploads under way: the upload, its parts, and the part sizes of a completed object.
//!
//! Layout:     upload: 1, ino, initiated, headers
//!             part: 1, flags, ino, size, modified, etag digest 16, data, headers
//!             part sizes: 1, then for each stretch of equal parts: count, size
//! Invariants: a part's bytes are never inline, so that a completed object is a list of extents.

use margay_env::Timestamp;

use super::data::Data;
use super::headers;
use super::wire::{Damaged, Reader, Writer};
use crate::api::{Headers, PART_NUMBER_MAX};
use crate::key::Ino;

const LAYOUT: u8 = 1;
/// Some of its runs have, or once had, other owners.
const FLAG_SHARED: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadRecord {
    pub(crate) ino: Ino,
    pub(crate) initiated: Timestamp,
    pub(crate) headers: Headers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartRecord {
    pub(crate) ino: Ino,
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    pub(crate) digest: [u8; 16],
    pub(crate) shared: bool,
    pub(crate) data: Data,
    pub(crate) headers: Headers,
}

impl UploadRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(64);
        writer.byte(LAYOUT);
        writer.varint(self.ino.0);
        writer.time(self.initiated);
        headers::encode(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut writer);
        writer.finish()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<UploadRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let record = UploadRecord {
            ino: Ino(reader.varint()?),
            initiated: reader.time()?,
            headers: headers::decode(&mut reader)?,
        };
        reader.end()?;
        Ok(record)
    }
}

impl PartRecord {
    /// The value, and where its first extent's segment field is.
    pub(crate) fn encode(&self) -> (Vec<u8>, Option<usize>) {
        let mut writer = Writer::new(96);
        writer.byte(LAYOUT);
        writer.byte(if self.shared { FLAG_SHARED } else { 0 });
        writer.varint(self.ino.0);
        writer.varint(self.size);
        writer.time(self.modified);
        writer.raw(&self.digest);
        let first_extent = self.data.encode(&mut writer);
        headers::encode(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut writer);
        (writer.finish(), first_extent)
    }

    pub(crate) fn decode(value: &[u8]) -> Result<PartRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let flags = reader.byte()?;
        let record = PartRecord {
            ino: Ino(reader.varint()?),
            size: reader.varint()?,
            modified: reader.time()?,
            digest: reader.array()?,
            shared: flags & FLAG_SHARED != 0,
            data: Data::decode(&mut reader)?,
            headers: headers::decode(&mut reader)?,
        };
        reader.end()?;
        Ok(record)
    }
}

pub(crate) fn encode_part_sizes(sizes: &[u64]) -> Vec<u8> {
    let mut writer = Writer::new(16);
    writer.byte(LAYOUT);
    for stretch in sizes.chunk_by(|left, right| left == right) {
        writer.varint(stretch.len() as u64);
        writer.varint(stretch[0]);
    }
    writer.finish()
}

pub(crate) fn decode_part_sizes(value: &[u8], parts: u16) -> Result<Vec<u64>, Damaged> {
    let mut reader = Reader::new(value);
    reader.layout(LAYOUT)?;
    let parts = usize::from(parts.min(PART_NUMBER_MAX));
    let mut sizes = Vec::with_capacity(parts);
    while sizes.len() < parts {
        let (count, size) = (reader.small::<usize>()?, reader.varint()?);
        if count == 0 || count > parts - sizes.len() {
            return Err(Damaged("wrong number of part sizes"));
        }
        sizes.extend(std::iter::repeat_n(size, count));
    }
    reader.end()?;
    Ok(sizes)
}
