//! The last line of a small text file: a checksum of all lines before it.
//!
//! Why:        a flipped bit turns a key into another key, or a line into a comment. Such a file must be refused.
//! Layout:     docs/format/directory.md. A person who edits a file removes the line; the server then writes it again.
//! Invariants: L1 a file with the line is read only if the checksum is right and nothing follows the line.
//! Not here:   the content of the files (keys, encryption_keys, identities, lifecycle).

use std::io;
use std::path::Path;

use crate::{Env, files};

const BEGIN: &str = "# checksum ";
const REST: &str = " of all above (take this line off after a change by hand)\n";

/// Why a file is not believed; what to do is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is damaged or was changed: its last line is the checksum of others (put a copy of the file back; after a \
     change by hand, take the line off that begins with \"# checksum\")"
)]
pub struct Mismatch;

/// The text of a file, and whether it has its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked<'a> {
    pub text: &'a [u8],
    pub has_checksum: bool,
}

fn line(text: &[u8]) -> String {
    format!("{BEGIN}{:08x}{REST}", crc32c::crc32c(text))
}

/// Appends the checksum line to the text.
pub fn with(mut text: Vec<u8>) -> Vec<u8> {
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    let line = line(&text);
    text.extend_from_slice(line.as_bytes());
    text
}

/// Removes the line and verifies the checksum.
pub fn check(bytes: &[u8]) -> Result<Checked<'_>, Mismatch> {
    let begins = |at: usize| at == 0 || bytes[at - 1] == b'\n';
    let found = (0..bytes.len()).rev().find(|at| begins(*at) && bytes[*at..].starts_with(BEGIN.as_bytes()));
    match found {
        None => Ok(Checked { text: bytes, has_checksum: false }),
        Some(at) if bytes[at..] == *line(&bytes[..at]).as_bytes() => {
            Ok(Checked { text: &bytes[..at], has_checksum: true })
        }
        Some(_) => Err(Mismatch),
    }
}

/// Adds the line to a file of an earlier version; if that fails, the file stays as it is.
pub fn add(env: &Env, path: &Path, text: &[u8]) {
    if let Err(error) = write(env, path, text.to_vec()) {
        tracing::info!(%error, path = %path.display(), "this file could not be given a checksum");
    }
}

/// Creates or replaces the file as a whole, durably.
pub fn write(env: &Env, path: &Path, text: Vec<u8>) -> io::Result<()> {
    files::write_new(env, path, &with(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_told_or_changes_nothing() {
        let text = b"# keys\n3abc\nname 4def\n".to_vec();
        let whole = with(text.clone());
        assert_eq!(check(&whole), Ok(Checked { text: &text, has_checksum: true }));
        assert_eq!(check(&text), Ok(Checked { text: &text, has_checksum: false }));
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Otherwise the flip destroyed the line itself or its beginning; then the form of the keys is checked.
            if let Ok(checked) = check(&flipped) {
                assert!(!checked.has_checksum && bit / 8 >= text.len() - 1, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_changed_file_is_refused_until_its_line_is_taken_off() {
        let mut whole = with(b"one\n".to_vec());
        whole.splice(0..0, *b"new\n");
        assert_eq!(check(&whole), Err(Mismatch));
        whole.truncate(8);
        assert_eq!(check(&whole), Ok(Checked { text: b"new\none\n", has_checksum: false }));
        assert_eq!(check(&[&with(b"one\n".to_vec())[..], b"more\n"].concat()), Err(Mismatch));
        assert_eq!(check(b""), Ok(Checked { text: b"", has_checksum: false }));
    }
}
