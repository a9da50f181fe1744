//! A body of unknown length: an upload from a browser's form.
//!
//! Why:        a run in a pack begins with its length, so bytes are buffered until a piece of known length is complete;
//!             a body that may be large gets a raw segment, whose run can grow.
//! Invariants: G1 at most [`GATHER_BYTES`] are buffered, and none beside a growing run.
//!             G2 at most as many bytes are accepted as the caller allowed.
//! Durability: none here; `Upload::finish` syncs the segments.
//! Not here:   bodies of announced length (`upload`).

use margay_segment::{Run, RunLength, RunWriter, SegmentPin, Segments};

use super::SYNC_AHEAD_BYTES;
use crate::api::Error;

/// Bytes buffered before they become a run.
const GATHER_BYTES: usize = 512 << 10;
/// A body that may exceed this size gets a segment of its own once it exceeds `GATHER_BYTES`; a shorter one becomes
/// pieces in packs.
const PIECES_BYTES_MAX: u64 = 16 << 20;

/// The bytes received so far.
#[derive(Debug)]
pub(super) struct Growing {
    /// Not yet in a run.
    gathered: Vec<u8>,
    /// Whether a run grows as bytes arrive.
    in_one_run: bool,
    run_bytes_max: u64,
    current: Option<Box<dyn RunWriter>>,
    /// Bytes written since the last sync was begun.
    unsynced: u64,
    done: Vec<Run>,
    pins: Vec<SegmentPin>,
}

/// A complete body.
pub(super) enum Grown {
    /// It never left memory.
    Gathered(Vec<u8>),
    Runs(Vec<Run>, Vec<SegmentPin>),
}

impl Growing {
    pub(super) fn new(len_max: u64, run_bytes_max: u64) -> Growing {
        Growing {
            gathered: Vec::new(),
            in_one_run: len_max > PIECES_BYTES_MAX,
            run_bytes_max,
            current: None,
            unsynced: 0,
            done: Vec::new(),
            pins: Vec::new(),
        }
    }

    pub(super) fn append(&mut self, store: &dyn Segments, owner: &[u8], mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            if self.in_one_run && self.current.is_some() {
                bytes = self.grow(store, owner, bytes)?;
                continue;
            }
            if self.gathered.len() == GATHER_BYTES {
                self.put_gathered(store, owner)?;
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(GATHER_BYTES - self.gathered.len()));
            self.gathered.extend_from_slice(part);
            bytes = rest;
        }
        Ok(())
    }

    /// Makes what was gathered a run, or the beginning of the one that grows, which needs nothing gathered any more.
    fn put_gathered(&mut self, store: &dyn Segments, owner: &[u8]) -> Result<(), Error> {
        let mut gathered = std::mem::take(&mut self.gathered);
        if self.in_one_run {
            let mut bytes = gathered.as_slice();
            while !bytes.is_empty() {
                bytes = self.grow(store, owner, bytes)?;
            }
            return Ok(());
        }
        let writer = self.current.insert(store.begin(RunLength::Exact(gathered.len() as u64), owner)?);
        writer.write(&gathered)?;
        self.written(store, gathered.len())?;
        gathered.clear();
        self.gathered = gathered;
        self.end_run()
    }

    /// Adds bytes to the run that grows, or to a new one when that is full; gives back what did not fit.
    fn grow<'b>(&mut self, store: &dyn Segments, owner: &[u8], bytes: &'b [u8]) -> Result<&'b [u8], Error> {
        if self.current.as_ref().is_some_and(|writer| writer.taken() >= self.run_bytes_max) {
            self.end_run()?;
        }
        let writer = match &mut self.current {
            Some(writer) => writer,
            none => none.insert(store.begin(RunLength::Growing, owner)?),
        };
        let room = usize::try_from(self.run_bytes_max - writer.taken()).unwrap_or(usize::MAX);
        let (part, rest) = bytes.split_at(bytes.len().min(room));
        writer.write(part)?;
        self.written(store, part.len())?;
        Ok(rest)
    }

    /// Begins a sync each time that enough was written.
    fn written(&mut self, store: &dyn Segments, len: usize) -> Result<(), Error> {
        self.unsynced += len as u64;
        if self.unsynced >= SYNC_AHEAD_BYTES
            && let Some(writer) = &self.current
        {
            store.start_sync(writer.segment())?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn end_run(&mut self) -> Result<(), Error> {
        if let Some(mut writer) = self.current.take() {
            self.pins.push(writer.pin());
            self.done.push(writer.end()?);
        }
        Ok(())
    }

    /// The body may stay in memory when it is no longer than `small_bytes_max`.
    pub(super) fn end(mut self, store: &dyn Segments, owner: &[u8], small_bytes_max: u64) -> Result<Grown, Error> {
        let is_small = self.gathered.len() as u64 <= small_bytes_max;
        if is_small && self.done.is_empty() && self.current.is_none() {
            return Ok(Grown::Gathered(self.gathered));
        }
        if self.current.is_none() {
            // Nothing follows.
            self.in_one_run = false;
        }
        if !self.gathered.is_empty() {
            self.put_gathered(store, owner)?;
        }
        self.end_run()?;
        Ok(Grown::Runs(self.done, self.pins))
    }
}
