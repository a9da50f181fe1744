//! Rows as a byte stream, written and read sequentially.
//!
//! Layout:     docs/format/backup.md.
//! Invariants: R1 a file that was truncated or changed does not read to its end.
//!             R2 a decoder never panics and uses at most `BLOCK_BYTES_MAX` of memory.
//! Not here:   what the rows mean.

use std::io::{Read, Write};

use margay_meta::{OLD_KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::api::Error;

const MAGIC: [u8; 8] = *b"mgyrows\n";
/// The version that this build writes, and the newest that it reads.
const VERSION: u32 = 1;
const FILE_HEADER_BYTES: usize = 16;
/// Length, checksum.
const BLOCK_HEADER_BYTES: usize = 8;
/// A block is written when it has this many bytes.
const BLOCK_BYTES: usize = 256 << 10;
/// Largest block, in bytes: one row may come on top.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + ROW_HEADER_BYTES + OLD_KEY_BYTES_MAX + VALUE_BYTES_MAX;
/// Length of the key, length of the value.
const ROW_HEADER_BYTES: usize = 8;

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("the rows are damaged: {what}"))
}

fn io(error: std::io::Error) -> Error {
    margay_segment::SegmentError::from(error).into()
}

/// Writes rows behind each other.
#[derive(Debug)]
pub(super) struct RowsWriter<W> {
    to: W,
    block: Vec<u8>,
    rows: u64,
    /// Of all blocks so far.
    crc: u32,
}

impl<W: Write> RowsWriter<W> {
    pub(super) fn begin(mut to: W) -> Result<RowsWriter<W>, Error> {
        let mut header = [0; FILE_HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        to.write_all(&header).map_err(io)?;
        Ok(RowsWriter { to, block: Vec::new(), rows: 0, crc: 0 })
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        assert!(key.len() <= OLD_KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX, "an engine holds no larger rows");
        self.block.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.block.extend_from_slice(key);
        self.block.extend_from_slice(value);
        self.rows += 1;
        if self.block.len() >= BLOCK_BYTES { self.write_block() } else { Ok(()) }
    }

    fn write_block(&mut self) -> Result<(), Error> {
        let block = std::mem::take(&mut self.block);
        self.crc = crc32c::crc32c_append(self.crc, &block);
        let mut header = [0; BLOCK_HEADER_BYTES];
        header[..4].copy_from_slice(&(block.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&crc32c::crc32c(&block).to_le_bytes());
        self.to.write_all(&header).map_err(io)?;
        self.to.write_all(&block).map_err(io)
    }

    /// Ends the rows; gives their number and what they were written to.
    pub(super) fn finish(mut self) -> Result<(u64, W), Error> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        let mut end = [0; BLOCK_HEADER_BYTES + 8];
        end[4..8].copy_from_slice(&self.crc.to_le_bytes());
        end[8..].copy_from_slice(&self.rows.to_le_bytes());
        self.to.write_all(&end).map_err(io)?;
        Ok((self.rows, self.to))
    }
}

/// Calls `visit` for every row in order and returns their number. Only an Ok result means that all rows were intact.
/// Reads nothing after the rows.
pub(crate) fn read_rows(
    from: &mut dyn Read,
    mut show: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut header = [0; FILE_HEADER_BYTES];
    read(from, &mut header)?;
    if header[..8] != MAGIC {
        return Err(damaged("there are none"));
    }
    let version = word(&header, 8)?;
    if version > VERSION {
        return Err(Error::Corrupt(format!("the rows have format {version}: restore them with a newer margay")));
    }
    if word(&header, 12)? != 0 {
        return Err(damaged("their header is not as it was written"));
    }
    let (mut rows, mut all) = (0_u64, 0);
    let mut block = Vec::new();
    loop {
        let mut header = [0; BLOCK_HEADER_BYTES];
        read(from, &mut header)?;
        let (len, crc) = (word(&header, 0)? as usize, word(&header, 4)?);
        if len == 0 {
            let mut count = [0; 8];
            read(from, &mut count)?;
            let whole = crc == all && u64::from_le_bytes(count) == rows;
            return if whole { Ok(rows) } else { Err(damaged("their end does not fit what came before")) };
        }
        if len > BLOCK_BYTES_MAX {
            return Err(damaged("a block is too long"));
        }
        block.resize(len, 0);
        read(from, &mut block)?;
        if crc32c::crc32c(&block) != crc {
            return Err(damaged("a block has the wrong checksum"));
        }
        all = crc32c::crc32c_append(all, &block);
        rows += show_block(&block, &mut show)?;
    }
}

fn show_block(mut block: &[u8], show: &mut impl FnMut(&[u8], &[u8]) -> Result<(), Error>) -> Result<u64, Error> {
    let mut rows = 0;
    while !block.is_empty() {
        let (key, value) = (word(block, 0)? as usize, word(block, 4)? as usize);
        let rest = block.get(ROW_HEADER_BYTES..).ok_or_else(|| damaged("a row is cut short"))?;
        let (Some(key_bytes), Some(value_bytes)) = (rest.get(..key), rest.get(key..key.saturating_add(value))) else {
            return Err(damaged("a row is cut short"));
        };
        show(key_bytes, value_bytes)?;
        block = &rest[key + value..];
        rows += 1;
    }
    Ok(rows)
}

fn word(bytes: &[u8], at: usize) -> Result<u32, Error> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map(u32::from_le_bytes).ok_or_else(|| damaged("they are cut short"))
}

fn read(from: &mut dyn Read, buffer: &mut [u8]) -> Result<(), Error> {
    from.read_exact(buffer).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("they are cut short"),
        _ => io(error),
    })
}
