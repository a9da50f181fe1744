//! Attributes go to the bucket and come back, and what an object cannot hold is refused at the call.

use std::time::Duration;

use margay_env::Timestamp;
use margay_volume::posix::*;

use crate::store::{Lists, Store};
use crate::world::*;
use crate::{in_bucket, keys};

/// Owner rwx, user 5 rw, group rx, mask rwx, others x.
const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 5, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 7, 0,
    255, 255, 255, 255, 32, 0, 1, 0, 255, 255, 255, 255,
];
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn set(world: &World, path: &str, name: &str, value: &[u8]) -> Done<()> {
    world.mount.set_xattr(world.at(path)?, name.as_bytes(), value, SetXattr::Any, false)
}

fn header(store: &Store, key: &str, name: &str) -> Option<String> {
    store.objects()[key].headers.get(name).cloned()
}

/// A new cache of the same bucket.
fn fresh(store: &std::sync::Arc<Store>, seed: u64) -> World {
    let target = runtime().block_on(store.door());
    Cache::new(seed).open(&target, "")
}

/// Changed on both sides: the content is theirs, the attributes are ours.
#[test]
fn attributes_changed_here_stay_with_the_content_that_others_put() {
    for (seed, lists) in [(71, Lists::Nothing), (72, Lists::Metadata)] {
        let names = ["mode", "moved", "only-moved", "owner", "xattr"];
        let objects: Vec<(&'static str, &'static [u8])> = names.iter().map(|name| (*name, &b"first"[..])).collect();
        let (store, world, cache) = listed_by(seed, &objects, lists);
        let change = |name: &str, change: AttributeChange| {
            world.mount.set_attributes(world.at(name).unwrap(), &change).unwrap();
        };
        for name in ["mode", "moved"] {
            change(name, AttributeChange { rights: Some(0o600), ..AttributeChange::default() });
        }
        change("owner", AttributeChange { uid: Some(5), ..AttributeChange::default() });
        set(&world, "xattr", "user.mine", b"1").unwrap();
        world.rename("moved", "there", RenameMode::Replace).unwrap();
        world.rename("only-moved", "only-there", RenameMode::Replace).unwrap();
        for name in names {
            store.put(name, b"theirs, longer");
            store.set_header(name, "x-amz-meta-mode", "0100640");
            store.set_header(name, "x-amz-meta-mtime", "1500000000.5");
            store.set_header(name, "x-amz-meta-theirs", "2");
            store.set_header(name, "content-type", "text/theirs");
        }
        world.flush();
        let expected = ["mode 600 14", "only-there 640 14", "owner 644 14", "there 600 14", "xattr 644 14"];
        assert_eq!(keys(&in_bucket(&store)), expected, "{lists:?}");
        assert_eq!(keys(&world.shown()), expected, "{lists:?}");
        let there = store.objects();
        for (name, object) in &there {
            assert_eq!(&object.body[..], b"theirs, longer", "{name}");
            assert_eq!(object.headers["x-amz-meta-mtime"], "1500000000.500000000", "{name}: that of the content");
            assert_eq!(object.headers["content-type"], "text/theirs", "{name}: that of the content");
            // The others were changed here.
            assert_eq!(object.headers.contains_key("x-amz-meta-theirs"), name == "only-there", "{name}");
        }
        assert_eq!(
            (&*there["owner"].headers["x-amz-meta-uid"], &*there["xattr"].headers["x-amz-meta-mine"]),
            ("5", "1")
        );
        cache.clock().jump(Duration::from_secs(61));
        world.shown();
        assert_eq!(keys(&world.shown()), expected, "{lists:?}");
        assert_eq!(world.xattrs("xattr").get("user.mine").map(Vec::as_slice), Some(&b"1"[..]));
        let backlog = world.far.backlog();
        assert!(backlog.files == 0 && backlog.conflicts.is_empty(), "{backlog:?}");
        world.reclaim();
    }
}

