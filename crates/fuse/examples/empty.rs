//! A file system that keeps names in memory and discards all data: it measures the cost of the kernel and the session.
//!
//! Why:        benchmarks show a margay mount beside it, with the same session, flags and threads.
//! Not here:   attributes that change on access, links, xattrs (answered as absent).
//!
//! `empty DIR [THREADS]` serves until DIR is unmounted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a program for measuring")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use margay_env::{Env, Timestamp};
use margay_fuse::metrics::Metrics;
use margay_fuse::protocol::{
    Answer, At, AttributeChange, Attributes, Caller, DirectoryLine, Errno, FileKind, NewNode, Node, Opened, Operations,
    ROOT, Side, Statistics, TakeLine, WriteFlags,
};
use margay_fuse::{Session, SessionOptions};
use margay_volume::Ino;
use margay_volume::posix::SetTime;
use parking_lot::{Mutex, RwLock};

const SHARDS: usize = 64;
/// The kernel keeps all that it knows.
const KEEP_TIME: Duration = Duration::from_secs(24 * 60 * 60);
static ZEROES: [u8; 1 << 20] = [0; 1 << 20];

type Lines = Arc<Vec<(Vec<u8>, Node, FileKind)>>;
type Names = BTreeMap<Vec<u8>, Node>;

#[derive(Debug)]
struct Empty {
    nodes: Vec<RwLock<HashMap<Node, Attributes>>>,
    names: Vec<Mutex<HashMap<Node, Names>>>,
    open: Mutex<HashMap<u64, (Node, Lines)>>,
    next: AtomicU64,
    begun: Timestamp,
}

fn shard(node: Node) -> usize {
    node as usize % SHARDS
}

impl Empty {
    fn new(now: Timestamp) -> Empty {
        let empty = Empty {
            nodes: (0..SHARDS).map(|_| RwLock::default()).collect(),
            names: (0..SHARDS).map(|_| Mutex::default()).collect(),
            open: Mutex::default(),
            next: AtomicU64::new(ROOT + 1),
            begun: now,
        };
        empty.add(ROOT, FileKind::Directory, 0o755, Caller::default());
        empty
    }

    fn add(&self, node: Node, kind: FileKind, rights: u32, caller: Caller) -> Attributes {
        let made = Attributes {
            ino: Ino(node),
            kind,
            rights,
            links: 1,
            uid: caller.uid,
            gid: caller.gid,
            device: 0,
            size: 0,
            stored: 0,
            accessed: self.begun,
            modified: self.begun,
            changed: self.begun,
        };
        self.nodes[shard(node)].write().insert(node, made);
        made
    }

    fn make(&self, at: At<'_>, kind: FileKind, mode: u32, caller: Caller) -> Answer<Attributes> {
        let mut names = self.names[shard(at.parent)].lock();
        let directory = names.entry(at.parent).or_default();
        if directory.contains_key(at.name) {
            return Err(Errno::EXIST);
        }
        let node = self.next.fetch_add(1, Ordering::Relaxed);
        directory.insert(at.name.to_vec(), node);
        drop(names);
        Ok(self.add(node, kind, mode & 0o7777, caller))
    }

    fn find(&self, at: At<'_>) -> Option<Node> {
        self.names[shard(at.parent)].lock().get(&at.parent)?.get(at.name).copied()
    }

    fn get(&self, node: Node) -> Answer<Attributes> {
        self.nodes[shard(node)].read().get(&node).copied().ok_or(Errno::NOENT)
    }

    fn remove(&self, at: At<'_>) -> Answer<Node> {
        let mut names = self.names[shard(at.parent)].lock();
        let node = names.get_mut(&at.parent).and_then(|directory| directory.remove(at.name)).ok_or(Errno::NOENT)?;
        drop(names);
        self.nodes[shard(node)].write().remove(&node);
        Ok(node)
    }

    fn is_empty(&self, node: Node) -> bool {
        self.names[shard(node)].lock().get(&node).is_none_or(BTreeMap::is_empty)
    }
}

