//! Entry points of the fuzz targets: what a far mount makes of headers and of the answers to its probe, as arbitrary bytes.
//!
//! Layout:     headers are lines `name: value`, answers as in `fuzzing` of margay-client.
//! Invariants: Z1 any headers give attributes, and what is written of them is read as the same.
//!             Z2 packed attributes and words come back.
//!             Z3 no condition counts as honoured without an answer that refused by it.
//! Not here:   the targets themselves and their seeds (fuzz/).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_client::fuzzing::{run, scripted};
use margay_client::upstream::Described;
use margay_env::sim::{SimClock, SimDisk, SimRandom};
use margay_env::{Env, Timestamp};
use margay_meta::memory::Memory;
use margay_rows::Ino;
use margay_rows::record::Data;
use margay_volume::{Imported, ImportedKind, Options, Volume};

use crate::heads::Found;
use crate::list::{Listing, imported, parse_etag};
use crate::opens::{Opens, Ttl, Writers};
use crate::runtime::Requests;
use crate::send::{PartSizes, Sender, Uploads};
use crate::tracked::{Paths, Tracked};
use crate::{attributes, packed, words};

const KINDS: u32 = 0o170_000;
const LINK: u32 = 0o120_000;

/// Extended attributes, whether an object has them as headers or packed; the target of a link is none.
fn all(one: &Imported) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let own = |name: &str| Some(name.strip_prefix(packed::USER)?.to_owned());
    let headers = match &one.kind {
        ImportedKind::File { headers, .. } => {
            headers.iter().filter_map(|(name, value)| Some((own(name)?, value))).collect()
        }
        ImportedKind::Directory { .. } => Vec::new(),
    };
    let headers = headers.iter().map(|(name, value)| packed::of_header(name, value));
    let all = headers.chain(one.xattrs.iter().cloned());
    all.filter(|(name, _)| name != b"user.--symlink-target").collect()
}

fn headers_of(bytes: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii())) {
            headers.append(name, value);
        }
    }
    headers
}

fn found(name: &str, headers: &HeaderMap) -> Found {
    let etag = headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let there = Some(Described { etag, size: 7, headers: headers.clone() });
    Found { sort_name: name.to_owned(), key: format!("d/{name}"), there, modified: 0, attributes: None }
}

/// Headers of an object: a file and a directory are made from them, written back, and read again as the same.
pub fn object_headers(bytes: &[u8]) {
    let headers = headers_of(bytes);
    let _ = parse_etag(headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default());
    let read = |name: &str, headers: &HeaderMap| imported(Ino(7), &found(name, headers), Timestamp(0));
    let file = read("a", &headers);
    if let Some(entry) = file.file(Data::Inline(Vec::new())) {
        let written: HeaderMap = attributes::of_file(&entry, &file.xattrs, "1-7-8.9").into_iter().collect();
        let again = read("a", &written);
        // Nobody asks for the rights of a link.
        let mode = |mode: u32| if mode & KINDS == LINK { LINK } else { mode };
        assert_eq!(
            (mode(file.mode), file.uid, file.gid, file.modified, all(&file)),
            (mode(again.mode), again.uid, again.gid, again.modified, all(&again))
        );
        let device = |one: &Imported| one.file(Data::Inline(Vec::new())).map(|file| file.device);
        assert_eq!(device(&file), device(&again));
    }
    let directory = read("a/", &headers);
    if let Some(entry) = directory.directory() {
        let metadata = attributes::of_directory(&entry, directory.modified, &directory.xattrs, "1-7-8.9");
        let again = read("a/", &metadata.into_iter().collect());
        assert_eq!(
            (directory.mode, directory.uid, directory.gid, directory.modified, &directory.xattrs),
            (again.mode, again.uid, again.gid, again.modified, &again.xattrs)
        );
    }
}

/// Attributes in one header, of ours and of s3fs, and words of RFC 2047.
pub fn packed_attributes(bytes: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        for name in ["x-amz-meta-margay-x", "x-amz-meta-xattr"] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value.clone())]);
            let attributes = packed::of_headers(&headers);
            let Ok(again) = HeaderValue::from_str(&packed::pack(&attributes)) else { panic!("it is no header") };
            let again = HeaderMap::from_iter([(HeaderName::from_static("x-amz-meta-margay-x"), again)]);
            assert_eq!(packed::of_headers(&again), attributes);
        }
    }
    if let Some(value) = words::decoded(bytes) {
        let encoded = words::encoded(&value);
        assert!(encoded.is_ascii());
        assert_eq!(words::decoded(encoded.as_bytes()).as_deref(), Some(value.as_str()));
    }
}

/// What does not differ between inputs: a volume is not asked here, and threads are not used.
fn shared() -> &'static (Env, Arc<Volume>, Arc<Requests>) {
    static SHARED: OnceLock<(Env, Arc<Volume>, Arc<Requests>)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let env = Env { disk: Arc::new(SimDisk::new(1)), clock, random: Arc::new(SimRandom::new(1)) };
        let segments = margay_segment::Options::new(Path::new("/segments"));
        let segments = margay_segment::Store::open(env.clone(), segments).expect("the disk is empty");
        let volume = Volume::open(env.clone(), Arc::new(Memory::new()), segments, Options::default());
        let requests = Requests::begin().expect("there are threads");
        (env, volume.expect("the engine is empty"), Arc::new(requests))
    })
}

/// Answers to the probe: what the store honours comes out, or an error.
pub fn probe(bytes: &[u8]) {
    let (env, volume, requests) = shared();
    let (upstream, clock) = (scripted(bytes), Arc::clone(&env.clock));
    let tracked = Tracked::open(Arc::new(Memory::new()), Paths::below("p/"), Arc::clone(&clock), Ttl::default());
    let tracked = Arc::new(tracked.expect("an engine without rows"));
    let (volume, requests) = (Arc::clone(volume), Arc::clone(requests));
    let uploads = Uploads::read(&*tracked.below).expect("an engine without rows");
    let listing = Listing::new(
        Arc::clone(&tracked),
        Arc::clone(&volume),
        "b",
        upstream.clone(),
        requests,
        Arc::clone(&clock),
        Opens::default(),
    );
    let (listing, id, host) = (Arc::new(listing), "1".to_owned(), "here".to_owned());
    let sender = Sender {
        tracked,
        volume,
        bucket: "b".to_owned(),
        upstream,
        id,
        process: 2,
        host,
        clock,
        listing,
        sizes: PartSizes::default(),
        uploads,
        honoured: parking_lot::Mutex::default(),
        conflicts: parking_lot::Mutex::default(),
        awaits_answer: false,
        writers: Writers::default(),
    };
    let Ok(found) = run(sender.probe_now()) else { return };
    let named = found.named().expect("it has answered");
    let by_status = named.iter().filter(|(name, honoured)| *name != "remove" && *honoured).count();
    let has = |text: &[u8]| bytes.windows(text.len()).filter(|window| *window == text).count();
    assert!(by_status <= has(b"412"), "{found:?}");
    assert!(has(b"PreconditionFailed") > 0 || !named.iter().any(|(name, honoured)| *name == "remove" && *honoured));
}
