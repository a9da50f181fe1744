//! Creates new data directories from dumps.
//!
//! Invariants: L1 the directory gets its name after the whole stream was read and its checksums were right; then every
//!                row and every run is read again from its location.
//!             L2 segments keep their ids and offsets, so the rows are those of the dump; ranges that no row names
//!                become holes.
//! Not here:   the format (margay-volume), the directory itself (`restore`), the command (`cli::dump`).

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use margay_env::files;
use margay_env::{File, OpenMode};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::{SegmentId, segment_name};
use margay_volume::{DumpHeader, DumpSink, Error, PiecePlace, Putting, read_dump, read_dump_header};
use serde_json::{Value, json};

use crate::backup::KEY_FILES;
use crate::datadir::DataDir;
use crate::exit::Failure;
use crate::restore;
use crate::settings::StorageLimits;

/// Creates a new data directory from a dump and verifies it; blocks. `from` names the stream's source in messages. Must
/// be called inside a tokio runtime.
pub fn load(
    env: &margay_env::Env,
    stream: &mut dyn Read,
    from: &str,
    data: &Path,
    limits: &StorageLimits,
) -> Result<Value, Failure> {
    let fail = |error: &Error| Failure::failed(format!("{from} was not loaded: {error}"));
    let header = read_dump_header(stream).map_err(|error| fail(&error))?;
    if !header.with_data && header.largest != SegmentId(0) {
        return Err(Failure::refused(format!(
            "{from} holds rows only (it was made with --rows), so there is no data to load; make a dump without --rows"
        )));
    }
    let rows = restore::make_new(env, data, |dir| {
        fill(dir, stream, &header, limits).map_err(|error| format!("{from}: {error}"))
    })?;
    let mut done = restore::check(env, data, limits, true)?;
    done["rows"] = json!(rows);
    Ok(done)
}

fn fill(dir: &DataDir, stream: &mut dyn Read, header: &DumpHeader, limits: &StorageLimits) -> Result<u64, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let segments = dir.segments();
    dir.env.disk.create_dir_all(&segments).map_err(|error| text(&error))?;
    restore::begin_ids_above(&dir.env, &segments, header.largest).map_err(|error| text(&error))?;
    let engine = restore::new_engine(dir, limits)?;
    let mut loading = Loading { dir, engine: &engine, putting: Putting::new(&engine, |_| ()), open: None, rows: 0 };
    read_dump(stream, header, &mut loading).map_err(|error| text(&error))?;
    let rows = loading.end().map_err(|error| text(&error))?;
    engine.checkpoint().map_err(|error| text(&error))?;
    Ok(rows)
}

/// A directory that is being filled.
struct Loading<'a, P> {
    dir: &'a DataDir,
    engine: &'a EmbeddedEngine,
    putting: Putting<'a, P>,
    /// The segment that receives the next pieces.
    open: Option<(SegmentId, Arc<dyn File>)>,
    rows: u64,
}

impl<P: FnMut(u64)> Loading<'_, P> {
    fn close(&mut self) -> Result<(), Error> {
        match self.open.take() {
            Some((_, file)) => Ok(file.sync_data()?),
            None => Ok(()),
        }
    }

    /// The whole stream was read; returns the number of rows.
    fn end(mut self) -> Result<u64, Error> {
        self.close()?;
        let disk = &self.dir.env.disk;
        disk.sync_dir(&self.dir.segments())?;
        disk.sync_dir(&self.dir.path)?;
        Ok(self.rows)
    }
}

impl<P: FnMut(u64)> DumpSink for Loading<'_, P> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.putting.put(key.to_vec(), value.to_vec())
    }

    fn rows_end(&mut self) -> Result<(), Error> {
        self.rows = self.putting.finish()?;
        // Rows in the tree need no log while the segments arrive.
        Ok(self.engine.checkpoint()?)
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        if !KEY_FILES.contains(&name) {
            return Err(Error::Corrupt(format!("the dump holds a file {name:?} that this margay does not know")));
        }
        Ok(files::replace_content(&self.dir.env, &self.dir.path.join(name), bytes)?)
    }

    fn piece(&mut self, place: &PiecePlace, bytes: &[u8]) -> Result<(), Error> {
        let file = match &self.open {
            Some((segment, file)) if *segment == place.segment => file,
            _ => {
                self.close()?;
                let path = self.dir.segments().join(segment_name(place.segment, place.kind));
                let file = self.dir.env.disk.open(&path, OpenMode::CreateNew)?;
                &self.open.insert((place.segment, file)).1
            }
        };
        Ok(file.write_all_at(bytes, place.offset)?)
    }
}
