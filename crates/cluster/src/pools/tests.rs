//! A pool whose store loses answers, is silent, gives damaged bytes, and ignores conditions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderName, HeaderValue, RANGE};
use http::{HeaderMap, Method};
use margay_client::client::{Answer, Ask};
use margay_client::upstream::{Carried, Carrier, Limits, Upstream};
use margay_client::{ClientError, Refusal};
use margay_env::Env;
use margay_segment::{
    Extent, Kind, Options, OtherStore, Run, RunLength, SegmentError, SegmentId, SegmentInfo, Segments, Store,
    StoreName, StoreNumber,
};
use margay_volume::Pool;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::*;

const POOL: StoreNumber = StoreNumber(9);

/// A store that does what a test says.
#[derive(Debug, Default)]
struct World {
    objects: BTreeMap<String, (HeaderMap, Vec<u8>)>,
    uploads: BTreeMap<String, (HeaderMap, BTreeMap<u32, Bytes>)>,
    faults: Faults,
    requests: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// Of so many answers one is lost; 0: none.
    lost: usize,
    is_silent: bool,
    has_no_bucket: bool,
    /// What is put is kept with a bit changed.
    damages_what_is_put: bool,
    lists_from_the_start: bool,
    /// So many answers to reads have a bit changed.
    damaged_reads: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Simulated(Arc<Mutex<World>>);

fn refused(ask: &Ask, status: u16, code: &str) -> ClientError {
    let (request, region) = (format!("{} {}", ask.method, ask.key), String::new());
    // An answer to HEAD has no body.
    let code = if ask.method == Method::HEAD { String::new() } else { code.to_owned() };
    ClientError::Refused(Box::new(Refusal { request, status, code, message: String::new(), region }))
}

fn parameter<'a>(ask: &'a Ask, name: &str) -> Option<&'a str> {
    ask.query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value)
}

