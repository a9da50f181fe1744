//! Encrypted objects: what goes in comes out through both doors, and nothing of it lies on the disk.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use bytes::Bytes;
use margay_volume::posix::*;
use margay_volume::*;
use world::*;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
const CHUNK: usize = 64 << 10;
/// In every body of a test that looks for it on the disk.
const MARK: &[u8] = b"the cat sat on the mat, 0123456789";

fn world(payload_bytes_max: usize) -> World {
    let master_keys = MasterKeys::new(&[[5; MASTER_KEY_BYTES]]);
    let options = Options { run_bytes_max: 40 << 10, master_keys, ..Options::default() };
    let world = World::with_options(payload_bytes_max, options);
    wait(world.volume.create_bucket("b")).unwrap();
    world
}

fn customer(number: u8) -> CustomerKey {
    CustomerKey::new([number; MASTER_KEY_BYTES])
}

fn marked(len: usize) -> Vec<u8> {
    MARK.iter().copied().cycle().take(len).collect()
}

fn stage(world: &World, key: &DataKey, body: &[u8]) -> Staged {
    wait(async {
        let mut upload = world.volume.begin_encrypted_upload("b", body.len() as u64, key).await.unwrap();
        for piece in body.chunks(7000) {
            upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        upload.finish().await.unwrap()
    })
}

fn put(world: &World, name: &str, body: &[u8], customer: Option<&CustomerKey>) {
    let by = customer.map_or(WrappingKey::Master, |customer| WrappingKey::Customer(customer.clone()));
    let NewKey { key, document } = world.volume.new_data_key(&by).unwrap();
    let staged = stage(world, &key, body);
    let documents = [(Document::Encryption, document)].into();
    let request = PutRequest { bucket: "b", key: name, etag: etag_of(body), documents, ..PutRequest::default() };
    wait(world.volume.put_object(request, staged)).unwrap();
}

fn get(world: &World, name: &str, customer: Option<&CustomerKey>) -> Result<Vec<u8>, Error> {
    let mut reader = wait(world.volume.get_object("b", name, &ReadCondition::default()))?;
    if let Some(customer) = customer {
        reader.unlock_with(customer)?;
    }
    let size = reader.info().size;
    let mut body = Vec::new();
    while (body.len() as u64) < size {
        body.extend_from_slice(&wait(reader.read(body.len() as u64, u64::MAX))?);
    }
    Ok(body)
}

fn info(world: &World, name: &str) -> ObjectInfo {
    wait(world.volume.head_object("b", name, &ReadCondition::default())).unwrap()
}

fn clean(world: &World) {
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
}

/// Whether bytes lie anywhere in the world's folder.
fn on_disk(world: &World, bytes: &[u8]) -> bool {
    #[allow(clippy::disallowed_methods, reason = "a test looks at the disk as a thief would")]
    fn look(folder: &std::path::Path, bytes: &[u8]) -> bool {
        std::fs::read_dir(folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => look(&path, bytes),
                false => std::fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes),
            }
        })
    }
    look(world.folder.path(), bytes)
}

#[test]
fn bodies_of_all_forms_come_back_and_are_not_on_the_disk() {
    // Inline, in the log, one run, several runs, extent rows.
    for payload_bytes_max in [0, 300, EMBEDDED] {
        let world = world(payload_bytes_max);
        for len in [0, 1, 60, 128, 5000, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 9] {
            let body = marked(len);
            for key in [None, Some(customer(1))] {
                put(&world, "k", &body, key.as_ref());
                assert_eq!(get(&world, "k", key.as_ref()).unwrap(), body, "{len} bytes");
                let info = info(&world, "k");
                let protection = if key.is_some() { Protection::Customer } else { Protection::Master };
                assert_eq!((info.size, info.protection()), (len as u64, Some(protection)));
            }
        }
        let usage = wait(world.volume.usage("b")).unwrap();
        assert_eq!(usage, Usage { objects: 1, versions: 0, bytes: (5 * CHUNK + 9) as u64 });
        clean(&world);
        assert!(!on_disk(&world, MARK));
        world.put("b", "plain", &marked(5000)).unwrap();
        world.engine.checkpoint().unwrap();
        assert!(payload_bytes_max == 0 || on_disk(&world, MARK), "the search finds what is there");
    }
}

