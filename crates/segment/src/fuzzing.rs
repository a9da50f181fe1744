//! Entry points of the fuzz targets: frames of segment files, and a whole pack, as arbitrary bytes.
//!
//! Why:        wrong checksums would stop a fuzzer early, so they are corrected before the bytes are decoded.
//! Invariants: Z1 a decoder returns a value or an error; the value encodes to the same bytes.  Z2 a walk returns runs
//!                in order, without overlap, each at the location in its header.
//! Not here:   the targets and their seeds (fuzz/).

use std::ops::ControlFlow;
use std::path::Path;

use margay_env::sim::SimDisk;
use margay_env::{Disk, OpenMode};

use crate::format::{
    ALIGN_BYTES, PACK_HEADER_BYTES, RAW_FOOTER_BYTES, RUN_END_BYTES, RUN_HEADER_BYTES, RunPlace, Salt,
    decode_pack_header, decode_raw_footer, decode_run_end, decode_run_header, encode_pack_header, encode_raw_footer,
    encode_run_end, encode_run_header, run_end_crc, run_header_crc,
};
use crate::id::table_bytes;
use crate::walk::{WalkedRun, walk_file};
use crate::{Run, SegmentId};

const ID: SegmentId = SegmentId(7);
const SALT: Salt = Salt(0x1234_5678_9abc_def0);

fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

/// Decodes a frame: the first byte selects its type, the next its offset in the file.
pub fn segment_frame(bytes: &[u8]) {
    let [kind, at, frame @ ..] = bytes else { return };
    let mut frame = frame.to_vec();
    match kind % 4 {
        0 => pack_header(&mut frame),
        1 => run_header(&mut frame, u64::from(*at) * ALIGN_BYTES),
        2 => run_end(&mut frame, u64::from(*at) * ALIGN_BYTES),
        _ => raw_footer(&mut frame),
    }
}

fn pack_header(frame: &mut [u8]) {
    let _ = decode_pack_header(frame, ID);
    if frame.len() >= PACK_HEADER_BYTES {
        let crc = crc32c::crc32c(&frame[..60]);
        put_u32(frame, 60, crc);
    }
    if let Ok(salt) = decode_pack_header(frame, ID) {
        assert_eq!(decode_pack_header(&encode_pack_header(ID, salt), ID), Ok(salt));
    }
}

/// Corrects the checksum, if the frame contains the owner that it announces.
fn seal_run_header(frame: &mut [u8], salt: Salt) -> Option<()> {
    let owner_bytes = u16::from_le_bytes(frame.get(4..6)?.try_into().ok()?);
    let owner = frame.get(RUN_HEADER_BYTES..RUN_HEADER_BYTES + usize::from(owner_bytes))?;
    let crc = run_header_crc(salt, &frame[..32], owner);
    put_u32(frame, 32, crc);
    Some(())
}

fn run_header(frame: &mut [u8], at: u64) {
    let _ = decode_run_header(frame, ID, SALT, at);
    let _ = seal_run_header(frame, SALT);
    if let Ok((place, owner)) = decode_run_header(frame, ID, SALT, at) {
        let again = encode_run_header(ID, SALT, &place, owner);
        assert_eq!(decode_run_header(&again, ID, SALT, at), Ok((place, owner)));
        assert!(place.header < place.payload && place.end_mark() < place.next && place.next % ALIGN_BYTES == 0);
    }
}

fn run_end(frame: &mut [u8], at: u64) {
    let Some(place) = RunPlace::at(at, 3, 10) else { return };
    let _ = decode_run_end(frame, SALT, &place);
    if frame.len() >= RUN_END_BYTES {
        let crc = run_end_crc(SALT, &place, &frame[..8]);
        put_u32(frame, 8, crc);
    }
    if let Some(crc) = decode_run_end(frame, SALT, &place) {
        assert_eq!(frame[..RUN_END_BYTES], encode_run_end(SALT, &place, crc));
    }
}

fn raw_footer(tail: &mut [u8]) {
    let _ = decode_raw_footer(tail, ID, tail.len() as u64);
    let Some(split) = tail.len().checked_sub(RAW_FOOTER_BYTES) else { return };
    let owner_bytes = u32::from_le_bytes([tail[split + 12], tail[split + 13], tail[split + 14], tail[split + 15]]);
    if let Some(begin) = split.checked_sub(owner_bytes as usize) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&tail[begin..split]), &tail[split..split + 60]);
        put_u32(tail, split + 60, crc);
    }
    let mut len = [0; 8];
    len.copy_from_slice(&tail[split + 24..split + 32]);
    let len = u64::from_le_bytes(len);
    // The file gets the length that the footer expects; otherwise it would be refused for that alone.
    let sizes = len.checked_add(u64::from(owner_bytes) + RAW_FOOTER_BYTES as u64);
    let file_len = sizes.and_then(|sum| sum.checked_add(table_bytes(len))).unwrap_or(0);
    if let Ok((run, owner)) = decode_raw_footer(tail, ID, file_len) {
        assert_eq!(decode_raw_footer(&encode_raw_footer(&run, owner), ID, file_len), Ok((run, owner)));
    }
}

