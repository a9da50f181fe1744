//! Settings of buckets and documents of objects: kept with what they belong to, and gone with it.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use margay_volume::posix::{Mount, MountOptions, Name, PosixError};
use margay_volume::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::maintenance::Maintained;
use world::*;

static MAINTAINED: Maintained = Maintained::new();
/// Of every object here: too long for its row or a payload, so that reclaim moves it.
const BODY_BYTES: usize = 6000;

fn world() -> World {
    let world = World::new(4096);
    wait(world.volume.create_bucket("b")).unwrap();
    world
}

fn clean(world: &World) {
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
}

fn rows_of(world: &World, table: u8) -> usize {
    world.rows().iter().filter(|(key, _)| key[0] == table).count()
}

fn setting(world: &World, bucket: &str, setting: Setting) -> Option<Vec<u8>> {
    wait(world.volume.bucket_setting(bucket, setting)).unwrap().map(|document| document.to_vec())
}

fn documents(kinds: &[(Document, &str)]) -> Documents {
    kinds.iter().map(|(kind, text)| (*kind, text.as_bytes().to_vec().into())).collect()
}

fn put(world: &World, key: &str, documents: Documents) {
    let body = body_of(1, BODY_BYTES);
    let request = PutRequest { bucket: "b", key, etag: etag_of(&body), documents, ..PutRequest::default() };
    let staged = world.stage("b", &body);
    wait(world.volume.put_object(request, staged)).unwrap();
}

fn head(world: &World, key: &str) -> ObjectInfo {
    wait(world.volume.head_object("b", key, &ReadCondition::default())).unwrap()
}

fn copy(world: &World, from: &str, to: &str, kept: &[Document], documents: Documents) {
    let request = CopyRequest {
        source_bucket: "b",
        source_key: from,
        bucket: "b",
        key: to,
        documents_kept: kept.iter().copied().collect(),
        documents,
        ..CopyRequest::default()
    };
    wait(world.volume.copy_object(request)).unwrap();
}

#[test]
fn settings_are_kept_and_told_by_the_bucket() {
    let world = world();
    let volume = &world.volume;
    assert_eq!(setting(&world, "b", Setting::Cors), None);
    let before = wait(volume.head_bucket("b")).unwrap();
    assert!(before.settings.is_empty());
    for len in [0, 1, 65_536, 65_537, SETTING_BYTES_MAX, 3] {
        let document = body_of(len, len);
        wait(volume.set_bucket_setting("b", Setting::Cors, &document)).unwrap();
        assert_eq!(setting(&world, "b", Setting::Cors), Some(document), "{len} bytes");
        assert_eq!(rows_of(&world, b'g'), len.div_ceil(65_536).max(1));
    }
    wait(volume.set_bucket_setting("b", Setting::Policy, b"p")).unwrap();
    let after = wait(volume.head_bucket("b")).unwrap();
    assert_eq!(after.settings, [Setting::Policy, Setting::Cors].into_iter().collect());
    assert!(after.generation > before.generation);
    let too_long = wait(volume.set_bucket_setting("b", Setting::Cors, &vec![0; SETTING_BYTES_MAX + 1]));
    assert!(matches!(too_long, Err(Error::TooLarge)));
    wait(volume.remove_bucket_setting("b", Setting::Cors)).unwrap();
    wait(volume.remove_bucket_setting("b", Setting::Cors)).unwrap();
    assert_eq!(setting(&world, "b", Setting::Cors), None);
    assert_eq!(setting(&world, "b", Setting::Policy), Some(b"p".to_vec()));
    assert!(matches!(wait(volume.bucket_setting("c", Setting::Cors)), Err(Error::NoSuchBucket)));
    clean(&world);
}

