//! A volume over the reference engine and a real folder, and a model of the S3 namespace to compare it with.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test binary uses its own part")]

pub mod actions;
pub mod backups;
pub mod calls;
pub mod flips;
pub mod interposed;
pub mod machine;
pub mod maintenance;
pub mod postgres;
pub mod rows;
pub mod shared;
pub mod tree;
pub mod two_stores;
pub mod watched;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use margay_env::Env;
use margay_meta::Engine;
use margay_meta::distant::DistantEngine;
use margay_meta::embedded::EmbeddedEngine;
use margay_meta::memory::Memory;
use margay_meta::unreliable::{Faults, UnreliableEngine};
use margay_segment::Store;
use margay_volume::*;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

pub struct World {
    pub volume: Arc<Volume>,
    pub engine: Arc<dyn Engine>,
    pub store: Arc<Store>,
    pub folder: tempfile::TempDir,
}

/// Instead of a payload size: the embedded engine.
pub const EMBEDDED: usize = usize::MAX;

/// Packs are small, so that tests fill many.
pub fn segment_options(folder: &std::path::Path) -> margay_segment::Options {
    let mut options = margay_segment::Options::new(folder);
    (options.pack_bytes_max, options.raw_bytes_min, options.reserve_bytes) = (64 << 10, 32 << 10, 0);
    options
}

/// Log files are small, so that tests fill many.
fn embedded(folder: &std::path::Path, store: &Arc<Store>) -> EmbeddedEngine {
    let mut options = margay_meta::embedded::Options::new(folder.join("tree"));
    (options.log_file_bytes, options.tree_cache_bytes) = (512 << 10, 1 << 20);
    EmbeddedEngine::open(Env::real(), Arc::clone(store), options).unwrap()
}

/// When it is set, worlds have engines whose answers come from somewhere else: so every test of this folder is one of
/// those, too.
const FAR: &str = "MARGAY_TEST_FAR";

/// An engine behind a round trip that takes no time.
pub fn far(engine: Arc<dyn Engine>) -> DistantEngine {
    DistantEngine::new(engine, Env::real().clock, std::time::Duration::ZERO)
}

/// When it is set, worlds have engines of whose answers a part is lost, by this seed.
const UNRELIABLE: &str = "MARGAY_TEST_UNRELIABLE";

/// As it is, or as the environment wants it.
fn as_told(engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    let engine = postgres::as_told(engine);
    if let Some(seed) = std::env::var(UNRELIABLE).ok().and_then(|seed| seed.parse().ok()) {
        return Arc::new(UnreliableEngine::new(engine, Faults::default(), seed));
    }
    if std::env::var_os(FAR).is_some() { Arc::new(far(engine)) } else { engine }
}

impl World {
    pub fn new(payload_bytes_max: usize) -> World {
        World::with_options(payload_bytes_max, Options { run_bytes_max: 40 << 10, ..Options::default() })
    }

    pub fn with_options(payload_bytes_max: usize, options: Options) -> World {
        World::over(payload_bytes_max, options, as_told)
    }

