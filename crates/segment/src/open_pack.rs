//! The open pack, in which new runs are reserved.
//!
//! Why:        the folder keeps it for all writers, under `Folder::pack`.
//! Not here:   reserving (pack), sealing (pack when it is full, store on request).

use std::sync::Arc;

use margay_env::File;

use crate::format::Salt;
use crate::segment::Segment;

#[derive(Debug)]
pub(crate) struct OpenPack {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) salt: Salt,
    /// Where the next run header goes, in bytes from the file's start.
    pub(crate) end: u64,
}