impl Operations for Empty {
    fn lookup(&self, at: At<'_>) -> Answer<Option<Attributes>> {
        self.find(at).map(|node| self.get(node)).transpose()
    }
    fn forget(&self, _: Node, _: u64) {}
    fn attributes(&self, node: Node) -> Answer<Attributes> {
        self.get(node)
    }
    fn keep_time_in(&self, _: Node) -> Duration {
        KEEP_TIME
    }
    fn keep_absent_time_in(&self, _: Node) -> Duration {
        KEEP_TIME
    }
    fn keep_time_of(&self, _: Node) -> Duration {
        KEEP_TIME
    }
    fn set_attributes(&self, node: Node, change: &AttributeChange) -> Answer<Attributes> {
        let mut nodes = self.nodes[shard(node)].write();
        let found = nodes.get_mut(&node).ok_or(Errno::NOENT)?;
        let time = |new: Option<SetTime>, old| match new {
            Some(SetTime::At(at)) => at,
            Some(SetTime::Now) => self.begun,
            None => old,
        };
        found.rights = change.rights.unwrap_or(found.rights);
        found.uid = change.uid.unwrap_or(found.uid);
        found.gid = change.gid.unwrap_or(found.gid);
        found.size = change.size.unwrap_or(found.size);
        found.accessed = time(change.accessed, found.accessed);
        found.modified = time(change.modified, found.modified);
        Ok(*found)
    }
    fn read_symlink(&self, _: Node) -> Answer<Bytes> {
        Err(Errno::INVAL)
    }

    fn make_file(&self, caller: Caller, new: NewNode<'_>, _: u32) -> Answer<Attributes> {
        self.make(At { parent: new.parent, name: new.name }, FileKind::Regular, new.mode & !new.umask, caller)
    }
    fn make_directory(&self, caller: Caller, new: NewNode<'_>) -> Answer<Attributes> {
        self.make(At { parent: new.parent, name: new.name }, FileKind::Directory, new.mode & !new.umask, caller)
    }
    fn make_symlink(&self, caller: Caller, at: At<'_>, _: &[u8]) -> Answer<Attributes> {
        self.make(at, FileKind::Symlink, 0o777, caller)
    }
    fn link(&self, _: Node, _: At<'_>) -> Answer<Attributes> {
        Err(Errno::PERM)
    }
    fn unlink(&self, at: At<'_>) -> Answer<()> {
        self.remove(at).map(drop)
    }
    fn remove_directory(&self, at: At<'_>) -> Answer<()> {
        let node = self.find(at).ok_or(Errno::NOENT)?;
        if !self.is_empty(node) {
            return Err(Errno::NOTEMPTY);
        }
        self.remove(at).map(drop)
    }
    fn rename(&self, from: At<'_>, to: At<'_>, flags: u32) -> Answer<()> {
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let mut names = self.names[shard(from.parent)].lock();
        let node = names.get_mut(&from.parent).and_then(|directory| directory.remove(from.name));
        drop(names);
        let node = node.ok_or(Errno::NOENT)?;
        self.names[shard(to.parent)].lock().entry(to.parent).or_default().insert(to.name.to_vec(), node);
        Ok(())
    }