    /// Over an engine that is made of the one that the payload size says.
    pub fn over(
        payload_bytes_max: usize,
        options: Options,
        wrap: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>,
    ) -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
        let engine: Arc<dyn Engine> = match payload_bytes_max {
            0 => Arc::new(Memory::new()),
            EMBEDDED => Arc::new(embedded(folder.path(), &store)),
            max => Arc::new(Memory::with_payloads(Arc::clone(&store), max)),
        };
        let volume = Volume::open(Env::real(), wrap(engine), Arc::clone(&store), options).unwrap();
        let engine = Arc::clone(volume.engine());
        World { volume, engine, store, folder }
    }

    /// Every row, in order.
    pub fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        let scan = self.engine.scan(&[], &[0xff], &mut |row| {
            rows.push((row.key.to_vec(), row.value.to_vec()));
            std::ops::ControlFlow::Continue(())
        });
        scan.unwrap();
        rows
    }

    /// A second volume over the same engine and store, as after a restart.
    pub fn try_reopen(&self) -> Result<Arc<Volume>, OpenError> {
        Volume::open(Env::real(), Arc::clone(&self.engine), Arc::clone(&self.store), Options::default())
    }

    pub fn reopen(&self) -> Arc<Volume> {
        self.try_reopen().unwrap()
    }

    pub fn stage(&self, bucket: &str, body: &[u8]) -> Staged {
        wait(async {
            let mut upload = self.volume.begin_upload(bucket, body.len() as u64).await.unwrap();
            for piece in body.chunks(7000) {
                upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            upload.finish().await.unwrap()
        })
    }

    pub fn put(&self, bucket: &str, key: &str, body: &[u8]) -> Result<PutOutcome, Error> {
        self.put_with(bucket, key, body, Headers::new(), WriteCondition::None)
    }

    pub fn put_with(
        &self,
        bucket: &str,
        key: &str,
        body: &[u8],
        headers: Headers,
        condition: WriteCondition,
    ) -> Result<PutOutcome, Error> {
        let staged = self.stage(bucket, body);
        let request = PutRequest { bucket, key, etag: etag_of(body), headers, condition, ..PutRequest::default() };
        wait(self.volume.put_object(request, staged))
    }

    pub fn get(&self, bucket: &str, key: &str) -> Result<Vec<u8>, Error> {
        let reader = wait(self.volume.get_object(bucket, key, &ReadCondition::default()))?;
        Ok(read_all(&reader))
    }

    pub fn delete(&self, bucket: &str, key: &str) -> Result<bool, Error> {
        wait(self.volume.delete_object(bucket, &DeleteRequest::of(key))).map(|deleted| deleted.removed)
    }

    pub fn list(&self, request: &ListRequest<'_>) -> (Vec<Item>, Option<(String, bool)>) {
        let mut items = Vec::new();
        let outcome = wait(self.volume.list(request, &mut |item| {
            items.push(match item {
                ListItem::Object { key, size, .. } => Item::Object(key.to_owned(), size),
                ListItem::Prefix(prefix) => Item::Prefix(prefix.to_owned()),
            });
        }));
        (items, outcome.unwrap().next)
    }

    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let request =
            ListRequest { bucket, prefix: "", delimiter: None, after: None, after_is_prefix: false, max: usize::MAX };
        self.list(&request).0.into_iter().map(Item::into_name).collect()
    }
}

pub fn read_all(reader: &Reader) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let bytes = wait(reader.read(body.len() as u64, u64::MAX)).unwrap();
        if bytes.is_empty() {
            return body;
        }
        body.extend_from_slice(&bytes);
    }
}

/// Any digest does: the volume stores what the door computed.
pub fn etag_of(body: &[u8]) -> ETag {
    let mut digest = [0u8; 16];
    for (index, byte) in body.iter().enumerate() {
        digest[index % 16] = digest[index % 16].wrapping_mul(31) ^ byte;
    }
    digest[15] ^= body.len() as u8;
    ETag { digest, parts: 0 }
}

pub fn body_of(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + index / 251 + seed * 13) as u8).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Object(String, u64),
    Prefix(String),
}

impl Item {
    pub fn into_name(self) -> String {
        match self {
            Item::Object(name, _) | Item::Prefix(name) => name,
        }
    }
}

/// What a listing of these keys must give.
pub fn model_list(model: &BTreeMap<String, Vec<u8>>, request: &ListRequest<'_>) -> (Vec<Item>, Option<(String, bool)>) {
    let mut items: Vec<Item> = Vec::new();
    for (key, body) in model {
        let Some(rest) = key.strip_prefix(request.prefix) else { continue };
        match request.after {
            Some(after) if request.after_is_prefix && (key.starts_with(after) || key.as_str() <= after) => continue,
            Some(after) if !after.is_empty() && key.as_str() <= after => continue,
            _ => {}
        }
        let delimiter = request.delimiter.filter(|one| !one.is_empty());
        let cut = delimiter.and_then(|one| rest.find(one).map(|at| request.prefix.len() + at + one.len()));
        let item = match cut {
            Some(cut) => Item::Prefix(key[..cut].to_owned()),
            None => Item::Object(key.clone(), body.len() as u64),
        };
        if items.last() != Some(&item) {
            items.push(item);
        }
    }
    let more = items.len() > request.max && request.max > 0;
    items.truncate(request.max);
    let next = items.last().cloned().filter(|_| more).map(|item| {
        let is_prefix = matches!(item, Item::Prefix(_));
        (item.into_name(), is_prefix)
    });
    (items, next)
}
