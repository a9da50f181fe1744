//! Syncs are shared by those who wait together, and never release anybody early.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use margay_env::sim::SimDisk;
use margay_env::{DirEntry, Disk, Env, File, LockHandle, OpenMode, Space};
use margay_segment::{Options, RunWriter, Store};

/// A disk whose syncs take time and are counted; a sync covers what was written before it began.
#[derive(Debug)]
struct SlowDisk {
    disk: SimDisk,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    syncs: AtomicU64,
    written: AtomicU64,
    /// Of `written`, covered by a sync that is over.
    durable: AtomicU64,
}

#[derive(Debug)]
struct SlowFile {
    file: Arc<dyn File>,
    counts: Arc<Counts>,
}

impl Disk for SlowDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile { file: self.disk.open(path, mode)?, counts: Arc::clone(&self.counts) }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        self.disk.lock(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }
}

impl File for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, offset)?;
        self.counts.written.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        let covered = self.counts.written.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(3));
        self.counts.syncs.fetch_add(1, Ordering::SeqCst);
        self.counts.durable.fetch_max(covered, Ordering::SeqCst);
        self.file.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.allocate(offset, len)
    }
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch_hole(offset, len)
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T> + Send) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn waiting_callers_share_a_sync_and_late_ones_get_the_next() {
    let counts = Arc::new(Counts::default());
    let disk = SlowDisk { disk: SimDisk::new(1), counts: Arc::clone(&counts) };
    let env = Env { disk: Arc::new(disk), ..Env::real() };
    let store = Store::open(env, Options::new("/segments")).unwrap();
    let (threads, rounds) = (32, 10);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, counts) = (&store, &counts);
            scope.spawn(move || {
                for _ in 0..rounds {
                    let mut writer = store.begin_run(100, b"").unwrap();
                    writer.write(&[1; 100]).unwrap();
                    let run = writer.finish().unwrap();
                    let written = counts.written.load(Ordering::SeqCst);
                    if thread % 2 == 0 {
                        block_on(store.sync(run.segment)).unwrap();
                    } else {
                        store.sync_blocking(run.segment).unwrap();
                    }
                    // Everything counted before the call was written before it, and one file takes all of it.
                    assert!(counts.durable.load(Ordering::SeqCst) >= written);
                }
            });
        }
    });
    let syncs = counts.syncs.load(Ordering::SeqCst);
    assert!(syncs <= threads * rounds / 4, "{syncs} syncs for {} callers", threads * rounds);
    assert_eq!(store.segments().len(), 1);
}

#[test]
fn a_sync_of_a_removed_segment_is_missing_and_harms_nobody() {
    let disk = SimDisk::new(1);
    let env = Env { disk: Arc::new(disk), ..Env::real() };
    let store = Store::open(env, Options::new("/segments")).unwrap();
    let (log, _) = store.create_log(4096).unwrap();
    store.seal(log).unwrap();
    store.remove_log(log, margay_segment::Proof::NeverBegun).unwrap();
    assert!(block_on(store.sync(log)).is_err());
    assert_eq!(store.fault(), None);
    store.create_log(4096).unwrap();
}
