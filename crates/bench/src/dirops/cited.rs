//! What the directory index of ext2 was shown with: 10,000 files, elapsed seconds.
//!
//! Source: Daniel Phillips, "Performance of Ext2 directory operations", linux-kernel, 5 November 2001, kernel 2.4.13.

pub(crate) const NOTE: &str =
    "Cited, other hardware: ext2 of 2001, seconds of 10,000 files (times 100: us each); deleted after a remount.";
pub(crate) const COLUMNS: &[&str] = &["", "classic", "with a cached position", "indexed"];
pub(crate) const ROWS: &[&[&str]] = &[
    &["create", "4.49", "7.61", "0.30"],
    &["delete", "0.29", "0.14", "0.17"],
    &["delete in reverse", "3.64", "0.71", "0.32"],
];