#[test]
fn extended_attributes_and_access_lists_come_back() {
    let (store, world, mut cache) = listed(41, &[]);
    world.write("", "a", 0, b"content").unwrap();
    world.mount.make_directory(world.mount.root(), &Name::Plain("d".to_owned()), &NEW).unwrap();
    world.flush();
    let pairs: [(&str, &[u8]); 6] = [
        ("user.colour", b"red"),
        ("user.title", "\u{fc}".as_bytes()),
        ("user.bytes", &[0, 255]),
        // Metadata of this name is the file's own.
        ("user.mode", b"odd"),
        ("trusted.x", b"1"),
        (ACCESS, &LIST),
    ];
    for path in ["a", "d"] {
        pairs.iter().for_each(|(name, value)| set(&world, path, name, value).unwrap());
    }
    set(&world, "d", DEFAULT, &LIST).unwrap();
    let before = store.requests();
    world.flush();
    assert_eq!(store.requests() - before, 2, "one copy of each");
    assert_eq!(header(&store, "a", "x-amz-meta-colour").as_deref(), Some("red"));
    assert_eq!(header(&store, "d/", "x-amz-meta-colour").as_deref(), Some("red"));
    assert_eq!(header(&store, "a", "x-amz-meta-title").as_deref(), Some("=?UTF-8?B?w7w=?="));
    let expected = world.xattrs("a");
    assert_eq!(expected, pairs.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect());
    // A process that ends, and a change of one that the last one has sent.
    let target = cache.end(world, &store);
    let world = cache.open(&target, "");
    world.mount.remove_xattr(world.at("a").unwrap(), b"trusted.x").unwrap();
    world.flush();
    assert!(!header(&store, "a", "x-amz-meta-margay-x").unwrap().contains("trusted"), "a row alone is a change");
    world.rename("a", "b", RenameMode::Replace).unwrap();
    world.flush();
    let fresh = fresh(&store, 42);
    let (mut file, mut directory) = (expected.clone(), expected);
    file.remove("trusted.x");
    directory.insert(DEFAULT.to_owned(), LIST.to_vec());
    assert_eq!((fresh.xattrs("b"), fresh.xattrs("d")), (file, directory));
    assert_eq!(fresh.mount.attributes(fresh.at("b").unwrap()).unwrap().rights, 0o771, "as the list says");
    assert_eq!(fresh.far.backlog().files, 0, "what was read is not dirty");
    fresh.reclaim();
    // A file in it inherits.
    fresh.write("d", "new", 0, b"").unwrap();
    assert!(fresh.xattrs("d/new").contains_key(ACCESS));
    fresh.flush();
    assert!(header(&store, "d/new", "x-amz-meta-margay-x").unwrap().starts_with(ACCESS));
}

/// Everything that `ls -l`, `getfattr -d` and a reader see.
fn everything(world: &World, path: &str) -> Vec<String> {
    let (mut items, mut lines) = (Vec::new(), Vec::new());
    let handle = world.mount.open_directory(world.at(path).unwrap()).unwrap();
    let mut visit = |item: &DirectoryItem<'_>| {
        items.push((item.name.to_owned(), item.attributes.unwrap()));
        true
    };
    world.mount.read_directory(&handle, 0, true, &mut visit).unwrap();
    for (name, found) in items {
        let path = format!("{path}{name}");
        let content = match found.kind {
            FileKind::Directory => {
                lines.extend(everything(world, &format!("{path}/")));
                Vec::new()
            }
            FileKind::Symlink => world.mount.read_symlink(found.ino).unwrap().to_vec(),
            _ => Vec::new(),
        };
        // Each mount gives its own numbers, and its own times to what has none in the bucket.
        let Attributes { kind, rights, uid, gid, size, device, links, modified, .. } = found;
        let modified = (path != "implied").then_some(modified);
        let xattrs = world.xattrs(&path);
        let content = String::from_utf8_lossy(&content);
        lines.push(format!(
            "{path} {kind:?} {rights:o} {uid} {gid} {size} {device} {links} {modified:?} {xattrs:?} {content}"
        ));
    }
    lines.sort_unstable();
    lines
}

#[test]
fn a_listing_with_metadata_makes_the_same_entries_as_heads() {
    let (store, target) = runtime().block_on(Store::start());
    let objects: &[(&str, &[(&str, &str)])] = &[
        ("plain", &[]),
        (
            "s3fs",
            &[
                ("mode", "33184"),
                ("uid", "7"),
                ("gid", "8"),
                ("mtime", "1500000000.5"),
                ("xattr", "%7B%22user.a%22%3A%22MQ%3D%3D%22%7D"),
            ],
        ),
        ("rclone", &[("mode", "100640"), ("mtime", "1500000000.123456789")]),
        ("aws", &[("file-permissions", "0100600"), ("file-owner", "7"), ("file-mtime", "1500000000000000001ns")]),
        ("mc", &[("mc-attrs", "atime:1#2/gid:8/mode:33152/mtime:1500000000#5/uid:7")]),
        ("gsutil", &[("goog-reserved-posix-mode", "640"), ("goog-reserved-file-mtime", "1500000000")]),
        ("link", &[("--symlink-target", "up/100%25")]),
        ("fifo", &[("mode", "010644"), ("rdev", "0")]),
        ("device", &[("mode", "020600"), ("rdev", "1283")]),
        ("words", &[("title", "=?UTF-8?B?w7w=?="), ("signs", "<&>\"'")]),
        ("large", &[("text", &"x".repeat(1900))]),
        ("packed", &[("margay-x", "trusted.x=MQ")]),
        ("made/", &[("mode", "040700"), ("uid", "3"), ("mtime", "5"), ("colour", "red")]),
        ("made/in", &[("mode", "0100711")]),
        ("implied/in", &[("mode", "0100600")]),
    ];
    for (key, headers) in objects {
        store.set_header(key, "x-amz-meta-present", "yes");
        headers.iter().for_each(|(name, value)| store.set_header(key, &format!("x-amz-meta-{name}"), value));
    }
    store.set_header("typed", "content-type", "text/html");
    let by_heads = everything(&fresh(&store, 51), "");
    assert_eq!(by_heads.len(), objects.len() + 2);
    store.set_lists(Lists::Metadata);
    let (world, before) = (fresh(&store, 52), store.heads());
    store.wait_probed();
    let by_listing = everything(&world, "");
    assert_eq!(by_listing, by_heads);
    assert_eq!(world.far.lists_attributes(), Some(true));
    let asked = store.heads() - before;
    assert!(asked <= 2 + 3, "two directories, and the probe: {asked}");
    // One that does not tell is asked as before; so is one that refuses.
    for (lists, seed) in [(Lists::Refusal, 53), (Lists::Nothing, 54)] {
        store.set_lists(lists);
        let world = fresh(&store, seed);
        assert_eq!(everything(&world, ""), by_heads, "{lists:?}");
        assert_eq!(world.far.lists_attributes(), Some(false));
    }
    drop(target);
}