#[test]
fn only_the_right_key_reads() {
    let world = world(EMBEDDED);
    put(&world, "k", &marked(100), Some(&customer(1)));
    assert!(matches!(get(&world, "k", None), Err(Error::KeyRequired)));
    assert!(matches!(get(&world, "k", Some(&customer(2))), Err(Error::WrongKey)));
    put(&world, "m", &marked(100), None);
    let without = world.reopen();
    assert!(matches!(wait(without.get_object("b", "m", &ReadCondition::default())), Err(Error::NoMasterKey)));
    assert!(matches!(without.new_data_key(&WrappingKey::Master), Err(Error::NoMasterKey)));
}

#[test]
fn a_copy_shares_the_bytes_and_has_a_key_of_its_own() {
    let world = world(EMBEDDED);
    let body = marked(3 * CHUNK);
    let copy = |from: &str, to: &str, encryption: CopyEncryption| {
        let request = CopyRequest {
            source_bucket: "b",
            source_key: from,
            bucket: "b",
            key: to,
            encryption,
            ..CopyRequest::default()
        };
        wait(world.volume.copy_object(request)).map(|_| ())
    };
    let to = |source: Option<u8>, target: Option<WrappingKey>| CopyEncryption { source: source.map(customer), target };
    let under = |number: u8| Some(WrappingKey::Customer(customer(number)));
    put(&world, "mine", &body, Some(&customer(1)));
    put(&world, "ours", &body, None);
    world.put("b", "plain", &body).unwrap();
    let before = world.volume.fsck(FsckOptions::default()).unwrap().live_bytes;
    assert!(matches!(copy("mine", "x", to(None, under(2))), Err(Error::KeyRequired)));
    assert!(matches!(copy("mine", "x", to(Some(2), under(2))), Err(Error::WrongKey)));
    copy("mine", "yours", to(Some(1), under(2))).unwrap();
    copy("ours", "again", to(None, None)).unwrap();
    copy("plain", "x", to(None, None)).unwrap();
    // A change of keys in place.
    copy("mine", "mine", to(Some(1), under(3))).unwrap();
    assert_eq!(world.volume.fsck(FsckOptions::default()).unwrap().live_bytes, before);
    assert_eq!(get(&world, "again", None).unwrap(), body);
    assert_eq!(info(&world, "x").protection(), None);
    assert_eq!(get(&world, "yours", Some(&customer(2))).unwrap(), body);
    assert!(matches!(get(&world, "yours", Some(&customer(1))), Err(Error::WrongKey)));
    assert_eq!(get(&world, "mine", Some(&customer(3))).unwrap(), body);
    for (from, encryption) in [
        ("plain", to(None, Some(WrappingKey::Master))),
        ("plain", to(None, under(1))),
        ("ours", to(None, under(1))),
        ("yours", to(Some(2), None)),
        ("yours", to(Some(2), Some(WrappingKey::Master))),
    ] {
        assert!(matches!(copy(from, "x", encryption), Err(Error::NotShareable)), "{from}");
    }
    for from in ["plain", "ours"] {
        assert!(matches!(copy(from, "x", to(Some(1), None)), Err(Error::KeyNotApplicable)), "{from}");
    }
    world.delete("b", "mine").unwrap();
    assert_eq!(get(&world, "yours", Some(&customer(2))).unwrap(), body);
    clean(&world);
}

