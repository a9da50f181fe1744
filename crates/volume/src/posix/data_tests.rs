//! Reading and writing open files, below the level of names.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_rows::Ino;
use margay_segment::Store;

use super::*;
use crate::api::{ETag, Error, Headers, PutRequest, ReadCondition};
use crate::draft::Seen;
use crate::open::{Options, Volume};
use crate::upkeep::{ReclaimBudget, SealedLogs};

fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}

struct World {
    mount: Arc<Mount>,
    volume: Arc<Volume>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World::with(Options::default())
    }

    fn with(volume_options: Options) -> World {
        let folder = tempfile::tempdir().unwrap();
        let mut options = margay_segment::Options::new(folder.path().join("segments"));
        (options.pack_bytes_max, options.raw_bytes_min, options.reserve_bytes) = (1 << 20, 512 << 10, 0);
        let store = Store::open(Env::real(), options).unwrap();
        let mut options = margay_meta::embedded::Options::new(folder.path().join("tree"));
        (options.log_file_bytes, options.tree_cache_bytes) = (1 << 20, 1 << 20);
        let engine = EmbeddedEngine::open(Env::real(), Arc::clone(&store), options).unwrap();
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let volume = Volume::open(Env::real(), engine, store, volume_options).unwrap();
        wait(volume.create_bucket("b")).unwrap();
        let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
        World { mount, volume, _folder: folder }
    }

    fn put(&self, key: &str, body: &[u8]) -> Ino {
        let mut headers = Headers::new();
        headers.insert("content-type".to_owned(), "text/x".to_owned());
        headers.insert("x-amz-checksum-crc32".to_owned(), "abc".to_owned());
        wait(async {
            let mut upload = self.volume.begin_upload("b", body.len() as u64).await.unwrap();
            upload.write(body.to_vec().into()).await.unwrap();
            let staged = upload.finish().await.unwrap();
            let etag = ETag { digest: [1; 16], parts: 0 };
            let request = PutRequest { bucket: "b", key, etag, headers, ..PutRequest::default() };
            self.volume.put_object(request, staged).await.unwrap();
        });
        let located = self.mount.read_file(self.mount.root, key.as_bytes(), &mut Seen::default()).unwrap().unwrap();
        self.mount.known.remember(located.file.ino, self.mount.root, key);
        located.file.ino
    }

    fn get(&self, key: &str) -> Result<(Vec<u8>, crate::api::ObjectInfo), Error> {
        wait(async {
            let reader = self.volume.get_object("b", key, &ReadCondition::default()).await?;
            let mut body = Vec::new();
            loop {
                let bytes = reader.read(body.len() as u64, u64::MAX).await?;
                if bytes.is_empty() {
                    return Ok((body, reader.info().clone()));
                }
                body.extend_from_slice(&bytes);
            }
        })
    }

    /// Reclaims unreferenced data at once.
    fn reclaim(&self) {
        self.volume.engine.checkpoint().unwrap();
        let budget = ReclaimBudget { seal_dead_bytes_min: 1, quarantine: Duration::ZERO, ..ReclaimBudget::default() };
        self.volume.reclaim_once(&budget, &SealedLogs).unwrap();
        assert_eq!(self.volume.store.taken_back(), 0);
    }

    /// Bytes of all segments but logs.
    fn data_bytes(&self) -> u64 {
        let segments = self.volume.store.list();
        segments.iter().filter(|info| info.kind != margay_segment::Kind::Log).map(|info| info.len).sum()
    }

    fn clean(&self) {
        let report = self.volume.fsck(crate::upkeep::FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:?}");
    }
}

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8 ^ seed).collect()
}

#[test]
fn what_is_written_is_read_and_published() {
    let world = World::new();
    for size in [0, 5, 100, 128, 129, 5000, 65_536, 65_537, 200_000, 900_000] {
        let ino = world.put("a", &bytes(1, size));
        let mut model = bytes(1, size);
        let handle = world.mount.open_file(ino, BOTH).unwrap();
        for (offset, len) in [(10, 20), (size, 50), (size / 2, 70_000), (size, 7)] {
            let body = bytes(offset as u8, len);
            assert_eq!(world.mount.write(&handle, offset as u64, &body, false).unwrap(), len);
            model.resize(model.len().max(offset + len), 0);
            model[offset..offset + len].copy_from_slice(&body);
            assert_eq!(world.mount.read(&handle, 0, 4 << 20).unwrap(), model);
            world.mount.flush(&handle).unwrap();
            assert_eq!(world.mount.read(&handle, 0, 4 << 20).unwrap(), model);
            let (body, info) = world.get("a").unwrap();
            assert_eq!(body, model);
            assert_eq!(info.headers.get("content-type").unwrap(), "text/x");
            assert!(!info.headers.contains_key("x-amz-checksum-crc32"));
            world.clean();
        }
        world.mount.sync(&handle).unwrap();
        world.mount.release(handle).unwrap();
        let handle = world.mount.open_file(ino, OpenFlags { truncate: true, ..BOTH }).unwrap();
        world.mount.write(&handle, 0, b"x", false).unwrap();
        drop(handle);
        assert_eq!(world.get("a").unwrap().0, b"x");
        world.clean();
        assert_eq!(world.volume.open_files.all().len(), 0);
        assert_eq!(world.volume.open_files.memory(), 0);
    }
}

