//! Sequentially written files: their bytes go directly into one run.
//!
//! Why:        a large file becomes one extent, byte N of it byte N of a segment file, and most of it is on the device
//!             before the final sync.
//! Invariants: S1 pieces refer to an unfinished run by a special value, which is never committed: publishing ends the
//!                run first.
//!             S2 a write that does not continue the stream, or that the store refuses, is handled as usual.
//! Not here:   the run (segment), small and scattered writes (write).

use margay_segment::{Extent, RUN_BYTES_MAX, RunLength};

use crate::api::Error;
use crate::open::Volume;
use crate::open_files::pieces::{Content, Piece};
use crate::open_files::{OpenFile, STREAM_RUN_BYTES, State, Stream};

/// Write-back is started after this many bytes.
const WRITE_BACK_BYTES: u64 = 32 << 20;

impl Volume {
    /// Whether this many bytes continue the file's stream; then there is space for them, as far as known.
    pub(crate) fn stream_takes(&self, state: &mut State, offset: u64, len: u64) -> Result<bool, Error> {
        let Some(stream) = &mut state.stream else { return Ok(false) };
        let continues = stream.end() == offset && state.pieces.end() == offset;
        if !continues || stream.writer.taken() + len > RUN_BYTES_MAX {
            return Ok(false);
        }
        stream.writer.reserve(len)?;
        Ok(true)
    }

    /// Appends to the stream. The write was already answered: bytes that the store refuses stay buffered.
    pub(crate) fn put_into_stream(&self, file: &OpenFile, state: &mut State, offset: u64, bytes: &[u8]) {
        let Some(stream) = &mut state.stream else { return self.put_into_memory(state, offset, bytes) };
        assert_eq!((stream.end(), state.pieces.end()), (offset, offset), "a stream continues at the file's end (S2)");
        let skip = stream.writer.taken();
        if let Err(error) = stream.writer.write(bytes) {
            tracing::warn!(ino = file.ino.0, offset, %error, "written bytes wait in memory, the store did not take them");
            return self.put_into_memory(state, offset, bytes);
        }
        state.pieces.push(Piece::stored(Extent { run: stream.run(), skip, len: bytes.len() as u64 }));
        if stream.writer.taken() - stream.synced >= WRITE_BACK_BYTES {
            stream.synced = stream.writer.taken();
            // The sync that waits for these bytes reports the error.
            let _ = self.store.start_sync(stream.writer.segment());
        }
    }

    /// Writes buffered bytes to the store: into a new stream if they are one stretch at the end of the file.
    pub(crate) fn make_memory_free(&self, file: &OpenFile, state: &mut State) -> Result<(), Error> {
        self.open_files.note_large(file.ino);
        let memory = state.pieces.memory();
        let stream_bytes_min = self.options.file_memory_bytes_max / 2;
        let tail = state.pieces.last().filter(|(_, piece)| {
            matches!(piece.content, Content::Memory(_)) && piece.len == memory && memory >= stream_bytes_min
        });
        let Some(start) = tail.map(|(start, _)| start) else {
            self.write_out(file, state)?;
            self.defragment(file, state);
            return Ok(());
        };
        // One stream at a time.
        self.end_stream(state)?;
        let writer = self.store.begin(RunLength::Growing, &file.ino.0.to_be_bytes())?;
        let mut stream = Stream { writer, start, synced: 0 };
        if let Some((_, Piece { content: Content::Memory(bytes), .. })) = state.pieces.last() {
            stream.writer.write(bytes)?;
        }
        let segment = stream.writer.segment();
        state.pins.insert(segment, stream.writer.pin());
        state.pieces.replace(start, Piece::stored(Extent { run: stream.run(), skip: 0, len: memory }));
        state.stream = Some(Box::new(stream));
        assert_eq!(state.pieces.memory(), 0, "a stream begins with all that was in memory");
        self.open_files.memory_changed(memory, 0);
        Ok(())
    }

    /// Ends the stream's run: pieces refer to it in its final form. If that fails, the stream continues.
    pub(crate) fn end_stream(&self, state: &mut State) -> Result<(), Error> {
        let Some(stream) = &mut state.stream else { return Ok(()) };
        let pin = stream.writer.pin();
        let run = stream.writer.end()?;
        state.stream = None;
        for extent in state.pieces.extents_mut() {
            if extent.run.segment == run.segment && extent.run.len == STREAM_RUN_BYTES {
                extent.run = run;
            }
        }
        state.written_out(run.segment, pin);
        Ok(())
    }
}