#[test]
fn parts_are_streams_of_one_key() {
    let world = world(EMBEDDED);
    let NewKey { key, document } = world.volume.new_data_key(&WrappingKey::Customer(customer(1))).unwrap();
    let documents: Documents = [(Document::Encryption, document)].into();
    let upload = wait(world.volume.create_multipart("b", "k", Headers::new(), documents)).unwrap().upload;
    let first = marked(PART_BYTES_MIN as usize + 100);
    let parts = [first.clone(), first.iter().rev().copied().collect(), marked(17)];
    let mut choices = Vec::new();
    for (number, body) in (1..).zip(&parts) {
        let (staged, etag) = (stage(&world, &key, body), etag_of(body));
        let stored = world.volume.put_part("b", "k", &upload, number, etag, Headers::new(), staged);
        assert_eq!(wait(stored).unwrap().size, body.len() as u64);
        choices.push(PartChoice { number, etag });
    }
    world.put("b", "plain", b"x").unwrap();
    let any = ReadCondition::default();
    let copied = world.volume.copy_part("b", "k", &upload, 9, ("b", "plain", None), None, &any);
    assert!(matches!(wait(copied), Err(Error::NotShareable)));
    clean(&world);
    let done = world.volume.complete_multipart("b", "k", &upload, &choices, Headers::new(), &WriteCondition::None);
    wait(done).unwrap();
    let body = parts.concat();
    assert!(get(&world, "k", Some(&customer(1))).unwrap() == body);
    let mut reader = wait(world.volume.get_object("b", "k", &ReadCondition::default())).unwrap();
    reader.unlock_with(&customer(1)).unwrap();
    for offset in [0, first.len() - 1, first.len(), 2 * first.len() - 3, 2 * first.len(), body.len() - 1] {
        let bytes = wait(reader.read(offset as u64, 10)).unwrap();
        assert!(!bytes.is_empty() && body[offset..].starts_with(&bytes), "at {offset}");
    }
    clean(&world);
    assert!(!on_disk(&world, MARK));
}

fn mount(world: &World, plain: bool) -> Arc<Mount> {
    let options = MountOptions { plain, ..MountOptions::default() };
    Mount::open(Arc::clone(&world.volume), "b", "", options).unwrap()
}

#[test]
fn a_mount_makes_nothing_plain_unasked() {
    let world = world(EMBEDDED);
    let (careful, asked) = (mount(&world, false), mount(&world, true));
    let root = careful.root();
    let name = |name: &str| Name::Plain(name.to_owned());
    let new = NewFile { rights: 0o644, umask: 0, uid: 0, gid: 0 };
    let read = OpenFlags { write: false, ..BOTH };
    let cut = AttributeChange { size: Some(3), ..AttributeChange::default() };
    let refused = |result: Result<(), PosixError>| assert!(matches!(result, Err(PosixError::NotPermitted)));
    put(&world, "k", &marked(5000), None);
    let k = careful.lookup(root, &name("k")).unwrap().ino;
    let writes_to_k = || {
        refused(careful.open_file(k, BOTH).map(drop));
        refused(careful.open_file(k, OpenFlags { truncate: true, ..read }).map(drop));
        refused(careful.set_attributes(k, &cut).map(drop));
        refused(careful.create(root, &name("k"), &new, BOTH).map(drop));
        drop(careful.open_file(k, read).unwrap());
    };
    writes_to_k();
    // Nothing says that new objects are encrypted.
    drop(careful.create(root, &name("plain"), &new, BOTH).unwrap());
    wait(world.volume.set_bucket_setting("b", Setting::Encryption, b"any")).unwrap();
    writes_to_k();
    refused(careful.create(root, &name("new"), &new, BOTH).map(drop));
    let plain = careful.lookup(root, &name("plain")).unwrap().ino;
    refused(careful.open_file(plain, BOTH).map(drop));
    drop(asked.create(root, &name("asked"), &new, BOTH).unwrap());
    // Names and rights are not encrypted anyway.
    careful.rename(root, &name("k"), root, &name("moved"), RenameMode::Replace).unwrap();
    careful.make_directory(root, &name("d"), &new).unwrap();
    assert_eq!(info(&world, "moved").protection(), Some(Protection::Master));
    assert_eq!(get(&world, "moved", None).unwrap(), marked(5000));
    wait(world.volume.remove_bucket_setting("b", Setting::Encryption)).unwrap();
    drop(careful.open_file(plain, BOTH).unwrap());
    clean(&world);
}

