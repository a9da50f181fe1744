//! What the directory index of ext2 was shown with: 10,000 files, elapsed seconds.
//!
//! Source: Daniel Phillips, "Performance of Ext2 directory operations", linux-kernel, 5 November 2001, kernel 2.4.13.

use crate::cited::Cited;

pub(crate) const EXT2_2001: Cited = Cited {
    note: "Cited, other hardware: ext2 of 2001, seconds of 10,000 files (times 100: us each); deleted after a remount.",
    columns: &["", "classic", "with a cached position", "indexed"],
    rows: &[
        &["create", "4.49", "7.61", "0.30"],
        &["delete", "0.29", "0.14", "0.17"],
        &["delete in reverse", "3.64", "0.71", "0.32"],
    ],
};
