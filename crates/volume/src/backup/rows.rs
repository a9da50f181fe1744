//! The rows of a backup as bytes: one file, read from its front to its end.
//!
//! Layout:     docs/format/backup.md.
//! Invariants: R1 a file that was cut short, or of which any byte changed, does not read to its end.
//!             R2 a decoder never panics and takes no more memory than `BLOCK_BYTES_MAX`.
//! Not here:   what the rows mean.

use std::sync::Arc;

use margay_env::File;
use margay_meta::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

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
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + ROW_HEADER_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX;
/// Length of the key, length of the value.
const ROW_HEADER_BYTES: usize = 8;

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("the rows of the backup are damaged: {what}"))
}

fn io(error: std::io::Error) -> Error {
    margay_segment::SegmentError::from(error).into()
}

/// Writes rows behind each other; not durable before [`RowsWriter::finish`].
#[derive(Debug)]
pub(super) struct RowsWriter {
    file: Arc<dyn File>,
    at: u64,
    block: Vec<u8>,
    rows: u64,
    /// Of all blocks so far.
    crc: u32,
}

impl RowsWriter {
    /// The file is empty.
    pub(super) fn begin(file: Arc<dyn File>) -> Result<RowsWriter, Error> {
        let mut header = [0; FILE_HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all_at(&header, 0).map_err(io)?;
        Ok(RowsWriter { file, at: FILE_HEADER_BYTES as u64, block: Vec::new(), rows: 0, crc: 0 })
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        assert!(key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX, "an engine holds no larger rows");
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
        self.file.write_all_at(&header, self.at).map_err(io)?;
        self.file.write_all_at(&block, self.at + BLOCK_HEADER_BYTES as u64).map_err(io)?;
        self.at += (BLOCK_HEADER_BYTES + block.len()) as u64;
        Ok(())
    }

    /// Ends the file, makes it durable, and gives the number of rows.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        let mut end = [0; BLOCK_HEADER_BYTES + 8];
        end[4..8].copy_from_slice(&self.crc.to_le_bytes());
        end[8..].copy_from_slice(&self.rows.to_le_bytes());
        self.file.write_all_at(&end, self.at).map_err(io)?;
        self.file.sync_data().map_err(io)?;
        Ok(self.rows)
    }
}

/// Shows every row in order; the last one was shown only when this gives Ok.
pub(crate) fn read_rows(
    file: &dyn File,
    mut show: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut header = [0; FILE_HEADER_BYTES];
    read(file, &mut header, 0)?;
    if header[..8] != MAGIC {
        return Err(damaged("it is no file of rows"));
    }
    let version = word(&header, 8)?;
    if version > VERSION {
        return Err(Error::Corrupt(format!("the backup's rows have format {version}: restore it with a newer margay")));
    }
    let (mut at, mut rows, mut all) = (FILE_HEADER_BYTES as u64, 0_u64, 0);
    let mut block = Vec::new();
    loop {
        let mut header = [0; BLOCK_HEADER_BYTES];
        read(file, &mut header, at)?;
        at += BLOCK_HEADER_BYTES as u64;
        let (len, crc) = (word(&header, 0)? as usize, word(&header, 4)?);
        if len == 0 {
            let mut count = [0; 8];
            read(file, &mut count, at)?;
            let whole = crc == all && u64::from_le_bytes(count) == rows;
            return if whole { Ok(rows) } else { Err(damaged("its end does not fit what came before")) };
        }
        if len > BLOCK_BYTES_MAX {
            return Err(damaged("a block is too long"));
        }
        block.resize(len, 0);
        read(file, &mut block, at)?;
        at += len as u64;
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
    word.map(u32::from_le_bytes).ok_or_else(|| damaged("it is cut short"))
}

fn read(file: &dyn File, buffer: &mut [u8], at: u64) -> Result<(), Error> {
    file.read_exact_at(buffer, at).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("it is cut short"),
        _ => io(error),
    })
}