#[test]
fn a_mount_reads_what_is_under_the_servers_key_and_writes_plain_when_asked() {
    let world = world(EMBEDDED);
    let mount = mount(&world, true);
    for len in [20, 5000, 3 * CHUNK + 5] {
        let mut body = marked(len);
        put(&world, "k", &body, None);
        let ino = mount.lookup(mount.root(), &Name::Plain("k".to_owned())).unwrap().ino;
        let handle = mount.open_file(ino, BOTH).unwrap();
        assert_eq!(mount.read(&handle, 0, 1 << 20).unwrap(), body, "{len} bytes");
        assert_eq!(mount.read(&handle, 7, 9).unwrap(), body[7..16]);
        // Rights are no content: it stays as it is.
        let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
        mount.set_attributes(ino, &change).unwrap();
        mount.sync(&handle).unwrap();
        assert_eq!(info(&world, "k").protection(), Some(Protection::Master));
        mount.write(&handle, 10, b"plain", false).unwrap();
        body[10..15].copy_from_slice(b"plain");
        assert_eq!(mount.read(&handle, 0, 1 << 20).unwrap(), body);
        mount.flush(&handle).unwrap();
        assert_eq!(info(&world, "k").protection(), None);
        assert_eq!(get(&world, "k", None).unwrap(), body);
        assert_eq!(mount.read(&handle, 0, 1 << 20).unwrap(), body);
        mount.release(handle).unwrap();
        clean(&world);
    }
}

#[test]
fn a_mount_does_not_open_what_is_under_a_customers_key() {
    let world = world(EMBEDDED);
    let mount = mount(&world, false);
    put(&world, "k", &marked(5000), Some(&customer(1)));
    let attributes = mount.lookup(mount.root(), &Name::Plain("k".to_owned())).unwrap();
    assert_eq!(attributes.size, 5000);
    let refused = mount.open_file(attributes.ino, BOTH);
    assert!(matches!(refused, Err(PosixError::Failed(Error::KeyRequired))));
    assert_eq!(get(&world, "k", Some(&customer(1))).unwrap(), marked(5000));
}

#[test]
fn a_body_of_unknown_length_is_encrypted_too() {
    for payload_bytes_max in [0, EMBEDDED] {
        let world = world(payload_bytes_max);
        for len in [0, 1, 5000, CHUNK, 700_000] {
            let body = marked(len);
            let NewKey { key, document } = world.volume.new_data_key(&WrappingKey::Master).unwrap();
            let staged = wait(async {
                let mut upload = world.volume.begin_growing_upload("b", 1 << 20, Some(&key)).await.unwrap();
                for piece in body.chunks(30_000) {
                    upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
                }
                upload.finish().await.unwrap()
            });
            assert_eq!(staged.len(), len as u64);
            let documents = [(Document::Encryption, document)].into();
            let request =
                PutRequest { bucket: "b", key: "k", etag: etag_of(&body), documents, ..PutRequest::default() };
            wait(world.volume.put_object(request, staged)).unwrap();
            assert!(get(&world, "k", None).unwrap() == body, "{len} bytes");
        }
        clean(&world);
        assert!(!on_disk(&world, MARK));
    }
}

#[test]
fn more_or_fewer_bytes_than_announced_are_refused() {
    let world = world(0);
    let key = world.volume.new_data_key(&WrappingKey::Master).unwrap().key;
    for (announced, comes) in [(10, 9), (10, 11), (CHUNK, CHUNK + 1), (CHUNK + 1, CHUNK), (0, 1)] {
        let ended = wait(async {
            let mut upload = world.volume.begin_encrypted_upload("b", announced as u64, &key).await?;
            upload.write(Bytes::from(vec![1; comes])).await?;
            upload.finish().await
        });
        assert!(matches!(ended, Err(Error::WrongLength)), "{announced} {comes}");
    }
}

