//! Dumps: the rows of one moment and the data that they refer to, as one stream.
//!
//! Why:        a stream needs no second directory: it can be piped through ssh, archived, or compared.
//! Layout:     docs/format/dump.md.
//! Invariants: D1 the rows are one snapshot, and no data that they refer to is removed until the stream has ended.
//!             D2 every run is verified before it is written, so a complete dump can be loaded.
//! Not here:   key files (given by the caller), the stream's destination, loading (the program).

mod format;
mod ranges;

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;

use margay_segment::{Run, SegmentCopy, SegmentError, SegmentId, verify_run_in};

use self::format::PieceWriter;
pub(crate) use self::format::encode_dump_header;
pub use self::format::{
    DUMP_HEADER_BYTES, DumpHeader, DumpSink, PIECE_BYTES_MAX, PiecePlace, decode_dump_header, read_dump,
    read_dump_header,
};
use self::ranges::ranges_of;
use crate::api::Error;
use crate::open::Volume;
use crate::upkeep::backup::Named;

/// A dump to make.
#[derive(Clone, Debug, Default)]
pub struct DumpRequest {
    /// Without the bytes of segments.
    pub only_rows: bool,
    /// Small files to put beside them: names and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The content of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpReport {
    pub rows: u64,
    /// Segments that the rows refer to.
    pub segments: u64,
    /// Bytes of them that were written.
    pub bytes: u64,
}

fn io(error: std::io::Error) -> Error {
    SegmentError::from(error).into()
}

impl Volume {
    /// Writes a dump. Operations continue; blocks this thread until the stream's reader has taken all. `pace` receives
    /// the bytes of segments written so far and in total, and may break to end early.
    pub fn dump(
        &self,
        to: &mut dyn Write,
        request: &DumpRequest,
        mut pace: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<DumpReport, Error> {
        let _holds = (self.store.hold_quarantine(), self.stores.readers.hold());
        let frozen = self.frozen()?;
        let named = frozen.all_named_runs()?;
        let largest = named.keys().next_back().copied().unwrap_or(SegmentId(0));
        let mut header = DumpHeader { with_data: !request.only_rows, largest, bytes: 0 };
        if header.with_data {
            self.check_all_reached(&named)?;
            for (segment, runs) in &named {
                let SegmentCopy { kind, file, .. } = self.dumped(*segment)?;
                let ranges = ranges_of(kind, runs, file.len().map_err(io)?);
                header.bytes += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            }
        }
        to.write_all(&encode_dump_header(&header)).map_err(io)?;
        let (rows, to) = frozen.write_rows(to)?;
        let mut report = DumpReport { rows, segments: named.len() as u64, bytes: 0 };
        if header.with_data {
            let mut pieces = PieceWriter::new(&mut *to);
            for (name, content) in &request.files {
                pieces.file(name, content)?;
            }
            self.write_pieces(&mut pieces, &named, &mut |done| pace(done, header.bytes))?;
            report.bytes = pieces.finish()?;
        }
        to.flush().map_err(io)?;
        Ok(report)
    }

    /// The own file if it is here, else that of another store.
    fn dumped(&self, segment: SegmentId) -> Result<SegmentCopy, Error> {
        Ok(self.store.source(segment)?)
    }

    /// Of a volume of several servers: whether each run is at a store that answers.
    pub(crate) fn check_all_reached(&self, named: &Named) -> Result<(), Error> {
        if self.stores.is_alone() {
            return Ok(());
        }
        let is_reached = |segment: SegmentId, runs: &BTreeMap<u64, Run>| {
            let end = runs.values().map(|run| run.offset.saturating_add(run.len)).max().unwrap_or_default();
            self.dumped(segment).and_then(|copy| copy.file.len().map_err(io)).is_ok_and(|len| len >= end)
        };
        let lost: Vec<SegmentId> =
            named.iter().filter(|(segment, runs)| !is_reached(**segment, runs)).map(|(segment, _)| *segment).collect();
        let Some(first) = lost.first() else { return Ok(()) };
        let text = format!(
            "{} of {} segments, {first:?} the first, are neither in this directory nor at a server that can be reached: start the other servers (margay cluster status names them)",
            lost.len(),
            named.len()
        );
        Err(Error::Unavailable(text))
    }

    fn write_pieces(
        &self,
        to: &mut PieceWriter<impl Write>,
        named: &Named,
        pace: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut done = 0;
        let mut buffer = Vec::new();
        for (segment, runs) in named {
            let SegmentCopy { kind, file, .. } = self.dumped(*segment)?;
            for run in runs.values() {
                verify_run_in(&*file, run).map_err(|error| match error {
                    SegmentError::Corrupt { .. } => Error::Corrupt(format!(
                        "{error}: run margay scrub, which names the objects; restore or remove them, then dump again"
                    )),
                    error => error.into(),
                })?;
            }
            // A log may have grown since its ranges were computed; the referenced ones have not changed.
            for range in ranges_of(kind, runs, file.len().map_err(io)?) {
                let mut offset = range.start;
                while offset < range.end {
                    buffer.resize((range.end - offset).min(PIECE_BYTES_MAX as u64) as usize, 0);
                    file.read_exact_at(&mut buffer, offset).map_err(io)?;
                    to.piece(&PiecePlace { segment: *segment, kind, offset }, &buffer)?;
                    offset += buffer.len() as u64;
                    done += buffer.len() as u64;
                    if pace(done).is_break() {
                        return Err(Error::Busy);
                    }
                }
            }
        }
        Ok(())
    }
}
