//! `margay bench stream`: one large file, written and read from front to back.
//!
//! Why:        this is what a mount of an object store does best, and where copies and checksums show.
//! Invariants: a read is cold only when the kernel has dropped every page it could, which only root may ask for; without
//!             that right the row is left out, and said so.
//! Not here:   turns and reports (side_by_side).

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::error::BenchError;
use crate::kernel_caches;
use crate::load::byte_count;
use crate::random::Rng;
use crate::side_by_side::{self, MB_PER_SECOND, Round, SideBySideArgs, Suite};
use crate::stop::Stop;

/// Bytes of one call.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench stream --dir /mnt/margay
  margay bench stream --dir /var/tmp --dir /mnt/margay --size 10g --rounds 1
  margay bench stream --size 256m --rival ext4,margay,juicefs-redis
  sudo margay bench stream --dir /mnt/margay               (as root: reads without any cached page, too)")]
pub struct StreamArgs {
    #[command(flatten)]
    pub side_by_side: SideBySideArgs,
    /// Bytes of the file
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = file_bytes)]
    pub size: u64,
}

fn file_bytes(text: &str) -> Result<u64, String> {
    byte_count(text).filter(|bytes| *bytes > 0).ok_or_else(|| format!("{text:?} is no size such as 64m, 1g or 10g"))
}

pub fn run(args: &StreamArgs) -> Result<(), BenchError> {
    let bytes = args.size;
    let cold = kernel_caches::may_drop();
    if !cold {
        eprintln!("cold reads are left out: only root may empty the kernel's caches");
    }
    side_by_side::run(
        &args.side_by_side,
        &Suite {
            name: "stream",
            title: format!("one file of {:.0} MB in calls of 1 MiB", bytes as f64 / 1e6),
            clients: &[1],
            round: &|round, _| write_and_read(round, bytes, cold),
        },
    )
}

fn write_and_read(round: &mut Round<'_>, bytes: u64, cold: bool) -> Result<(), BenchError> {
    let path = round.root.join("file");
    let rate = |took: Duration| bytes as f64 / 1e6 / took.as_secs_f64().max(1e-9);
    let written = round.timed(|| write(&path, bytes, round.stop))?;
    let synced = round.timed(|| File::open(&path)?.sync_all())?;
    round.add("write", MB_PER_SECOND, rate(written));
    round.add("write with fsync", MB_PER_SECOND, rate(written + synced));
    if cold {
        // Dirty pages cannot be dropped, and every page of this file is clean now.
        round.timed(kernel_caches::drop_all)?;
        let read = round.timed(|| read(&path, bytes, round.stop))?;
        round.add("read cold", MB_PER_SECOND, rate(read));
    } else {
        round.timed(|| read(&path, bytes, round.stop))?;
    }
    let read = round.timed(|| read(&path, bytes, round.stop))?;
    round.add("read warm", MB_PER_SECOND, rate(read));
    Ok(())
}

/// Bytes of which no two pieces are the same, so that nothing can be stored once for all.
fn write(path: &Path, bytes: u64, stop: &Stop) -> io::Result<()> {
    let mut random = Rng::new(bytes);
    let mut piece: Vec<u8> = (0..PIECE_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut left = bytes;
    while left > 0 {
        stop.go_on()?;
        piece[..8].copy_from_slice(&left.to_le_bytes());
        let len = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..len as usize])?;
        left -= len;
    }
    Ok(())
}

fn read(path: &Path, bytes: u64, stop: &Stop) -> io::Result<()> {
    let (mut file, mut piece, mut total) = (File::open(path)?, vec![0; PIECE_BYTES], 0);
    loop {
        stop.go_on()?;
        match file.read(&mut piece)? {
            0 if total == bytes => return Ok(()),
            0 => return Err(io::Error::other(format!("{total} of {bytes} bytes were read"))),
            count => total += count as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side::try_round;

    #[test]
    fn a_round_writes_and_reads_all_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("x");
        let bytes = 2 * PIECE_BYTES as u64 + 5;
        let run = |round: &mut Round<'_>, _| {
            write_and_read(round, bytes, false)?;
            assert_eq!(std::fs::metadata(round.root.join("file")).unwrap().len(), bytes);
            Ok(())
        };
        let suite = Suite { name: "stream", title: String::new(), clients: &[1], round: &run };
        let figures = try_round(&root, &suite, 1).unwrap();
        assert_eq!(figures, ["write", "write with fsync", "read warm"].map(|phase| (phase.to_owned(), 1)));
        assert!(!root.exists());
    }
}