/// Corrects the checksums of a pack: of its header, and of its runs, as far as they follow each other or begin with
/// their magic anywhere.
fn seal_pack(pack: &mut [u8]) {
    let Some(header) = pack.get_mut(..PACK_HEADER_BYTES) else { return };
    header.copy_from_slice(&encode_pack_header(ID, SALT));
    let mut at = PACK_HEADER_BYTES;
    while let Some(rest) = pack.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let sealed = rest.starts_with(b"mRun") && rest.len() >= RUN_HEADER_BYTES;
        if sealed {
            rest[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            let _ = seal_run_header(rest, SALT);
        }
        let Ok((place, _)) = decode_run_header(rest, ID, SALT, at as u64) else {
            at += ALIGN_BYTES as usize;
            continue;
        };
        let mark = usize::try_from(place.end_mark()).ok().and_then(|mark| pack.get_mut(mark..mark + RUN_END_BYTES));
        if let Some(mark) = mark.filter(|mark| mark.starts_with(b"mEnd")) {
            let crc = run_end_crc(SALT, &place, &mark[..8]);
            put_u32(mark, 8, crc);
        }
        at = usize::try_from(place.next).unwrap_or(usize::MAX);
    }
}

/// Walks a pack file unchanged and with corrected checksums.
pub fn pack_walk(bytes: &[u8]) {
    let mut pack = bytes.to_vec();
    walk(&pack);
    seal_pack(&mut pack);
    walk(&pack);
}

fn walk(pack: &[u8]) {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("/pack"), OpenMode::CreateNew).expect("the disk is empty");
    file.write_all_at(pack, 0).expect("the disk has room");
    let mut end = PACK_HEADER_BYTES as u64;
    let mut met = 0;
    let _ = walk_file(&*file, ID, &mut |WalkedRun { owner, run, range }: WalkedRun| {
        assert!(range.start >= end && range.start < range.end, "runs follow each other");
        assert!(range.start < pack.len() as u64, "a header lies in its file");
        if let Some(run) = run {
            let room = range.start + (RUN_HEADER_BYTES + owner.len()) as u64..range.end;
            assert!(room.start <= run.offset && run.offset + run.len < room.end && run.segment == ID);
        }
        end = range.end;
        met += 1;
        ControlFlow::Continue(())
    });
    assert!(met <= pack.len() / RUN_HEADER_BYTES, "each run has a header of its own");
}

fn sample_pack() -> Vec<u8> {
    let mut pack = encode_pack_header(ID, SALT).to_vec();
    for (owner, payload, finished) in
        [(&b"first"[..], &b"some bytes"[..], true), (b"", b"", false), (b"x", b"mRun", true)]
    {
        let place = RunPlace::at(pack.len() as u64, owner.len(), payload.len() as u64).expect("a small run fits");
        pack.extend_from_slice(&encode_run_header(ID, SALT, &place, owner));
        pack.extend_from_slice(payload);
        if finished {
            pack.extend_from_slice(&encode_run_end(SALT, &place, crc32c::crc32c(payload)));
        }
        pack.resize(place.next as usize, 0);
    }
    pack
}

/// Valid encodings as a start: target, name, bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let framed = |kind: u8, at: u8, frame: &[u8]| [&[kind, at], frame].concat();
    let place = RunPlace::at(64, 5, 200_000).expect("a small run fits");
    let end = RunPlace::at(64, 3, 10).expect("a small run fits");
    let run = Run { segment: ID, offset: 0, len: 70_000, crc: 5 };
    vec![
        ("segment_frame", "pack_header", framed(0, 0, &encode_pack_header(ID, SALT))),
        ("segment_frame", "run_header", framed(1, 8, &encode_run_header(ID, SALT, &place, b"owner"))),
        ("segment_frame", "run_end", framed(2, 8, &encode_run_end(SALT, &end, 99))),
        ("segment_frame", "raw_footer", framed(3, 0, &encode_raw_footer(&run, b"me"))),
        ("pack_walk", "three_runs", sample_pack()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_understood() {
        for (target, _, bytes) in seeds() {
            if target == "pack_walk" { pack_walk(&bytes) } else { segment_frame(&bytes) }
        }
        // Sealing does not change a valid pack.
        let mut pack = sample_pack();
        seal_pack(&mut pack);
        assert_eq!(pack, sample_pack());
    }
}
