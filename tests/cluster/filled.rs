//! A volume that was filled through both doors, and everything that it shows.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::{HeaderName, HeaderValue};
use margay_client::client::{Ask, Client};
use margay_client::connection::Connection;
use margay_volume::{DumpHeader, DumpSink, Error, PiecePlace, read_dump, read_dump_header};
use rustix::process::Signal;

use crate::server::{Server, margay};
use crate::world::{World, body};

/// Small files of the log, so that some are behind the tree.
const LIMITS: [&str; 2] = ["--set", "limits.log_bytes_max=8MiB"];
/// Shorter than that a body travels in the log.
const IN_LOG_BYTES: usize = 9000;
/// In a segment of its own.
const RAW_BYTES: usize = 17 << 20;

/// Requests that no client of ours makes.
pub(crate) struct Raw {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Raw {
    pub(crate) fn of(server: &Server) -> Raw {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Raw { runtime, client: Client::new(Connection::new(Arc::new(server.target()))) }
    }

    pub(crate) fn ask(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> String {
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        let mut ask = Ask::new(method, bucket, key);
        (ask.query, ask.headers, ask.body) = (query.to_owned(), headers.collect(), Bytes::copy_from_slice(body));
        let answer = self.runtime.block_on(self.client.ask(&ask)).unwrap();
        String::from_utf8_lossy(&answer.body).into_owned()
    }

    pub(crate) fn put(&mut self, path: &str, body: &[u8]) {
        self.ask(Method::PUT, path, "", &[], body);
    }

    fn field(document: &str, name: &str) -> String {
        let (_, rest) = document.split_once(&format!("<{name}>")).unwrap();
        rest.split_once('<').unwrap().0.to_owned()
    }
}

pub(crate) fn raw_body() -> Vec<u8> {
    (0..RAW_BYTES).map(|at| (at as u8).wrapping_mul(29).wrapping_add((at >> 12) as u8)).collect()
}

fn order(data: &Path, words: &[&str]) {
    let done = margay().args(words).arg("--data").arg(data).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Objects of all sizes, versions, encryption, an upload under way, settings, users and a quota.
pub(crate) fn fill_by_s3(server: &Server) {
    let mut raw = Raw::of(server);
    raw.ask(Method::PUT, "bucket", "", &[], b"");
    raw.ask(Method::PUT, "kept", "", &[], b"");
    let versions = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    raw.ask(Method::PUT, "kept", "versioning=", &[], versions.as_bytes());
    for number in 0..60_u8 {
        raw.put(&format!("bucket/small/{number:03}"), &[number; 40]);
        raw.put(&format!("bucket/logged/{number:03}"), &body(number)[..IN_LOG_BYTES]);
        raw.put(&format!("bucket/packed/{:03}", number % 20), &body(number));
    }
    raw.put("bucket/raw", &raw_body());
    raw.put("bucket/empty/", b"");
    for number in 0..5 {
        raw.put("kept/key", &body(number)[..IN_LOG_BYTES]);
    }
    raw.put("kept/gone", b"x");
    raw.ask(Method::DELETE, "kept/gone", "", &[], b"");
    let secret = [("x-amz-server-side-encryption", "AES256"), ("x-amz-meta-who", "ann"), ("x-amz-tagging", "a=b")];
    raw.ask(Method::PUT, "bucket/secret", "", &secret, &body(77));
    let upload = raw.ask(Method::POST, "bucket/parts", "uploads=", &[], b"");
    let upload = Raw::field(&upload, "UploadId");
    raw.ask(Method::PUT, "bucket/parts", &format!("partNumber=1&uploadId={upload}"), &[], &raw_body());
    let rules = "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix>old/</Prefix></Filter>\
                 <Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>";
    raw.ask(Method::PUT, "bucket", "lifecycle=", &[("content-md5", "rGoMBFq0/cXhal94PhselQ==")], rules.as_bytes());
    order(&server.data, &["user", "create", "ann", "--account"]);
    order(&server.data, &["bucket", "quota", "kept", "--objects", "100"]);
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Files with two names, attributes and modes, and one that a mount has written in pieces.
pub(crate) fn fill_by_mount(at: &Path) {
    fs::create_dir_all(at.join("d/e")).unwrap();
    fs::write(at.join("d/one"), body(40)).unwrap();
    fs::hard_link(at.join("d/one"), at.join("d/e/two")).unwrap();
    std::os::unix::fs::symlink("../one", at.join("d/e/link")).unwrap();
    rustix::fs::setxattr(at.join("d/one"), "user.colour", b"green", rustix::fs::XattrFlags::empty()).unwrap();
    fs::set_permissions(at.join("d/e"), std::os::unix::fs::PermissionsExt::from_mode(0o750)).unwrap();
    fs::write(at.join("d/in-log"), &body(41)[..IN_LOG_BYTES]).unwrap();
}

/// What both doors show: each object and version with its bytes, each name of the mount with its attributes.
pub(crate) fn shown_by_s3(server: &Server) -> BTreeMap<String, String> {
    let mut raw = Raw::of(server);
    let mut shown = BTreeMap::new();
    for (bucket, queries) in
        [("bucket", &["list-type=2&max-keys=1000", "lifecycle=", "uploads="][..]), ("kept", &["versions="])]
    {
        for query in queries {
            shown.insert(format!("{bucket}?{query}"), raw.ask(Method::GET, bucket, query, &[], b""));
        }
    }
    let listed = shown["bucket?list-type=2&max-keys=1000"].clone();
    for key in listed.split("<Key>").skip(1).map(|rest| rest.split_once('<').unwrap().0) {
        let path = format!("bucket/{key}");
        let bytes = raw.ask(Method::GET, &path, "", &[], b"");
        shown.insert(path, format!("{} {}", bytes.len(), digest(bytes.as_bytes())));
    }
    let versions = shown["kept?versions="].clone();
    for one in versions.split("<Version>").skip(1) {
        let (key, id) = (Raw::field(one, "Key"), Raw::field(one, "VersionId"));
        let bytes = raw.ask(Method::GET, &format!("kept/{key}"), &format!("versionId={id}"), &[], b"");
        shown.insert(format!("kept/{key}@{id}"), format!("{} {}", bytes.len(), digest(bytes.as_bytes())));
    }
    shown
}

pub(crate) fn shown_by_mount(at: &Path) -> BTreeMap<String, String> {
    use std::os::unix::fs::MetadataExt as _;
    let mut shown = BTreeMap::new();
    let mut folders = vec![at.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let of = fs::symlink_metadata(&path).unwrap();
            let mut what = format!("{:o} {} {} {} {}", of.mode(), of.nlink(), of.size(), of.ino(), of.mtime());
            if of.is_file() {
                what.push_str(&digest(&fs::read(&path).unwrap()).to_string());
            } else if of.is_dir() {
                folders.push(path.clone());
            } else {
                what.push_str(&fs::read_link(&path).unwrap().display().to_string());
            }
            let mut value = [0_u8; 64];
            if let Ok(len) = rustix::fs::lgetxattr(&path, "user.colour", &mut value) {
                what.push_str(&String::from_utf8_lossy(&value[..len]));
            }
            shown.insert(path.strip_prefix(at).unwrap().display().to_string(), what);
        }
    }
    shown
}

/// All rows of a directory's volume as its dump has them, but those that each start changes: numbers that were not handed out, and
/// where orders of events begin.
pub(crate) fn rows(data: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let done = margay().args(["dump", "--rows", "--data"]).arg(data).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (mut stream, mut found) = (Cursor::new(done.stdout), Found::default());
    let header: DumpHeader = read_dump_header(&mut stream).unwrap();
    read_dump(&mut stream, &header, &mut found).unwrap();
    found.0
}

#[derive(Default)]
struct Found(BTreeMap<Vec<u8>, Vec<u8>>);

impl DumpSink for Found {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if !matches!(key[0], b'i' | b'Q') {
            self.0.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn rows_end(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn file(&mut self, _name: &str, _bytes: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn piece(&mut self, _place: &PiecePlace, _bytes: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

/// Says which rows differ, and not all that they hold.
pub(crate) fn assert_same(before: &BTreeMap<Vec<u8>, Vec<u8>>, after: &BTreeMap<Vec<u8>, Vec<u8>>) {
    assert!(before.len() > 200, "{} rows", before.len());
    for key in before.keys().chain(after.keys()) {
        assert_eq!(before.get(key), after.get(key), "{}", key.escape_ascii());
    }
}

/// A volume of one server with something of everything; the server is killed, so that its log is not in its tree.
pub(crate) fn filled_volume(world: &World) -> PathBuf {
    let data = world.data("one");
    let server = Server::start_with(&data, &LIMITS);
    fill_by_s3(&server);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    let server = Server::start_with(&data, &LIMITS);
    let mut raw = Raw::of(&server);
    for number in 0..40 {
        raw.put(&format!("bucket/late/{number}"), &body(number)[..9000]);
    }
    server.signal(Signal::KILL);
    assert_eq!(server.code(), None);
    data
}