#[test]
fn attributes_that_no_object_holds_are_refused_at_the_call() {
    let (store, world, _cache) = listed(43, &[]);
    world.write("", "a", 0, b"content").unwrap();
    world.mount.make_directory(world.mount.root(), &Name::Plain("d".to_owned()), &NEW).unwrap();
    let refused = |done: Done<()>| format!("{:?}", done.unwrap_err()).contains("28");
    for path in ["a", "d"] {
        set(&world, path, "user.kept", b"1").unwrap();
        set(&world, path, "trusted.half", &[1; 800]).unwrap();
        assert!(refused(set(&world, path, "trusted.more", &[1; 800])), "of {path}, packed");
        assert!(refused(set(&world, path, "user.more", &[b'x'; 1000])), "of {path}, as a header");
        assert_eq!(world.xattrs(path).len(), 2, "nothing of what was refused is here");
    }
    world.flush();
    assert_eq!(header(&store, "a", "x-amz-meta-kept").as_deref(), Some("1"));
    let all = store.objects().into_values().flat_map(|object| object.headers);
    let bytes: usize =
        all.filter_map(|(name, value)| Some(name.strip_prefix("x-amz-meta-")?.len() + value.len())).sum();
    assert!(bytes < 2 * 2048, "{bytes} of two objects");
}

#[test]
fn what_others_wrote_larger_may_be_changed_and_not_grow() {
    let (store, world, _cache) = listed(44, &[("other", b"x")]);
    store.set_header("large", "x-amz-meta-text", &"x".repeat(4000));
    let world = (world, fresh(&store, 45)).1;
    let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
    world.mount.set_attributes(world.at("large").unwrap(), &change).unwrap();
    assert!(set(&world, "large", "trusted.more", &[1; 800]).is_err());
    world.flush();
    assert_eq!(header(&store, "large", "x-amz-meta-mode").as_deref(), Some("0100600"));
    assert_eq!(header(&store, "large", "x-amz-meta-text").map(|text| text.len()), Some(4000));
}

#[test]
fn links_without_a_body_and_times_of_directories_come_back() {
    let (store, world, _cache) = listed(46, &[("other", b"x")]);
    drop(world);
    // As GeeseFS and TigrisFS have it.
    store.set_header("link", "x-amz-meta---symlink-target", "up/100%25");
    store.put("link-to", b"");
    let world = fresh(&store, 47);
    let target = |world: &World, path: &str| world.mount.read_symlink(world.at(path).unwrap()).unwrap().to_vec();
    assert_eq!(target(&world, "link"), b"up/100%");
    world.rename("link", "moved", RenameMode::Replace).unwrap();
    let root = world.mount.root();
    world.mount.make_symlink(root, &Name::Plain("own".to_owned()), b"other one", &NEW).unwrap();
    let made = world.mount.make_directory(root, &Name::Plain("d".to_owned()), &NEW).unwrap();
    let at = AttributeChange { modified: Some(SetTime::At(Timestamp(5_000_000_001))), ..AttributeChange::default() };
    world.flush();
    let before = store.requests();
    world.mount.set_attributes(made.ino, &at).unwrap();
    world.flush();
    assert_eq!(store.requests() - before, 1, "a time alone is a change");
    assert_eq!(header(&store, "d/", "x-amz-meta-mtime").as_deref(), Some("5.000000001"));
    assert_eq!(header(&store, "own", "x-amz-meta---symlink-target").as_deref(), Some("other%20one"));
    let fresh = fresh(&store, 48);
    assert_eq!((target(&fresh, "moved"), target(&fresh, "own")), (b"up/100%".to_vec(), b"other one".to_vec()));
    assert_eq!(fresh.mount.attributes(fresh.at("d").unwrap()).unwrap().modified, Timestamp(5_000_000_001));
    // The kernel asks for none of a link.
    assert_eq!((fresh.xattrs("own"), fresh.xattrs("moved")), Default::default());
    assert_eq!(fresh.far.backlog().files, 0);
}
