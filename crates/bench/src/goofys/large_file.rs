//! One large file, written and read with its checksum, and its first bytes.

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use md5::{Digest, Md5};

use crate::error::BenchError;
use crate::random::Rng;
use crate::side_by_side::Round;
use crate::stop::Stop;

/// Bytes of one call.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that are read for the first byte: a sector.
const FIRST_BYTES: usize = 512;

type Checksum = [u8; 16];

pub(super) fn measure(round: &mut Round<'_>, bytes: u64, cold: bool) -> Result<(), BenchError> {
    let (folder, path, stop) = (round.root, &round.root.join("large"), round.stop);
    let (mut written, mut found) = (Checksum::default(), Checksum::default());
    super::timed(round, "write", || {
        written = write(path, bytes, stop)?;
        File::open(folder)?.sync_all()
    })?;
    super::timed(round, "read", || {
        found = read(path, stop)?;
        Ok(())
    })?;
    if found != written {
        let reason = "other bytes are read than were written".to_owned();
        return Err(BenchError::Nonsense { request: path.display().to_string(), reason });
    }
    super::chill(round, cold)?;
    super::timed(round, "first byte", || {
        let mut first = Vec::with_capacity(FIRST_BYTES);
        File::open(path)?.take(FIRST_BYTES as u64).read_to_end(&mut first).map(drop)
    })?;
    round.timed(|| fs::remove_file(path)).map(drop)
}

/// Writes bytes that nothing can compress, to the disk: without its fsync a local file system would not write at all.
fn write(path: &Path, bytes: u64, stop: &Stop) -> io::Result<Checksum> {
    let (mut random, mut checksum) = (Rng::new(bytes), Md5::new());
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let (mut piece, mut left) = (vec![0; PIECE_BYTES], bytes);
    while left > 0 {
        stop.go_on()?;
        piece.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        let piece = &piece[..left.min(PIECE_BYTES as u64) as usize];
        checksum.update(piece);
        file.write_all(piece)?;
        left -= piece.len() as u64;
    }
    file.sync_all()?;
    Ok(checksum.finalize().into())
}

fn read(path: &Path, stop: &Stop) -> io::Result<Checksum> {
    let (mut file, mut piece, mut checksum) = (File::open(path)?, vec![0; PIECE_BYTES], Md5::new());
    loop {
        stop.go_on()?;
        match file.read(&mut piece)? {
            0 => return Ok(checksum.finalize().into()),
            count => checksum.update(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_changes_the_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        let bytes = PIECE_BYTES as u64 + 13;
        let stop = Stop::default();
        let written = write(&path, bytes, &stop).unwrap();
        assert_eq!((fs::metadata(&path).unwrap().len(), read(&path, &stop).unwrap()), (bytes, written));
        let mut content = fs::read(&path).unwrap();
        content[PIECE_BYTES] ^= 1;
        fs::write(&path, content).unwrap();
        assert_ne!(read(&path, &stop).unwrap(), written);
        stop.set();
        assert_eq!(read(&path, &stop).unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
