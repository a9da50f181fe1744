//! What of the file of a segment is right, and may be sent.
//!
//! Why:        a file of an earlier process, or one that was not read for years, may have lost bytes that a copy still has; sent as they are
//!             they would overwrite the last good ones.
//! Invariants: V1 no byte of a run that a row names is sent unless the run was verified here. What no row names is dead.
//!             V2 a file that lacks a run which a row names, or is shorter than its row says, is not whole, and what is copied from it does
//!                not count as complete.
//! Locking:    none; it reads whole files, on a thread that may wait.
//! Not here:   when it is asked (repair), sending (send).

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use margay_segment::format::{ALIGN_BYTES, OWNER_BYTES_MAX, PACK_HEADER_BYTES, RUN_END_BYTES, RUN_HEADER_BYTES};
use margay_segment::{Extent, Kind, Run, SegmentError, SegmentInfo, Store};
use margay_volume::{Error, SegmentState, named_runs, read_segment};

use super::Inner;
use super::segment::{gaps, joined};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Right {
    /// That may be sent, ascending.
    pub(super) parts: Vec<Range<u64>>,
    /// Runs that rows name and that are not right here.
    pub(super) lost: Vec<Run>,
    /// The file has as many bytes as its row says.
    pub(super) has_its_length: bool,
}

impl Right {
    pub(super) fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.has_its_length
    }
}

/// Blocks this thread until the file was read.
pub(super) fn of(inner: &Inner, info: &SegmentInfo) -> Result<Right, Error> {
    let engine = &*inner.peers.engine;
    let state = read_segment(engine, info.id)?.map(|record| record.state);
    let named = named_runs(engine, info.id)?;
    let len = if let Some(SegmentState::Sealed { len }) = state { len } else { 0 };
    Ok(of_file(&inner.own, info, &named, len))
}

/// `named`: the runs that rows name; `len_min`: what the row says of the length.
fn of_file(own: &Store, info: &SegmentInfo, named: &[Run], len_min: u64) -> Right {
    let (mut good, mut bad, mut is_any) = (Vec::new(), Vec::new(), true);
    let mut verified: HashMap<u64, Run> = HashMap::new();
    let is_right = |run: &Run| own.verify(&Extent::whole(*run)).is_ok();
    if info.kind == Kind::Pack {
        let walked = own.walk_pack(info.id, &mut |walked| {
            // One without its end is dead, or it is named and looked at below.
            if let Some(run) = walked.run {
                if is_right(&run) {
                    verified.insert(run.offset, run);
                    good.push(walked.range);
                } else {
                    bad.push(frame(&run));
                }
            }
            ControlFlow::Continue(())
        });
        match walked {
            Ok(()) => good.push(0..PACK_HEADER_BYTES as u64),
            Err(SegmentError::Corrupt { offset: 0, .. }) => bad.push(0..PACK_HEADER_BYTES as u64),
            // What is behind it is not known.
            Err(_) => is_any = false,
        }
    }
    let mut lost = Vec::new();
    for run in named {
        if verified.get(&run.offset) == Some(run) {
            continue;
        }
        if is_right(run) {
            good.push(run.offset..payload_end(run));
        } else {
            lost.push(*run);
            match info.kind {
                Kind::Pack => bad.push(frame(run)),
                Kind::Raw | Kind::Log => is_any = false,
            }
        }
    }
    let within = |part: Range<u64>| part.start.min(info.len)..part.end.min(info.len);
    let bad: Vec<Range<u64>> = bad.into_iter().map(within).collect();
    let mut parts = gaps(&joined(&bad), info.len);
    parts.extend(good.into_iter().map(within));
    let parts = if is_any { joined(&parts) } else { Vec::new() };
    Right { parts, lost, has_its_length: info.len >= len_min }
}

/// Behind the run's bytes and their checksums.
pub(super) fn payload_end(run: &Run) -> u64 {
    run.offset.saturating_add(run.len).saturating_add(run.table_bytes())
}

