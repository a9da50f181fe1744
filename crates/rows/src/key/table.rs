//! The table of a row's key.
//!
//! Why:        a reader of rows of all tables (backups) distinguishes them by their first byte.
//! Invariants: T1 every table byte of `key` is listed here.

use margay_meta::RowKind;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Xattr,
    Back,
    Bucket,
    Usage,
    Directory,
    Entry,
    Subdirectories,
    Setting,
    Header,
    Inos,
    Document,
    Live,
    Format,
    Inode,
    Orphan,
    Part,
    Event,
    EventBase,
    Fingerprint,
    Session,
    Location,
    /// Of formats 1 to 3.
    Share,
    /// Segments and stores.
    Segment,
    Times,
    Upload,
    Version,
    NullVersion,
    Extent,
    Identity,
    PartSizes,
    /// What a bucket of another store has and lacks.
    Upstream,
}

impl Table {
    /// `None` for a key that this program does not know.
    pub fn of(key: &[u8]) -> Option<Table> {
        Some(match *key.first()? {
            XATTR => Table::Xattr,
            BACK => Table::Back,
            LOCATION => Table::Location,
            BUCKET => Table::Bucket,
            USAGE => Table::Usage,
            DIRECTORY => Table::Directory,
            ENTRY => Table::Entry,
            SUBDIRECTORIES => Table::Subdirectories,
            SETTING => Table::Setting,
            HEADER => Table::Header,
            INOS => Table::Inos,
            DOCUMENT => Table::Document,
            LIVE => Table::Live,
            FORMAT => Table::Format,
            INODE => Table::Inode,
            ORPHAN => Table::Orphan,
            PART => Table::Part,
            EVENT => Table::Event,
            EVENT_BASE => Table::EventBase,
            FINGERPRINT => Table::Fingerprint,
            SESSION => Table::Session,
            SHARE => Table::Share,
            SEGMENT => Table::Segment,
            TIMES => Table::Times,
            UPLOAD => Table::Upload,
            VERSION => Table::Version,
            NULL_VERSION => Table::NullVersion,
            EXTENT => Table::Extent,
            IDENTITY => Table::Identity,
            PART_SIZES => Table::PartSizes,
            UPSTREAM => Table::Upstream,
            _ => return None,
        })
    }
}

/// The tables of counters, which the engine knows by these bytes.
const _: () = {
    let counters =
        [(USAGE, RowKind::Sum), (SUBDIRECTORIES, RowKind::Sum), (LIVE, RowKind::Sum), (TIMES, RowKind::Highest)];
    let mut table = 0;
    while table <= u8::MAX as usize {
        let (mut kind, mut index) = (RowKind::Plain, 0);
        while index < counters.len() {
            if counters[index].0 as usize == table {
                kind = counters[index].1;
            }
            index += 1;
        }
        assert!(kind as u8 == RowKind::of_table(table as u8) as u8, "the engine takes a table for one of another kind");
        table += 1;
    }
};