fn headers(pairs: &[(HeaderName, String)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

impl World {
    fn keep(&mut self, key: &str, headers: HeaderMap, mut bytes: Vec<u8>) {
        if self.faults.damages_what_is_put {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        self.objects.insert(key.to_owned(), (headers, bytes));
    }

    fn answer(&mut self, ask: &Ask) -> Result<Answer, ClientError> {
        assert!(ask.headers.iter().all(|(name, _)| !name.as_str().starts_with("if-")), "B1: no conditions");
        if self.faults.has_no_bucket {
            return Err(refused(ask, 404, "NoSuchBucket"));
        }
        let sent: HeaderMap = ask.headers.iter().cloned().collect();
        let text = |body: String| Ok(Answer { headers: HeaderMap::new(), body: body.into() });
        let tagged = || Ok(Answer { headers: headers(&[(ETAG, "\"e\"".to_owned())]), body: Bytes::new() });
        match (ask.method.clone(), parameter(ask, "uploadId").map(str::to_owned)) {
            (Method::POST, None) => {
                let id = format!("u{}", self.uploads.len());
                self.uploads.insert(id.clone(), (sent, BTreeMap::new()));
                text(format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            (Method::PUT, Some(id)) => {
                let number = parameter(ask, "partNumber").unwrap().parse().unwrap();
                self.uploads.get_mut(&id).unwrap().1.insert(number, ask.body.clone());
                tagged()
            }
            (Method::POST, Some(id)) => {
                // An attempt whose answer was lost has removed it.
                let Some((kept, parts)) = self.uploads.remove(&id) else {
                    return Err(refused(ask, 404, "NoSuchUpload"));
                };
                self.keep(&ask.key, kept, parts.into_values().flatten().collect());
                text("<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>".to_owned())
            }
            (Method::PUT, None) => {
                self.keep(&ask.key, sent, ask.body.to_vec());
                tagged()
            }
            (Method::DELETE, Some(id)) => {
                self.uploads.remove(&id);
                text(String::new())
            }
            (Method::DELETE, None) => {
                self.objects.remove(&ask.key);
                text(String::new())
            }
            (Method::GET, _) if ask.key.is_empty() => {
                let after = parameter(ask, "start-after").unwrap_or_default().replace("%2F", "/");
                let is_next = |key: &&String| **key > after || self.faults.lists_from_the_start;
                let keys = self.objects.keys().filter(is_next).take(2);
                let entry = |key| format!("<Contents><Key>{key}</Key><LastModified>then</LastModified></Contents>");
                let keys: String = keys.map(entry).collect();
                text(format!("<ListBucketResult>{keys}</ListBucketResult>"))
            }
            _ => self.read(ask),
        }
    }

    fn read(&mut self, ask: &Ask) -> Result<Answer, ClientError> {
        let Some((kept, bytes)) = self.objects.get(&ask.key) else { return Err(refused(ask, 404, "NoSuchKey")) };
        let mut all = kept.clone();
        all.insert(ETAG, HeaderValue::from_static("\"e\""));
        if ask.method == Method::HEAD {
            all.insert(CONTENT_LENGTH, bytes.len().into());
            return Ok(Answer { headers: all, body: Bytes::new() });
        }
        let range = ask.headers.iter().find(|(name, _)| *name == RANGE).unwrap().1.to_str().unwrap();
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse::<usize>().unwrap() + 1);
        let end = end.min(bytes.len());
        let mut body = bytes[start..end].to_vec();
        if self.faults.damaged_reads > 0 {
            self.faults.damaged_reads -= 1;
            body.iter_mut().step_by(1000).for_each(|byte| *byte ^= 4);
        }
        let told = format!("bytes {start}-{}/{}", end - 1, bytes.len());
        all.insert(CONTENT_RANGE, HeaderValue::from_str(&told).unwrap());
        Ok(Answer { headers: all, body: body.into() })
    }
}

impl Carrier for Simulated {
    fn carry(&self, ask: &Ask) -> Carried {
        let mut world = self.0.lock();
        world.requests += 1;
        let lost = || ClientError::Timeout { request: ask.key.clone(), seconds: 1 };
        let outcome = if world.faults.is_silent { Err(lost()) } else { world.answer(ask) };
        let is_lost = world.faults.lost > 0 && world.requests.is_multiple_of(world.faults.lost);
        Box::pin(std::future::ready(if is_lost { Err(lost()) } else { outcome }))
    }

    fn pause(&self, _length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

impl Simulated {
    /// It has these bytes of a segment that this store put.
    pub(crate) fn keep(&self, folder: &str, id: SegmentId, bytes: Vec<u8>) {
        self.0.lock().keep(&format!("margay/{folder}/{:016x}", id.0), HeaderMap::new(), bytes);
    }
}

impl PoolBuckets for Simulated {
    fn open(&self, pool: &Pool) -> Result<Upstream, String> {
        Ok(Upstream::carried(Arc::new(self.clone()), &pool.bucket, Limits::default()))
    }
}

/// A store with three runs in a pack, and one of its own that is longer than one request.
struct Own {
    store: Arc<Store>,
    runs: Vec<Run>,
    _folder: tempfile::TempDir,
}

pub(crate) fn write(store: &Store, length: RunLength, byte: u8, len: usize) -> Run {
    let mut writer = store.begin(length, b"owner").unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(7) ^ byte ^ (at >> 9) as u8).collect();
    writer.write(&bytes).unwrap();
    let run = writer.end().unwrap();
    store.sync_blocking(run.segment).unwrap();
    run
}

fn opened(folder: &Path) -> Arc<Store> {
    let store = Store::open(Env::real(), Options::new(folder)).unwrap();
    let name = store.name();
    store.attach(StoreName { number: StoreNumber(1), generation: name.generation + 1, ..name }).unwrap();
    store
}

impl Own {
    fn new() -> Own {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder.path().join("one"));
        let mut runs: Vec<Run> = [(1, 5000), (2, 70_000), (3, 3)]
            .map(|(byte, len)| write(&store, RunLength::Exact(len as u64), byte, len))
            .into();
        runs.push(write(&store, RunLength::ExactAlone(9 << 20), 4, 9 << 20));
        [0, 3].into_iter().for_each(|at: usize| store.seal(runs[at].segment).unwrap());
        Own { store, runs, _folder: folder }
    }

    fn infos(&self) -> [SegmentInfo; 2] {
        [0, 3].map(|at: usize| self.store.listed(self.runs[at].segment).unwrap())
    }

    fn put(&self, pool: &Tried, info: SegmentInfo) -> Result<(), PoolError> {
        let own = Arc::clone(&self.store);
        let read: ReadOwn = Arc::new(move |range: Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            own.file(info.id)?.read_exact_at(&mut bytes, range.start)?;
            Ok(bytes)
        });
        let objects = pool.pools.objects(POOL).unwrap();
        pool.runtime.block_on(async move { objects.put(info, read).await })
    }

    fn check(&self, pool: &PoolStore) {
        for run in &self.runs {
            let extent = Extent { run: *run, skip: 1, len: run.len - 1 };
            for (skip, len) in [(0, extent.len), (extent.len - 1, 1), (extent.len / 2, extent.len / 4)] {
                assert!(pool.read(&extent, skip, len).unwrap() == self.store.read(&extent, skip, len).unwrap());
            }
            pool.verify(&Extent::whole(*run)).unwrap();
        }
    }
}

/// Pools over a simulated store.
struct Tried {
    simulated: Simulated,
    pools: Arc<Pools>,
    runtime: Runtime,
}

impl Tried {
    fn new() -> Tried {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let simulated = Simulated::default();
        let pools = Arc::new(Pools::new(Some(Arc::new(simulated.clone())), runtime.handle().clone()));
        let pool = Pool {
            name: "cold".to_owned(),
            bucket: "bucket".to_owned(),
            prefix: "pre".to_owned(),
            endpoint: "http://h".to_owned(),
            region: String::new(),
            folder: "f".to_owned(),
            is_virtual: false,
            copies: 2,
        };
        pools.set(&[(POOL, pool)].into());
        Tried { simulated, pools, runtime }
    }

    fn store(&self) -> PoolStore {
        PoolStore::new(&self.pools, POOL)
    }

    fn set(&self, faults: Faults) {
        self.simulated.0.lock().faults = faults;
    }

    /// As another process reads it.
    fn forget(&self, own: &Own) {
        own.infos().iter().for_each(|info| self.pools.blocks.forget((POOL, info.id)));
    }
}

#[test]
fn segments_are_put_whole_and_read_in_pieces_also_when_answers_are_lost() {
    for lost in [0, 3, 5] {
        let (own, world) = (Own::new(), Tried::new());
        world.set(Faults { lost, ..Faults::default() });
        for info in own.infos() {
            own.put(&world, info).unwrap();
            let there = world.store().state(info.id).unwrap();
            assert_eq!((there.kind, there.len, there.open), (info.kind, info.len, false));
            let source = world.store().source(info.id).unwrap();
            assert_eq!((source.kind, source.file.len().unwrap()), (info.kind, info.len));
        }
        own.check(&world.store());
        let key = format!("pre/margay/f/{:016x}", own.infos()[1].id.0);
        assert!(world.simulated.0.lock().objects.contains_key(&key));
        // Again, as after a crash before its row named the pool.
        own.put(&world, own.infos()[0]).unwrap();
        world.forget(&own);
        own.check(&world.store());
    }
}

#[test]
fn what_the_store_did_not_keep_as_it_was_does_not_count() {
    let (own, world) = (Own::new(), Tried::new());
    world.set(Faults { damages_what_is_put: true, ..Faults::default() });
    for info in own.infos() {
        assert!(matches!(own.put(&world, info), Err(PoolError::Damaged("other bytes"))));
    }
    // It is put again by whoever looks after it.
    world.set(Faults::default());
    own.infos().into_iter().for_each(|info| own.put(&world, info).unwrap());
    own.check(&world.store());
}

#[test]
fn damaged_answers_are_asked_for_once_more_and_are_never_given_on() {
    let (own, world) = (Own::new(), Tried::new());
    own.infos().into_iter().for_each(|info| own.put(&world, info).unwrap());
    for damaged_reads in [1, usize::MAX] {
        world.set(Faults { damaged_reads, ..Faults::default() });
        let extent = Extent::whole(own.runs[1]);
        let read = world.store().read(&extent, 0, extent.len);
        match damaged_reads {
            1 => assert!(read.unwrap() == own.store.read(&extent, 0, extent.len).unwrap()),
            _ => assert!(matches!(read, Err(SegmentError::Corrupt { .. }))),
        }
        world.forget(&own);
    }
    let extent = Extent::whole(own.runs[3]);
    world.set(Faults { damaged_reads: usize::MAX, ..Faults::default() });
    assert!(matches!(world.store().read(&extent, 0, 100), Err(SegmentError::Corrupt { .. })));
    assert!(matches!(world.store().verify(&extent), Err(SegmentError::Corrupt { .. })));
    // An object of another length, as of a store that cut it off.
    world.set(Faults::default());
    world.forget(&own);
    world.simulated.0.lock().objects.values_mut().for_each(|(_, bytes)| bytes.truncate(4000));
    assert!(matches!(world.store().read(&extent, 0, 100), Err(SegmentError::Corrupt { .. })));
}

#[test]
fn no_answer_is_unreachable_and_never_missing() {
    let (own, world) = (Own::new(), Tried::new());
    own.put(&world, own.infos()[0]).unwrap();
    let (there, absent) = (Extent::whole(own.runs[0]), Extent::whole(own.runs[3]));
    let is_missing = |outcome: Result<(), SegmentError>| matches!(outcome, Err(SegmentError::Missing(_)));
    let pool = world.store();
    assert!(is_missing(pool.read(&absent, 0, 1).map(drop)) && is_missing(pool.verify(&absent)));
    assert!(is_missing(pool.state(absent.run.segment).map(drop)));
    for faults in [Faults { is_silent: true, ..Faults::default() }, Faults { has_no_bucket: true, ..Faults::default() }]
    {
        world.set(faults);
        world.forget(&own);
        for extent in [there, absent] {
            let asked: [&dyn Fn() -> Result<(), SegmentError>; 3] =
                [&|| pool.read(&extent, 0, 1).map(drop), &|| pool.verify(&extent), &|| {
                    pool.state(extent.run.segment).map(drop)
                }];
            for ask in asked {
                world.pools.has_answered(POOL, true);
                let outcome = ask();
                assert!(matches!(outcome, Err(SegmentError::Unreachable(_, POOL))), "{faults:?} {outcome:?}");
                // The next one does not wait.
                let requests = world.simulated.0.lock().requests;
                assert!(matches!(ask(), Err(SegmentError::Unreachable(_, POOL))));
                assert_eq!(world.simulated.0.lock().requests, requests);
            }
        }
        assert!(matches!(own.put(&world, own.infos()[1]), Err(PoolError::Unreachable(_))));
    }
    // A pool that is known no more, or whose keys are missing.
    world.pools.set(&BTreeMap::new());
    assert!(matches!(pool.state(there.run.segment), Err(SegmentError::Unreachable(_, POOL))));
}

#[test]
fn what_is_there_is_listed_page_by_page_and_removed() {
    let (own, world) = (Own::new(), Tried::new());
    let objects = world.pools.objects(POOL).unwrap();
    let info = own.infos()[0];
    for id in (1..=5).map(SegmentId) {
        let bytes = own.store.file(info.id).unwrap();
        let read: ReadOwn = Arc::new(move |range: Range<u64>| {
            let mut out = vec![0; (range.end - range.start) as usize];
            bytes.read_exact_at(&mut out, range.start)?;
            Ok(out)
        });
        let put = objects.put(SegmentInfo { id, kind: Kind::Pack, ..info }, read);
        world.runtime.block_on(put).unwrap();
    }
    world.simulated.0.lock().objects.insert("pre/margay/f/other".to_owned(), Default::default());
    let listed = || world.runtime.block_on(objects.list_all(&|| false));
    let all = listed().unwrap();
    assert!(all.iter().map(|listed| listed.id).eq((1..=5).map(SegmentId)));
    assert!(all.iter().all(|listed| listed.modified == "then"));
    assert!(world.runtime.block_on(objects.list_all(&|| true)).is_err(), "the process ends");
    // A store that does not know where to go on.
    world.set(Faults { lists_from_the_start: true, ..Faults::default() });
    assert!(matches!(listed(), Err(PoolError::Unreachable(why)) if why.contains("ascend")));
    world.set(Faults::default());
    world.runtime.block_on(objects.remove(SegmentId(3))).unwrap();
    world.runtime.block_on(objects.remove(SegmentId(3))).unwrap();
    assert!(matches!(world.store().state(SegmentId(3)), Err(SegmentError::Missing(_))));
    world.set(Faults { is_silent: true, ..Faults::default() });
    assert!(matches!(listed(), Err(PoolError::Unreachable(_))));
}
