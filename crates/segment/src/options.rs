//! Options of a store.
//!
//! Why:        the folder keeps them for writers and readers.
//! Not here:   settings of a server (the binary).

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Options {
    /// The folder that holds the segment files.
    pub folder: PathBuf,
    /// A pack is sealed at this size, in bytes.
    pub pack_bytes_max: u64,
    /// Runs of at least this many bytes get a raw segment of their own.
    pub raw_bytes_min: u64,
    /// Data writes fail with `Full` when the file system has less than this many bytes free.
    pub reserve_bytes: u64,
    /// Some files may be on a disk that is not there: no id that one of them has is given again.
    pub files_may_be_missing: bool,
}

impl Options {
    /// The usual sizes: packs of 128 MiB, raw segments from 16 MiB on, 64 MiB in reserve.
    pub fn new(folder: impl Into<PathBuf>) -> Options {
        Options {
            folder: folder.into(),
            pack_bytes_max: 128 << 20,
            raw_bytes_min: 16 << 20,
            reserve_bytes: 64 << 20,
            files_may_be_missing: false,
        }
    }
}