    fn create(&self, caller: Caller, new: NewNode<'_>, _: i32) -> Answer<(Attributes, u64)> {
        let at = At { parent: new.parent, name: new.name };
        let made = self.make(at, FileKind::Regular, new.mode & !new.umask, caller)?;
        Ok((made, made.ino.0))
    }
    fn open(&self, _: Caller, node: Node, flags: i32) -> Answer<Opened> {
        if flags & 0o1000 != 0
            && let Some(found) = self.nodes[shard(node)].write().get_mut(&node)
        {
            found.size = 0;
        }
        Ok(Opened { handle: node, keeps_pages: true })
    }
    fn read(&self, handle: u64, offset: u64, len: usize) -> Answer<Bytes> {
        let left = self.get(handle)?.size.saturating_sub(offset);
        Ok(Bytes::from_static(&ZEROES[..len.min(usize::try_from(left).unwrap_or(len)).min(ZEROES.len())]))
    }
    fn write(&self, handle: u64, offset: u64, bytes: &[u8], _: WriteFlags, taken: &mut dyn FnMut()) -> Answer<()> {
        let mut nodes = self.nodes[shard(handle)].write();
        if let Some(found) = nodes.get_mut(&handle) {
            found.size = found.size.max(offset + bytes.len() as u64);
            found.stored = found.size;
        }
        taken();
        Ok(())
    }
    fn make_room(&self) -> bool {
        false
    }
    fn flush(&self, _: u64) -> Answer<()> {
        Ok(())
    }
    fn flush_waits(&self, _: u64) -> bool {
        false
    }
    fn sync(&self, _: u64) -> Answer<()> {
        Ok(())
    }
    fn release(&self, _: u64) -> Answer<()> {
        Ok(())
    }
    fn allocate(&self, _: Caller, _: u64, _: i32, _: u64, _: u64) -> Answer<()> {
        Err(Errno::OPNOTSUPP)
    }
    fn seek(&self, _: u64, _: u64, _: i32) -> Answer<u64> {
        Err(Errno::NXIO)
    }
    fn copy_range(&self, _: Caller, _: Side, _: Side, _: u64) -> Answer<u64> {
        Err(Errno::OPNOTSUPP)
    }

    fn open_directory(&self, node: Node) -> Answer<u64> {
        let names = self.names[shard(node)].lock();
        let mut lines = vec![(b".".to_vec(), node, FileKind::Directory), (b"..".to_vec(), node, FileKind::Directory)];
        for (name, node) in names.get(&node).into_iter().flatten() {
            lines.push((name.clone(), *node, FileKind::Regular));
        }
        drop(names);
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, (node, Arc::new(lines)));
        Ok(handle)
    }
    fn read_directory(&self, handle: u64, cookie: u64, with_attributes: bool, take: &mut TakeLine<'_>) -> Answer<()> {
        let (_, lines) = self.open.lock().get(&handle).cloned().ok_or(Errno::BADF)?;
        for (index, (name, node, _)) in lines.iter().enumerate().skip(cookie as usize) {
            let Ok(found) = self.get(*node) else { continue };
            let attributes = with_attributes.then_some(&found);
            let line = DirectoryLine { node: *node, kind: found.kind, name, cookie: index as u64 + 1, attributes };
            if !take(&line) {
                break;
            }
        }
        Ok(())
    }
    fn release_directory(&self, handle: u64) {
        self.open.lock().remove(&handle);
    }
    fn sync_directory(&self) -> Answer<()> {
        Ok(())
    }

    fn get_xattr(&self, _: Node, _: &[u8]) -> Answer<Bytes> {
        Err(Errno::NODATA)
    }
    fn set_xattr(&self, _: Caller, _: Node, _: &[u8], _: &[u8], _: i32) -> Answer<()> {
        Ok(())
    }
    fn list_xattrs(&self, _: Caller, _: Node) -> Answer<Vec<u8>> {
        Ok(Vec::new())
    }
    fn remove_xattr(&self, _: Node, _: &[u8]) -> Answer<()> {
        Err(Errno::NODATA)
    }
    fn statistics(&self) -> Answer<Statistics> {
        Ok(Statistics { total_bytes: 1 << 40, free_bytes: 1 << 40, available_bytes: 1 << 40, files: 0 })
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let directory = arguments.get(1).expect("usage: empty DIR [THREADS]");
    let env = Env::real();
    let mut options = SessionOptions { source: "empty".to_owned(), ..SessionOptions::default() };
    if let Some(threads) = arguments.get(2) {
        options.threads = threads.parse().expect("a number of threads");
    }
    let metrics = Arc::new(Metrics::default());
    let empty = Arc::new(Empty::new(env.clock.now()));
    let session = Session::mount(empty, &metrics, directory.as_ref(), &options, &env, &|| ()).expect("a mount");
    eprintln!("mounted on {directory}");
    while !session.wait(Duration::from_secs(60)) {}
    for line in metrics.read() {
        let each = line.seconds * 1e6 / line.count as f64;
        eprintln!("{:<14} {:>10} {:>8.2} us", line.name, line.count, each);
    }
}