#[test]
fn settings_go_with_their_bucket() {
    let world = world();
    let settings: Settings = [(Setting::Acl, "a".into()), (Setting::OwnershipControls, "o".into())].into();
    let new = NewBucket { owner: "me".to_owned(), settings, object_lock: false };
    let made = wait(world.volume.create_bucket_with("c", &new)).unwrap();
    assert_eq!(made, wait(world.volume.head_bucket("c")).unwrap());
    assert_eq!(made.owner, "me");
    assert_eq!(setting(&world, "c", Setting::Acl), Some(b"a".to_vec()));
    clean(&world);
    wait(world.volume.delete_bucket("c")).unwrap();
    assert_eq!(rows_of(&world, b'g'), 0);
    wait(world.volume.create_bucket("c")).unwrap();
    assert_eq!(setting(&world, "c", Setting::Acl), None);
    clean(&world);
}

#[test]
fn a_setting_does_not_stop_puts() {
    let world = world();
    world.put("b", "d/x", b"1").unwrap();
    wait(world.volume.set_bucket_setting("b", Setting::Tagging, b"t")).unwrap();
    world.put("b", "d/y", b"1").unwrap();
    assert_eq!(world.keys("b"), ["d/x", "d/y"]);
}

#[test]
fn documents_come_with_the_object_and_go_with_it() {
    let world = world();
    let both = documents(&[(Document::Tags, "a=b"), (Document::Acl, "private")]);
    put(&world, "d/k", both.clone());
    let before = head(&world, "d/k");
    assert_eq!(before.documents, both);
    let tags = documents(&[(Document::Tags, "a=c")]);
    wait(world.volume.change_documents("b", "d/k", |old| {
        assert_eq!(old, both);
        Ok(tags.clone())
    }))
    .unwrap();
    assert_eq!(head(&world, "d/k"), ObjectInfo { documents: tags.clone(), ..before });
    let refused = wait(world.volume.change_documents("b", "d/k", |_| Err(Error::PreconditionFailed)));
    assert!(matches!(refused, Err(Error::PreconditionFailed)));
    let absent = wait(world.volume.change_documents("b", "d/absent", Ok));
    assert!(matches!(absent, Err(Error::NoSuchKey)));
    wait(world.volume.rename("b", "d/k", "e/k", &WriteCondition::None)).unwrap();
    assert_eq!(head(&world, "e/k").documents, tags);
    clean(&world);
    world.put("b", "e/k", b"new").unwrap();
    assert_eq!(head(&world, "e/k").documents, Documents::new());
    assert_eq!(rows_of(&world, b'k'), 0);
    put(&world, "e/k", both);
    assert!(world.delete("b", "e/k").unwrap());
    assert_eq!(rows_of(&world, b'k'), 0);
    clean(&world);
}

#[test]
fn a_document_has_a_limit() {
    let world = world();
    put(&world, "k", documents(&[(Document::Tags, &"x".repeat(DOCUMENT_BYTES_MAX))]));
    let over = documents(&[(Document::Tags, &"x".repeat(DOCUMENT_BYTES_MAX + 1))]);
    let refused = wait(world.volume.change_documents("b", "k", |_| Ok(over.clone())));
    assert!(matches!(refused, Err(Error::TooLarge)));
    let refused = wait(world.volume.create_multipart("b", "k", Headers::new(), over));
    assert!(matches!(refused, Err(Error::TooLarge)));
}

#[test]
fn a_copy_takes_what_the_request_says() {
    let world = world();
    put(&world, "k", documents(&[(Document::Tags, "t"), (Document::Acl, "a"), (Document::Upload, "r")]));
    let acl = documents(&[(Document::Acl, "other")]);
    copy(&world, "k", "copy", &[Document::Tags, Document::LegalHold], acl);
    assert_eq!(head(&world, "copy").documents, documents(&[(Document::Tags, "t"), (Document::Acl, "other")]));
    copy(&world, "k", "k", &[Document::Upload], documents(&[(Document::Tags, "on")]));
    assert_eq!(head(&world, "k").documents, documents(&[(Document::Upload, "r"), (Document::Tags, "on")]));
    clean(&world);
}

#[test]
fn an_explicit_directory_gets_a_body_for_its_documents() {
    let world = world();
    wait(world.volume.make_directory("b", "d/")).unwrap();
    let before = head(&world, "d/");
    let tags = documents(&[(Document::Tags, "t")]);
    wait(world.volume.change_documents("b", "d/", |_| Ok(tags.clone()))).unwrap();
    assert_eq!(head(&world, "d/"), ObjectInfo { documents: tags, ..before });
    assert_eq!(world.keys("b"), ["d/"]);
    clean(&world);
}

