//! One listing of a directory that is measured, checked by the number of its entries.
//!
//! Why: a mount that shows too little must not win.

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs;
use std::io;
use std::path::Path;

/// Reads all names of a directory that holds `entries` of them, with the attributes of each when `long`.
pub(crate) fn list(folder: &Path, entries: u64, long: bool) -> io::Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if long {
            entry.metadata()?;
        }
        found += 1;
    }
    expect(entries, found)
}

/// An error when another number was found than was made.
pub(crate) fn expect(made: u64, found: u64) -> io::Result<()> {
    if made == found { Ok(()) } else { Err(io::Error::other(format!("{found} of {made} entries are listed"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_that_lacks_an_entry_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        assert!(list(folder.path(), 1, true).is_ok());
        assert_eq!(list(folder.path(), 2, false).unwrap_err().to_string(), "1 of 2 entries are listed");
    }
}