/// All that a run in a pack may take, its header and owner among it: how long these are is not known if they are damaged.
fn frame(run: &Run) -> Range<u64> {
    let start = run.offset.saturating_sub((RUN_HEADER_BYTES + OWNER_BYTES_MAX) as u64 + ALIGN_BYTES);
    let end = payload_end(run).saturating_add(RUN_END_BYTES as u64);
    start.max(PACK_HEADER_BYTES as u64)..end.checked_next_multiple_of(ALIGN_BYTES).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::Arc;

    use margay_env::Env;
    use margay_segment::{Options, RunLength, SegmentId, Segments, StoreName, StoreNumber, segment_name};

    use super::*;

    fn store(folder: &Path, number: u16) -> Arc<Store> {
        let store = Store::open(Env::real(), Options::new(folder)).unwrap();
        let name = store.name();
        store.attach(StoreName { number: StoreNumber(number), generation: name.generation + 1, ..name }).unwrap();
        store
    }

    fn write(store: &Store, length: RunLength, byte: u8, len: usize) -> Run {
        let mut writer = store.begin(length, b"owner").unwrap();
        writer.write(&vec![byte; len]).unwrap();
        let run = writer.end().unwrap();
        store.sync_blocking(run.segment).unwrap();
        run
    }

    fn send(from: &Store, info: &SegmentInfo, parts: &[Range<u64>], to: &Store) {
        for part in parts {
            let mut bytes = vec![0; (part.end - part.start) as usize];
            from.file(info.id).unwrap().read_exact_at(&mut bytes, part.start).unwrap();
            to.write_copy(info.id, info.kind, part.start, &bytes).unwrap();
        }
    }

    fn zero(path: &Path, range: Range<u64>) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start).unwrap();
    }

    /// Segments with three runs in a pack and one of its own, the stores that have them, and the maker's folder.
    fn two_stores(folder: &Path) -> (Vec<Run>, Arc<Store>, std::path::PathBuf) {
        let path = folder.join("one");
        let (one, two) = (store(&path, 1), store(&folder.join("two"), 2));
        let mut runs: Vec<Run> = [(1, 5000), (2, 70_000), (3, 3)]
            .map(|(byte, len)| write(&one, RunLength::Exact(len as u64), byte, len))
            .into();
        runs.push(write(&one, RunLength::ExactAlone(90_000), 4, 90_000));
        for id in [runs[0].segment, runs[3].segment] {
            one.seal(id).unwrap();
            let info = one.listed(id).unwrap();
            send(&one, &info, &[Range { start: 0, end: info.len }], &two);
            two.sync_blocking(id).unwrap();
        }
        (runs, two, path)
    }

    fn pack(path: &Path, id: SegmentId) -> std::path::PathBuf {
        path.join(segment_name(id, Kind::Pack))
    }

    #[test]
    fn a_run_that_is_damaged_here_overwrites_no_copy_of_it() {
        type Damage = fn(&[Run], usize) -> Range<u64>;
        let payload: Damage = |runs, at| runs[at].offset..runs[at].offset + 3;
        let header: Damage = |runs, at| runs[at].offset - 20..runs[at].offset;
        let all_of: Damage = |runs, at| runs[at].offset - 48..payload_end(&runs[at]) + 8;
        let end: Damage = |runs, at| payload_end(&runs[at])..payload_end(&runs[at]) + 8;
        for (at, damage) in [(0, payload), (1, payload), (2, payload), (1, header), (2, end), (1, all_of)] {
            let folder = tempfile::tempdir().unwrap();
            let (runs, two, path) = two_stores(folder.path());
            let id = runs[0].segment;
            zero(&pack(&path, id), damage(&runs, at));
            let one = store(&path, 1);
            let info = one.listed(id).unwrap();
            let right = of_file(&one, &info, &runs[..3], info.len);
            send(&one, &info, &right.parts, &two);
            runs[..3].iter().for_each(|run| two.verify(&Extent::whole(*run)).unwrap());
            // A header is nothing that a reader needs.
            let is_lost = one.verify(&Extent::whole(runs[at])).is_err();
            assert_eq!((right.lost.contains(&runs[at]), right.is_whole()), (is_lost, !is_lost));
            let three = store(&folder.path().join("three"), 3);
            send(&one, &info, &right.parts, &three);
            assert_eq!(
                three.listed(id).unwrap().len == info.len,
                !is_lost || at < 2,
                "nothing stands for the last run"
            );
            for (other, run) in runs[..3].iter().enumerate().filter(|(other, _)| *other != at) {
                three.verify(&Extent::whole(*run)).unwrap_or_else(|error| panic!("{other}: {error}"));
            }
        }
    }

    #[test]
    fn a_file_that_is_short_is_not_whole_and_what_is_whole_is_sent_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (runs, two, path) = two_stores(folder.path());
        let (id, large) = (runs[0].segment, runs[3].segment);
        let one = store(&path, 1);
        for (id, named) in [(id, &runs[..3]), (large, &runs[3..])] {
            let info = one.listed(id).unwrap();
            let whole =
                Right { parts: vec![Range { start: 0, end: info.len }], lost: Vec::new(), has_its_length: true };
            assert_eq!(of_file(&one, &info, named, info.len), whole);
        }
        drop(one);
        std::fs::OpenOptions::new().write(true).open(pack(&path, id)).unwrap().set_len(runs[1].offset + 9).unwrap();
        zero(&path.join(segment_name(large, Kind::Raw)), 70_000..70_001);
        let one = store(&path, 1);
        let (info, len) = (one.listed(id).unwrap(), two.listed(id).unwrap().len);
        let right = of_file(&one, &info, &runs[..3], len);
        assert_eq!((right.lost.len(), right.has_its_length), (2, false));
        send(&one, &info, &right.parts, &two);
        let info = one.listed(large).unwrap();
        let right = of_file(&one, &info, &runs[3..], info.len);
        assert!(right.parts.is_empty() && !right.is_whole());
        runs.iter().for_each(|run| two.verify(&Extent::whole(*run)).unwrap());
        // Without rows that name it, what was never finished is dead.
        assert!(of_file(&one, &one.listed(id).unwrap(), &runs[..1], 0).is_whole());
        zero(&pack(&path, id), 0..9);
        let right = of_file(&store(&path, 1), &one.listed(id).unwrap(), &[], 0);
        assert!(right.parts.iter().all(|part| part.start >= PACK_HEADER_BYTES as u64));
    }
}
