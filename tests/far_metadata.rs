//! Metadata that S3 clients put into a far bucket or through its gateway: what the mount shows of it, and what each side gets back.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "tests measure time and lay out files themselves")]

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use margay_client::Condition;
use margay_client::upstream::{Described, Grid, Metadata, StateOf, Upstream, Wanted};
use rustix::process::Signal;
use tokio::runtime::Runtime;

#[path = "server/fuse.rs"]
mod fuse;
mod server;

use server::Server;
use server::far::{Body, PART_BYTES, World, upstream_of};

/// A client of one server.
struct Client {
    upstream: Upstream,
    runtime: Runtime,
}

fn metadata(pairs: &[(&'static str, &'static str)]) -> Metadata {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

impl Client {
    fn of(server: &Server) -> Client {
        Client { upstream: upstream_of(server), runtime: Runtime::new().unwrap() }
    }

    fn put(&self, key: &str, body: &'static [u8], pairs: &[(&'static str, &'static str)]) {
        let metadata = metadata(pairs);
        let put = self.upstream.put_object(key, Bytes::from_static(body), Condition::Always, &metadata);
        self.runtime.block_on(put).unwrap();
    }

    fn upload(&self, key: &str, body: Vec<u8>, pairs: &[(&'static str, &'static str)]) {
        let (grid, metadata) = (Grid::of_parts(body.len() as u64, PART_BYTES), metadata(pairs));
        let sent = self.upstream.upload(key, grid, Body(body.into()), Condition::Always, &metadata);
        self.runtime.block_on(sent).unwrap();
    }

    fn copy(&self, from: &str, to: &str, pairs: Option<&[(&'static str, &'static str)]>) {
        let (etag, metadata) = (self.head(from).etag, pairs.map(metadata));
        let source = StateOf { key: from, etag: &etag };
        let copied = self.upstream.copy_object(source, to, Condition::Always, metadata.as_ref());
        self.runtime.block_on(copied).unwrap();
    }

    fn head(&self, key: &str) -> Described {
        self.find(key).unwrap_or_else(|| panic!("{key} is not there"))
    }

    fn find(&self, key: &str) -> Option<Described> {
        self.runtime.block_on(self.upstream.describe(key)).unwrap()
    }

    fn content(&self, key: &str) -> Bytes {
        let size = self.head(key).size;
        self.runtime.block_on(self.upstream.get(key, 0..size, Wanted::Any)).unwrap().unwrap().bytes
    }

    /// User metadata, without what the far mount knows its writes by.
    fn user(&self, key: &str) -> Vec<(String, String)> {
        let headers = self.head(key).headers;
        let own = |(name, value): (&HeaderName, &HeaderValue)| {
            let name = name.as_str().strip_prefix("x-amz-meta-").filter(|name| *name != "margay-w")?;
            Some((name.to_owned(), value.to_str().unwrap().to_owned()))
        };
        let mut pairs: Vec<(String, String)> = headers.iter().filter_map(own).collect();
        pairs.sort();
        pairs
    }
}

/// Names without their prefix, in order.
fn user(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let short = |name: &str| name.strip_prefix("x-amz-meta-").unwrap().to_owned();
    let mut pairs: Vec<_> = pairs.iter().map(|(name, value)| (short(name), (*value).to_owned())).collect();
    pairs.sort();
    pairs
}

/// Mode, owner and time as the kernel has them.
fn shown(path: &Path) -> (u32, u32, u32, i64, i64) {
    let found = fs::symlink_metadata(path).unwrap();
    (found.mode() & 0o7777, found.uid(), found.gid(), found.mtime(), found.mtime_nsec())
}

const WHOLE: [(&str, &str); 5] = [
    ("x-amz-meta-colour", "red"),
    ("x-amz-meta-gid", "100"),
    // Decimal, as s3fs has it.
    ("x-amz-meta-mode", "33184"),
    ("x-amz-meta-mtime", "1500000000.25"),
    ("x-amz-meta-uid", "1000"),
];
const TIME: [(&str, &str); 1] = [("x-amz-meta-mtime", "1400000000.123456789")];
const ODD: [(&str, &str); 4] = [
    ("x-amz-meta-gid", "-5"),
    ("x-amz-meta-mode", "rw-r--r--"),
    ("x-amz-meta-mtime", "yesterday"),
    ("x-amz-meta-uid", "root"),
];

#[test]
fn what_a_gateway_is_given_are_attributes_of_the_file() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let direct = Client::of(&world.server);
    direct.put("sub/there", b"far", &TIME);
    let mounted = world.folder.path().join("mounted");
    let words = ["--mount", mounted.to_str().unwrap()];
    let gateway = world.serve("cache", &world.server.endpoint, &words);
    let client = Client::of(&gateway);
    client.put("whole", b"whole", &WHOLE);
    client.put("time", b"time", &TIME);
    client.put("odd", b"odd", &ODD);
    client.put("plain", b"plain", &[]);
    client.put("target", b"whole", &[("x-amz-meta-mode", "0120777")]);
    client.upload("parts", vec![7; 17 << 20], &WHOLE);
    client.copy("whole", "copied", None);
    client.copy("whole", "replaced", Some(&TIME));
    client.copy("plain", "plain", Some(&TIME));

    let whole = (0o640, 1000, 100, 1_500_000_000, 250_000_000);
    let (seconds, rest) = (1_400_000_000, 123_456_789);
    for name in ["whole", "parts", "copied"] {
        assert_eq!(shown(&mounted.join(name)), whole, "{name}");
        assert_eq!(client.user(name), user(&WHOLE), "{name} as it was put");
    }
    for name in ["time", "plain", "replaced", "there"] {
        assert_eq!(shown(&mounted.join(name)), (0o644, 0, 0, seconds, rest), "{name}");
        assert_eq!(client.user(name), user(&TIME), "{name} as it was put");
    }
    let now = shown(&mounted.join("odd"));
    assert!((now.0, now.1, now.2) == (0o644, 0, 0) && now.3 > 1_700_000_000, "{now:?}");
    assert_eq!(client.user("odd"), user(&ODD), "no error, and no attribute");
    assert_eq!(fs::read_link(mounted.join("target")).unwrap(), Path::new("whole"));

    fs::File::open(&mounted).unwrap().sync_all().unwrap();
    let sent = [
        ("x-amz-meta-colour", "red"),
        ("x-amz-meta-gid", "100"),
        ("x-amz-meta-mode", "0100640"),
        ("x-amz-meta-mtime", "1500000000.250000000"),
        ("x-amz-meta-uid", "1000"),
    ];
    for name in ["whole", "parts", "copied"] {
        assert_eq!(direct.user(&format!("sub/{name}")), user(&sent), "{name} in the far bucket");
    }
    // What the mount changes is told in place of what was put.
    fs::set_permissions(mounted.join("whole"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(client.user("whole").contains(&("mode".to_owned(), "0100600".to_owned())));
    assert!(client.user("whole").contains(&("mtime".to_owned(), "1500000000.25".to_owned())));
    let at = std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    fs::File::options().write(true).open(mounted.join("odd")).unwrap().set_modified(at).unwrap();
    fs::write(mounted.join("made"), "here").unwrap();
    fs::File::options().write(true).open(mounted.join("made")).unwrap().set_modified(at).unwrap();
    assert_eq!(client.user("made"), user(&[("x-amz-meta-mtime", "1600000000")]), "a time that the mount has set");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.code(), Some(0));

    let gateway = world.serve("another", &world.server.endpoint, &words);
    let client = Client::of(&gateway);
    let mut anew = sent;
    anew[2].1 = "0100600";
    assert_eq!(client.user("whole"), user(&anew), "as the bucket has it");
    assert_eq!(client.user("copied"), user(&sent));
    assert_eq!(client.user("there"), user(&TIME), "what another client has put into the bucket");
    assert_eq!(shown(&mounted.join("copied")), whole);
}

/// A server of its own volume has no other store to agree with.
#[test]
fn a_server_of_its_own_keeps_such_metadata_as_it_is() {
    let world = World::new();
    let client = Client::of(&world.server);
    client.put("whole", b"whole", &WHOLE);
    assert_eq!(client.user("whole"), user(&WHOLE));
    let modified = client.head("whole").headers["last-modified"].to_str().unwrap().to_owned();
    assert!(!modified.contains("2017"), "{modified}: the time of the request");
}

fn xattr(path: &Path, name: &str) -> Option<String> {
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(String::from_utf8(value[..len].to_vec()).unwrap())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_object_of_a_directory_keeps_what_others_told_with_it() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let direct = Client::of(&world.server);
    direct.put("sub/listed/", b"content", &[("content-type", "text/plain"), ("x-amz-meta-colour", "red")]);
    direct.put("sub/later/file", b"file", &[]);
    direct.put("sub/gone/", b"content", &[]);
    direct.put("sub/replaced/", b"content", &[]);
    let far = world.mount("cache");
    for name in ["listed", "later", "gone", "replaced"] {
        assert!(fs::read_dir(far.path.join(name)).unwrap().count() < 2, "{name} is known now");
    }
    let blue = [("content-type", "text/html"), ("x-amz-meta-colour", "blue"), ("x-amz-meta-shape", "round")];
    direct.put("sub/later/", b"later", &blue);
    direct.put("sub/replaced/", b"another", &[]);
    fs::remove_dir(far.path.join("gone")).unwrap();
    fs::remove_dir(far.path.join("replaced")).unwrap();
    for mode in [0o700, 0o711] {
        set_mode(&far.path.join("listed"), mode);
        set_mode(&far.path.join("later"), mode);
        far.sync();
        let here =
            |key: &str| (direct.content(key), direct.head(key).headers["content-type"].clone(), direct.user(key));
        let (content, kind, user) = here("sub/listed/");
        assert_eq!((&content[..], &kind), (&b"content"[..], &HeaderValue::from_static("text/plain")));
        assert!(user.contains(&("colour".to_owned(), "red".to_owned())), "{user:?}");
        assert!(user.contains(&("mode".to_owned(), format!("040{mode:o}"))), "{user:?}");
        let (content, kind, user) = here("sub/later/");
        assert_eq!((&content[..], &kind), (&b"later"[..], &HeaderValue::from_static("text/html")));
        assert!(user.contains(&("colour".to_owned(), "blue".to_owned())), "{user:?}");
        assert!(user.contains(&("shape".to_owned(), "round".to_owned())), "{user:?}");
        assert!(user.contains(&("mode".to_owned(), format!("040{mode:o}"))), "{user:?}");
    }
    assert_eq!(xattr(&far.path.join("later"), "user.shape").as_deref(), Some("round"));
    assert!(direct.find("sub/gone/").is_none(), "the object goes with its directory");
    assert_eq!(&direct.content("sub/replaced/")[..], b"another", "by its ETag alone");
    assert_eq!(far.end(), Some(0));
}

#[test]
fn names_of_temporary_objects_are_refused() {
    if fuse::must_not_mount() {
        return;
    }
    let world = World::new();
    let direct = Client::of(&world.server);
    direct.put("sub/implied/file", b"file", &[]);
    let far = world.mount("cache");
    let taken = far.path.join(".margay-tmp");
    let refused = |done: io::Result<()>| assert_eq!(done.unwrap_err().raw_os_error(), Some(1));
    refused(fs::create_dir(&taken));
    fs::create_dir(far.path.join("made")).unwrap();
    for name in ["made", "implied"] {
        refused(fs::rename(far.path.join(name), &taken));
    }
    assert!(!taken.exists());
    fs::create_dir(far.path.join("made/.margay-tmp")).unwrap();
    far.sync();
    assert!(direct.find("sub/made/.margay-tmp/").is_some(), "only the name at the top is taken");
    assert_eq!(far.end(), Some(0));
}