#[test]
fn an_upload_is_completed_again() {
    let world = world();
    let tags = documents(&[(Document::Tags, "t")]);
    let begin = || wait(world.volume.create_multipart("b", "m", Headers::new(), tags.clone())).unwrap().upload;
    let (upload, other) = (begin(), begin());
    let staged = world.stage("b", b"part");
    let digest = etag_of(b"part");
    wait(world.volume.put_part("b", "m", &upload, 1, digest, Headers::new(), staged)).unwrap();
    let parts = [PartChoice { number: 1, etag: digest }];
    let complete = |upload: &str, parts: &[PartChoice]| {
        wait(world.volume.complete_multipart("b", "m", upload, parts, Headers::new(), &WriteCondition::None))
    };
    let first = complete(&upload, &parts).unwrap();
    assert_eq!(complete(&upload, &parts).unwrap(), first);
    assert_eq!(head(&world, "m").documents[&Document::Tags], "t");
    let others = [PartChoice { number: 1, etag: etag_of(b"else") }];
    assert!(matches!(complete(&upload, &others), Err(Error::NoSuchUpload)));
    wait(world.volume.abort_multipart("b", "m", &other)).unwrap();
    assert!(matches!(complete(&other, &parts), Err(Error::NoSuchUpload)));
    world.put("b", "m", b"new").unwrap();
    assert!(matches!(complete(&upload, &parts), Err(Error::NoSuchUpload)));
    clean(&world);
}

#[test]
fn fsck_finds_rows_that_belong_to_nothing_and_rows_that_are_missing() {
    use margay_meta::Write;
    let world = world();
    put(&world, "k", documents(&[(Document::Tags, "t")]));
    wait(world.volume.set_bucket_setting("b", Setting::Cors, b"c")).unwrap();
    let rows = world.rows();
    let key_of = |table: u8| rows.iter().find(|(key, _)| key[0] == table).unwrap().0.clone();
    let writes = vec![
        Write::Delete { key: key_of(b'k') },
        Write::Delete { key: key_of(b'g') },
        rows::put(rows::key(b'k', 1 << 40, &[0]), b"x".to_vec()),
        rows::put(rows::key(b'g', 1 << 40, &[0, 0]), b"x".to_vec()),
    ];
    rows::write(&world.engine, writes);
    let report = world.volume.fsck(FsckOptions { repair: true, ..FsckOptions::default() }).unwrap();
    let expected = BTreeMap::from([(FindingKind::Leftover, 2), (FindingKind::MissingRow, 2)]);
    assert_eq!(report.findings, expected, "{report:#?}");
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert_eq!(report.findings, BTreeMap::from([(FindingKind::MissingRow, 2)]));
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Vec<Document>),
    Change(usize, Vec<Document>),
    Copy(usize, usize, Vec<Document>, Vec<Document>),
    Rename(usize, usize),
    Link(usize, usize),
    Delete(usize),
    Maintain,
}

const KEYS: [&str; 3] = ["a", "d/a", "d/b"];

fn kinds() -> impl Strategy<Value = Vec<Document>> {
    // Locks and keys have a meaning to the volume: versions_mount.rs, encryption.rs.
    let kinds = [Document::Tags, Document::Acl, Document::Upload];
    prop::collection::vec(prop::sample::select(kinds.to_vec()), 0..3)
}

fn steps() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len();
    prop_oneof![
        (key(), kinds()).prop_map(|(key, kinds)| Step::Put(key, kinds)),
        (key(), kinds()).prop_map(|(key, kinds)| Step::Change(key, kinds)),
        (key(), key(), kinds(), kinds()).prop_map(|(from, to, kept, new)| Step::Copy(from, to, kept, new)),
        (key(), key()).prop_map(|(from, to)| Step::Rename(from, to)),
        (key(), key()).prop_map(|(from, to)| Step::Link(from, to)),
        key().prop_map(Step::Delete),
        Just(Step::Maintain),
    ]
}

