//! A bucket of another S3 store that has copies of sealed segments.
//!
//! Layout:     text name, bucket, prefix, endpoint, region, folder, byte 1 if the bucket is named in the host, byte copies.
//! Invariants: P1 texts are short, names are not empty, and it counts as one copy at least.
//!             P2 no key of the store is kept here: each server has its own.
//! Not here:   the number of a pool (copies), requests (margay-cluster).

use super::wire::{Damaged, Reader, Writer};

/// Longest of its texts, in bytes.
const TEXT_BYTES_MAX: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// For operators.
    pub name: String,
    pub bucket: String,
    /// Empty: the whole bucket. It does not end with `/`.
    pub prefix: String,
    /// URL of the store.
    pub endpoint: String,
    pub region: String,
    /// What the names of its objects begin with, behind the prefix: no other pool of any volume has it.
    pub folder: String,
    /// Requests name the bucket in the host.
    pub is_virtual: bool,
    /// A segment in it counts as so many copies.
    pub copies: u8,
}

impl Pool {
    /// P1.
    pub fn is_valid(&self) -> bool {
        let texts = [&self.name, &self.bucket, &self.prefix, &self.endpoint, &self.region, &self.folder];
        let are_short = texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control));
        let are_there = [&self.name, &self.bucket, &self.endpoint, &self.folder].iter().all(|text| !text.is_empty());
        are_short && are_there && self.copies > 0
    }

    pub(super) fn put(&self, writer: &mut Writer) {
        for text in [&self.name, &self.bucket, &self.prefix, &self.endpoint, &self.region, &self.folder] {
            writer.bytes(text.as_bytes());
        }
        writer.raw(&[self.is_virtual.into(), self.copies]);
    }

    pub(super) fn get(reader: &mut Reader<'_>) -> Result<Pool, Damaged> {
        let mut text = || reader.text().map(str::to_owned);
        let (name, bucket, prefix) = (text()?, text()?, text()?);
        let (endpoint, region, folder) = (text()?, text()?, text()?);
        let is_virtual = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(Damaged("how a bucket is named is neither of two ways")),
        };
        let pool = Pool { name, bucket, prefix, endpoint, region, folder, is_virtual, copies: reader.byte()? };
        if pool.is_valid() { Ok(pool) } else { Err(Damaged("a pool has empty or long texts, or no copies")) }
    }
}
