//! A directory's record: its parent and its sort name there.
//!
//! Layout:     1, parent ino, sort name to the end. The root of a bucket has parent 0 and the bucket's name.
//! Invariants: D1 the row changes in the same batch as the entry that it mirrors.

use super::wire::{Damaged, Reader, Writer};
use crate::ino::Ino;

const LAYOUT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryRecord {
    pub parent: Ino,
    pub sort_name: String,
}

impl DirectoryRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(12 + self.sort_name.len());
        writer.byte(LAYOUT);
        writer.varint(self.parent.0);
        writer.raw(self.sort_name.as_bytes());
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<DirectoryRecord, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        Ok(DirectoryRecord { parent: Ino(reader.varint()?), sort_name: reader.text_to_end()?.to_owned() })
    }
}