/// Documents by object; names of one file share the number of an object.
#[derive(Debug, Default)]
struct Model {
    objects: Vec<Documents>,
    names: BTreeMap<usize, usize>,
}

impl Model {
    fn make(&mut self, key: usize, documents: Documents) {
        self.objects.push(documents);
        self.names.insert(key, self.objects.len() - 1);
    }

    fn of(&self, key: usize) -> Option<&Documents> {
        self.names.get(&key).map(|object| &self.objects[*object])
    }
}

fn given(kinds: &[Document], step: usize) -> Documents {
    kinds.iter().map(|kind| (*kind, format!("{kind:?} {step}").into())).collect()
}

fn link(world: &World, from: &str, to: &str) -> Result<(), PosixError> {
    let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default())?;
    let place = |key: &str| -> Result<(Ino, Name), PosixError> {
        match key.split_once('/') {
            None => Ok((mount.root(), Name::Plain(key.to_owned()))),
            Some((directory, name)) => {
                let directory = mount.lookup(mount.root(), &Name::Plain(directory.to_owned()))?.ino;
                Ok((directory, Name::Plain(name.to_owned())))
            }
        }
    };
    let ((from, from_name), (to, to_name)) = (place(from)?, place(to)?);
    let file = mount.lookup(from, &from_name)?.ino;
    mount.link(file, to, &to_name).map(drop)
}

fn play(world: &World, model: &mut Model, number: usize, step: &Step) {
    match step {
        Step::Put(key, kinds) => {
            put(world, KEYS[*key], given(kinds, number));
            model.make(*key, given(kinds, number));
        }
        Step::Change(key, kinds) => {
            let done = wait(world.volume.change_documents("b", KEYS[*key], |_| Ok(given(kinds, number))));
            assert_eq!(done.is_ok(), model.names.contains_key(key));
            if let Some(object) = model.names.get(key) {
                model.objects[*object] = given(kinds, number);
            }
        }
        Step::Copy(from, to, kept, new) => {
            let Some(source) = model.of(*from) else { return };
            let mut documents = source.clone();
            documents.retain(|kind, _| kept.contains(kind));
            documents.extend(given(new, number));
            copy(world, KEYS[*from], KEYS[*to], kept, given(new, number));
            match model.names.get(to) {
                // A copy onto itself keeps its inode, and so its other names show the change.
                Some(object) if from == to => model.objects[*object] = documents,
                _ => model.make(*to, documents),
            }
        }
        Step::Rename(from, to) => {
            // Two names of one file are a matter of rename's own tests.
            if model.names.get(from) != model.names.get(to)
                && wait(world.volume.rename("b", KEYS[*from], KEYS[*to], &WriteCondition::None)).is_ok()
            {
                let object = model.names.remove(from).unwrap();
                model.names.insert(*to, object);
            }
        }
        Step::Link(from, to) => {
            if link(world, KEYS[*from], KEYS[*to]).is_ok() {
                let object = model.names[from];
                model.names.insert(*to, object);
            }
        }
        Step::Delete(key) => {
            let removed = world.delete("b", KEYS[*key]).unwrap();
            assert_eq!(removed, model.names.remove(key).is_some());
        }
        Step::Maintain => MAINTAINED.pass(&world.volume, &*world.engine),
    }
}

fn documents_follow(steps: &[Step]) {
    let world = world();
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        play(&world, &mut model, number, step);
        for (index, key) in KEYS.into_iter().enumerate() {
            let info = wait(world.volume.head_object("b", key, &ReadCondition::default())).ok();
            let seen = info.map(|info| info.documents);
            assert_eq!(seen.as_ref(), model.of(index), "{key} after {step:?}");
        }
    }
    clean(&world);
}

#[test]
fn documents_follow_their_object() {
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let done = TestRunner::new(config).run(&prop::collection::vec(steps(), 1..30), |steps| {
        documents_follow(&steps);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    MAINTAINED.told("documents of objects");
}
