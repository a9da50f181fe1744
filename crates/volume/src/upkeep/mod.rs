//! Work beside the requests: reclaiming space, checks, backups.
//!
//! Not here:   when it runs (margay-jobs, the server).

pub(crate) mod backup;
pub(crate) mod dump;
mod fsck;
mod reclaim;
mod scrub;

pub use self::backup::{
    BackupError, BackupReport, Ends, Part, PartName, Pruned, Putting, RESTORED_ROWS_PER_BATCH, moments, named_segments,
    prune, restore_rows, segments_of,
};
pub use self::dump::{
    DUMP_HEADER_BYTES, DumpHeader, DumpReport, DumpRequest, DumpSink, PIECE_BYTES_MAX, PiecePlace, decode_dump_header,
    read_dump, read_dump_header,
};
pub use self::fsck::{Finding, FindingKind, FsckOptions, FsckReport};
pub use self::reclaim::{KeepLogs, LogRelease, ReclaimBudget, Reclaimed, SealedLogs};
pub use self::scrub::{DamagedData, ScrubReport};