fn versions(world: &World) -> Vec<VersionId> {
    let request = ListVersionsRequest { bucket: "b", prefix: "", delimiter: None, after: None, max: 1000 };
    let mut versions = Vec::new();
    let listed = wait(world.volume.list_versions(&request, &mut |item| {
        if let VersionItem::Version { version, .. } = item {
            versions.push(version);
        }
    }));
    listed.unwrap();
    versions
}

fn get_version(world: &World, version: VersionId, customer: Option<&CustomerKey>) -> (Option<Protection>, Vec<u8>) {
    let mut reader = wait(world.volume.get_version("b", "k", Some(version), &ReadCondition::default())).unwrap();
    if let Some(customer) = customer {
        reader.unlock_with(customer).unwrap();
    }
    (reader.info().protection(), read_all(&reader))
}

#[test]
fn a_version_keeps_its_key_whatever_comes_above_it() {
    for payload_bytes_max in [0, EMBEDDED] {
        let world = world(payload_bytes_max);
        wait(world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
        let (mine, ours, plain) = (marked(3 * CHUNK + 1), marked(5000), marked(70));
        put(&world, "k", &mine, Some(&customer(1)));
        put(&world, "k", &ours, None);
        world.put("b", "k", &plain).unwrap();
        world.delete("b", "k").unwrap();
        let [third, second, first] = versions(&world)[..] else { panic!("three versions") };
        let expect = || {
            assert_eq!(get_version(&world, third, None), (None, plain.clone()));
            assert_eq!(get_version(&world, second, None), (Some(Protection::Master), ours.clone()));
            assert_eq!(get_version(&world, first, Some(&customer(1))), (Some(Protection::Customer), mine.clone()));
            clean(&world);
        };
        expect();
        // The oldest comes back as the newest, under another key.
        let encryption = CopyEncryption { source: Some(customer(1)), target: Some(WrappingKey::Customer(customer(2))) };
        let request = CopyRequest {
            source_bucket: "b",
            source_key: "k",
            source_version: Some(first),
            bucket: "b",
            key: "k",
            encryption,
            ..CopyRequest::default()
        };
        wait(world.volume.copy_object(request)).unwrap();
        assert_eq!(get(&world, "k", Some(&customer(2))).unwrap(), mine);
        expect();
    }
}

#[test]
fn a_mount_leaves_the_encrypted_version_below_what_it_writes() {
    for payload_bytes_max in [0, EMBEDDED] {
        let world = world(payload_bytes_max);
        wait(world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
        let mount = mount(&world, true);
        for len in [20, 5000, 3 * CHUNK + 5] {
            let before = marked(len);
            put(&world, "k", &before, None);
            let ino = mount.lookup(mount.root(), &Name::Plain("k".to_owned())).unwrap().ino;
            let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
            mount.set_attributes(ino, &change).unwrap();
            assert_eq!(info(&world, "k").protection(), Some(Protection::Master));
            let handle = mount.open_file(ino, BOTH).unwrap();
            mount.write(&handle, 3, b"plain", false).unwrap();
            mount.flush(&handle).unwrap();
            mount.write(&handle, 9, b"again", false).unwrap();
            mount.release(handle).unwrap();
            let mut after = before.clone();
            after[3..8].copy_from_slice(b"plain");
            after[9..14].copy_from_slice(b"again");
            let listed = versions(&world);
            assert_eq!(get_version(&world, listed[0], None), (None, after), "{len} bytes");
            assert_eq!(get_version(&world, listed[1], None), (Some(Protection::Master), before));
            clean(&world);
        }
        assert_eq!(versions(&world).len(), 6);
    }
}
