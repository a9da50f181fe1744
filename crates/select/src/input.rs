//! The object's format, and its bytes on their way to the record reader: decompressed, cut to a scan range.
//!
//! Why:        a few compressed bytes may expand to very many, so they are decompressed in small steps.
//! Invariants: I1 one step gives the reader at most about 1000 times `COMPRESSED_STEP_BYTES`, deflate's maximum ratio.

use std::io::Write as _;

use flate2::write::MultiGzDecoder;

use crate::csv::CsvInput;
use crate::csv::reader as csv;
use crate::error::{Error, Kind};
use crate::json::reader as json;
use crate::scan_range::ScanRange;

/// Compressed bytes per decompression step.
const COMPRESSED_STEP_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    None,
    Gzip,
}

/// The format of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputFormat {
    Csv(CsvInput),
    /// A sequence of documents: one per line, or a single one.
    Json,
}

/// The record reader of a format.
#[derive(Debug)]
pub(crate) enum Reader {
    Csv(csv::Reader),
    Json(json::Reader),
}

impl Reader {
    fn push(&mut self, bytes: &[u8]) {
        match self {
            Reader::Csv(reader) => reader.push(bytes),
            Reader::Json(reader) => reader.push(bytes),
        }
    }
}

/// The input of a selection.
pub(crate) struct Source {
    decoder: Option<MultiGzDecoder<Vec<u8>>>,
    range: Option<ScanRange>,
    waiting: Vec<u8>,
    at: usize,
    /// No more bytes follow.
    ended: bool,
    processed: u64,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Source").field("processed", &self.processed).finish_non_exhaustive()
    }
}

impl Source {
    pub(crate) fn new(compression: Compression) -> Source {
        let decoder = (compression == Compression::Gzip).then(|| MultiGzDecoder::new(Vec::new()));
        Source { decoder, range: None, waiting: Vec::new(), at: 0, ended: false, processed: 0 }
    }

    /// From now on, bytes belong to this range; buffered bytes are discarded.
    pub(crate) fn restrict(&mut self, range: ScanRange) {
        (self.waiting, self.at, self.range) = (Vec::new(), 0, Some(range));
    }

    /// Decompressed bytes given to the reader.
    pub(crate) fn processed(&self) -> u64 {
        self.processed
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.waiting.drain(..self.at);
        self.at = 0;
        self.waiting.extend_from_slice(bytes);
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// The reader has been given all bytes.
    pub(crate) fn is_over(&self) -> bool {
        let is_empty = self.at == self.waiting.len() && self.decoder.is_none();
        (self.ended && is_empty) || self.range.as_ref().is_some_and(ScanRange::is_over)
    }

    /// Gives the reader more bytes; returns whether there were any.
    pub(crate) fn feed(&mut self, reader: &mut Reader) -> Result<bool, Error> {
        let rest = self.waiting.get(self.at..).unwrap_or_default();
        let Some(decoder) = &mut self.decoder else {
            if rest.is_empty() {
                return Ok(false);
            }
            let bytes = self.range.as_mut().map_or(rest, |range| range.filter(rest));
            self.processed += bytes.len() as u64;
            reader.push(bytes);
            self.at = self.waiting.len();
            return Ok(true);
        };
        let corrupt = |_| Error::new(Kind::InvalidCompression, "The object is not in the format GZIP, or is damaged");
        if !rest.is_empty() {
            let step = &rest[..rest.len().min(COMPRESSED_STEP_BYTES)];
            decoder.write_all(step).map_err(corrupt)?;
            self.at += step.len();
        } else if self.ended {
            decoder.try_finish().map_err(corrupt)?;
        } else {
            return Ok(false);
        }
        let bytes = std::mem::take(decoder.get_mut());
        self.processed += bytes.len() as u64;
        reader.push(&bytes);
        if self.ended && self.at == self.waiting.len() && bytes.is_empty() {
            self.decoder = None;
        }
        Ok(true)
    }
}