#[test]
fn a_file_that_was_just_closed_is_read_before_it_is_durable() {
    let world = World::new();
    let ino = world.put("a", b"");
    for round in 0..20 {
        let body = bytes(round, 100_000 + usize::from(round));
        let handle = world.mount.open_file(ino, OpenFlags { truncate: true, ..BOTH }).unwrap();
        world.mount.write(&handle, 0, &body, false).unwrap();
        world.mount.release(handle).unwrap();
        let handle = world.mount.open_file(ino, BOTH).unwrap();
        assert_eq!(world.mount.read(&handle, 0, 1 << 20).unwrap(), body);
    }
    world.clean();
}

#[test]
fn who_looks_at_a_file_waits_for_a_write_that_was_taken() {
    let world = World::new();
    let ino = world.put("a", b"");
    let handle = world.mount.open_file(ino, BOTH).unwrap();
    let piece = bytes(7, 1 << 20);
    for at in 0..20 {
        let mut times = 0;
        let taken = || {
            times += 1;
            assert!(handle.file.state.try_read().is_none(), "nobody sees the file without what was taken");
        };
        world.mount.write_taken(&handle, at << 20, &piece, WriteFlags::default(), taken).unwrap();
        assert_eq!(times, 1);
    }
    assert!(handle.file.state.read().stream.is_some(), "most of it went into a stream");
    for at in 0..20 {
        assert_eq!(world.mount.read(&handle, at << 20, 1 << 20).unwrap(), piece);
    }
    let refused =
        world.mount.write_taken(&handle, u64::MAX - 1, b"xyz", WriteFlags::default(), || panic!("it was refused"));
    assert!(matches!(refused, Err(PosixError::FileTooLarge)));
    world.mount.release(handle).unwrap();
    assert_eq!(world.get("a").unwrap().0, piece.repeat(20));
    world.clean();
}

/// Most bytes of a file in memory.
const MEMORY_BYTES: u64 = 300_000;

#[test]
fn what_is_written_over_before_it_is_published_comes_back() {
    // Runs in packs, and raw ones.
    for (len, memory_bytes_max) in [(350_000, MEMORY_BYTES / 3), (900_000, 2 * MEMORY_BYTES)] {
        for in_order in [true, false] {
            let options = Options { file_memory_bytes_max: MEMORY_BYTES, memory_bytes_max, ..Options::default() };
            let world = World::with(options);
            let ino = world.put("a", b"");
            let handle = world.mount.open_file(ino, BOTH).unwrap();
            let mut body = Vec::new();
            for round in 0..40 {
                body = bytes(round, len);
                let mut parts: Vec<_> = body.chunks(50_000).enumerate().collect();
                if !in_order {
                    parts.reverse();
                }
                for (part, bytes) in parts {
                    world.mount.write(&handle, part as u64 * 50_000, bytes, false).unwrap();
                }
                world.reclaim();
            }
            let most = 5 * len as u64 + (2 << 20);
            assert!(world.data_bytes() < most, "{len} {in_order}: {} bytes of one file", world.data_bytes());
            assert_eq!(world.mount.read(&handle, 0, len + 1).unwrap(), body);
            world.mount.release(handle).unwrap();
            assert_eq!(world.get("a").unwrap().0, body);
            world.clean();
        }
    }
}

#[test]
fn a_publish_that_is_overtaken_syncs_what_it_holds() {
    let world = World::with(Options { file_memory_bytes_max: MEMORY_BYTES, ..Options::default() });
    let ino = world.put("a", b"");
    let (first, second) = (world.mount.open_file(ino, BOTH).unwrap(), world.mount.open_file(ino, BOTH).unwrap());
    world.mount.write(&first, 0, &bytes(1, 900_000), false).unwrap();
    let unsynced = world.volume.begin_publish(&first.file).unwrap().unwrap();
    // In pieces that do not go on where the first ones ended.
    for part in (0..18).rev() {
        world.mount.write(&second, part * 50_000, &bytes(2, 50_000), false).unwrap();
    }
    world.mount.sync(&second).unwrap();
    world.reclaim();
    world.volume.sync_segments(&unsynced).unwrap();
    assert_eq!(world.volume.store.taken_back(), 0, "what it syncs was not set aside");
    drop(unsynced);
    world.reclaim();
    world.mount.release(first).unwrap();
    world.mount.release(second).unwrap();
    assert_eq!(world.get("a").unwrap().0, bytes(2, 50_000).repeat(18));
    world.clean();
}

#[test]
fn a_publish_does_not_take_later_write_outs_for_its_own() {
    let world = World::with(Options { file_memory_bytes_max: MEMORY_BYTES, ..Options::default() });
    let ino = world.put("a", b"");
    let handle = world.mount.open_file(ino, BOTH).unwrap();
    world.mount.write(&handle, 0, &bytes(1, 900_000), false).unwrap();
    let before = world.volume.begin_publish(&handle.file).unwrap().unwrap();
    world.mount.sync(&handle).unwrap();
    // A copy of a range that was refused.
    world.volume.reload(&handle.file, &mut handle.file.state.write()).unwrap();
    world.mount.write(&handle, 0, &bytes(2, 900_000), false).unwrap();
    let after = world.volume.begin_publish(&handle.file).unwrap().unwrap();
    assert!(after.write_outs > before.write_outs, "{} {}", after.write_outs, before.write_outs);
}
