//! Multipart uploads under way: the upload, its parts, and the part sizes of a completed object.
//!
//! Layout:     upload: 2, ino, initiated, headers, count, for each document: kind, bytes
//!                     1 (volumes of formats 1 and 2): without documents
//!             part: 1, flags, ino, size, modified, etag digest 16, data, headers
//!             part sizes: 1, then for each stretch of equal parts: count, size
//!             part checksums: 1, then for each part: headers
//! Invariants: a part's bytes are never inline, so that a completed object is a list of extents.

use bytes::Bytes;
use margay_env::Timestamp;
use margay_segment::Extent;

use super::data::Data;
use super::headers;
use super::wire::{Damaged, Reader, Writer};
use crate::ino::Ino;
use crate::kinds::Documents;
use crate::numbered::{Numbered, kind_of};
use crate::values::{Headers, PART_NUMBER_MAX};

const LAYOUT: u8 = 1;
const UPLOAD_LAYOUT: u8 = 2;
const UPLOAD_LAYOUT_WITHOUT_DOCUMENTS: u8 = 1;
/// In formats 1 to 3 this byte told whether a run had other owners.
const NO_FLAGS: u8 = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRecord {
    pub ino: Ino,
    pub initiated: Timestamp,
    pub headers: Headers,
    /// What the object gets.
    pub documents: Documents,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRecord {
    pub ino: Ino,
    pub size: u64,
    pub modified: Timestamp,
    pub digest: [u8; 16],
    pub data: Data,
    pub headers: Headers,
}

impl UploadRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(64);
        writer.byte(UPLOAD_LAYOUT);
        writer.varint(self.ino.0);
        writer.time(self.initiated);
        headers::encode(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut writer);
        writer.varint(self.documents.len() as u64);
        for (kind, document) in &self.documents {
            writer.byte(kind.number());
            writer.bytes(document);
        }
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<UploadRecord, Damaged> {
        let mut reader = Reader::new(value);
        let layout = reader.byte()?;
        if layout != UPLOAD_LAYOUT && layout != UPLOAD_LAYOUT_WITHOUT_DOCUMENTS {
            return Err(Damaged("unknown layout"));
        }
        let record = UploadRecord {
            ino: Ino(reader.varint()?),
            initiated: reader.time()?,
            headers: headers::decode(&mut reader)?,
            documents: if layout == UPLOAD_LAYOUT { decode_documents(&mut reader)? } else { Documents::new() },
        };
        reader.end()?;
        Ok(record)
    }
}

fn decode_documents(reader: &mut Reader<'_>) -> Result<Documents, Damaged> {
    let mut documents = Documents::new();
    for _ in 0..reader.varint()? {
        let kind = kind_of(reader.byte()?).ok_or(Damaged("unknown document"))?;
        documents.insert(kind, Bytes::copy_from_slice(reader.bytes()?));
    }
    Ok(documents)
}

impl PartRecord {
    /// Where its bytes are; a part is neither inline nor in rows.
    pub fn extents(&self) -> Result<&[Extent], Damaged> {
        match &self.data {
            Data::Extents(extents) => Ok(extents),
            Data::Inline(_) | Data::Rows => Err(Damaged("a part without extents")),
        }
    }

    /// The value, and where its first extent's segment field is.
    pub fn encode(&self) -> (Vec<u8>, Option<usize>) {
        assert!(matches!(self.data, Data::Extents(_)), "a part's bytes are never inline");
        let mut writer = Writer::new(96);
        writer.byte(LAYOUT);
        writer.byte(NO_FLAGS);
        writer.varint(self.ino.0);
        writer.varint(self.size);
        writer.time(self.modified);
        writer.raw(&self.digest);
        let first_extent = self.data.encode(&mut writer);
        headers::encode(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut writer);
        (writer.finish(), first_extent)
    }

    pub fn decode(value: &[u8]) -> Result<PartRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        reader.byte()?;
        let record = PartRecord {
            ino: Ino(reader.varint()?),
            size: reader.varint()?,
            modified: reader.time()?,
            digest: reader.array()?,
            data: Data::decode(&mut reader)?,
            headers: headers::decode(&mut reader)?,
        };
        reader.end()?;
        record.extents()?;
        Ok(record)
    }
}

pub fn encode_part_sizes(sizes: &[u64]) -> Vec<u8> {
    assert!(sizes.len() <= usize::from(PART_NUMBER_MAX), "no more sizes are read back");
    let mut writer = Writer::new(16);
    writer.byte(LAYOUT);
    for stretch in sizes.chunk_by(|left, right| left == right) {
        writer.varint(stretch.len() as u64);
        writer.varint(stretch[0]);
    }
    writer.finish()
}

pub fn decode_part_sizes(value: &[u8], parts: u16) -> Result<Vec<u64>, Damaged> {
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

/// Parts in one row of checksums.
pub const CHECKSUM_PARTS: usize = 500;

/// The checksums of parts, as the headers that they were stored with.
pub fn encode_part_checksums<'a>(parts: impl Iterator<Item = &'a Headers>) -> Vec<u8> {
    let mut writer = Writer::new(CHECKSUM_PARTS * 16);
    writer.byte(LAYOUT);
    for checksums in parts {
        headers::encode(checksums.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut writer);
    }
    writer.finish()
}

pub fn decode_part_checksums(value: &[u8]) -> Result<Vec<Headers>, Damaged> {
    let mut reader = Reader::new(value);
    reader.layout(LAYOUT)?;
    let mut parts = Vec::new();
    while !reader.is_empty() {
        parts.push(headers::decode(&mut reader)?);
    }
    Ok(parts)
}
