//! Versions through both doors against a model: tiny colliding keys, all three states, deletion of versions, listings in
//! pages of every size; fsck after every sequence.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use margay_env::Timestamp;
use margay_volume::posix::*;
use margay_volume::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::maintenance::Maintained;
use world::*;

static MAINTAINED: Maintained = Maintained::new();

const KEYS: [&str; 8] = ["a", "a-", "a/", "a/b", "a/b/c", "a0", "f", "g"];
/// Names of the mount, in the root; S3 writes them too.
const FILES: [&str; 2] = ["f", "g"];

#[derive(Clone, Debug)]
enum Step {
    Set(Versioning),
    Put(&'static str, usize),
    Delete(&'static str),
    /// Which of the key's versions, counted from the newest.
    DeleteVersion(&'static str, usize),
    /// As DeleteVersion, by the lifecycle.
    Expire(&'static str, usize, DueVersion),
    Copy(&'static str, usize, &'static str),
    Multipart(&'static str),
    Rename(&'static str, &'static str),
    Write {
        file: &'static str,
        at: usize,
        len: usize,
        sync: bool,
    },
    Unlink(&'static str),
    Move(&'static str, &'static str),
    Maintain,
}

/// A version, or a delete marker without a body. The id is known once a listing showed it.
#[derive(Clone, Debug, PartialEq)]
struct One {
    id: Option<VersionId>,
    is_null: bool,
    body: Option<Vec<u8>>,
}

/// Of each key, the newest first.
#[derive(Debug, Default)]
struct Model {
    versioning: Versioning,
    keys: BTreeMap<String, Vec<One>>,
    used: BTreeSet<(String, VersionId)>,
}

impl Model {
    fn current(&self, key: &str) -> Option<&Vec<u8>> {
        self.keys.get(key)?.first()?.body.as_ref()
    }

    /// `body` is on top from now on; without one it is a delete marker.
    fn push(&mut self, key: &str, body: Option<Vec<u8>>) {
        let versions = self.keys.entry(key.to_owned()).or_default();
        let is_null = self.versioning != Versioning::Enabled;
        match self.versioning {
            Versioning::Never => versions.clear(),
            Versioning::Suspended => versions.retain(|one| !one.is_null),
            Versioning::Enabled => {}
        }
        if body.is_some() || self.versioning != Versioning::Never {
            let id = is_null.then_some(VersionId::Null);
            versions.insert(0, One { id, is_null, body });
        }
        self.tidy(key);
    }

    fn tidy(&mut self, key: &str) {
        if self.keys.get(key).is_some_and(Vec::is_empty) {
            self.keys.remove(key);
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let body = self.current(from).unwrap().clone();
        self.push(from, None);
        self.push(to, Some(body));
    }
}

struct Doors {
    world: World,
    mount: Arc<Mount>,
}

impl Doors {
    fn new(payload: usize) -> Doors {
        let world = World::new(payload);
        wait(world.volume.create_bucket("b")).unwrap();
        let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
        Doors { world, mount }
    }

    fn open(&self, file: &str) -> Handle {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let name = Name::Plain(file.to_owned());
        self.mount.create(self.mount.root(), &name, &NewFile { rights: 0o644, ..NewFile::default() }, flags).unwrap().1
    }

    fn copy(&self, from: &str, version: Option<VersionId>, to: &str) -> Result<PutOutcome, Error> {
        let request = CopyRequest {
            source_bucket: "b",
            source_key: from,
            source_version: version,
            bucket: "b",
            key: to,
            ..CopyRequest::default()
        };
        wait(self.world.volume.copy_object(request))
    }

    fn run(&self, model: &mut Model, number: usize, step: &Step) {
        let volume = &self.world.volume;
        match *step {
            Step::Set(versioning) => {
                wait(volume.set_versioning("b", versioning)).unwrap();
                model.versioning = versioning;
            }
            Step::Put(key, len) => {
                let body = body_of(number, len);
                let outcome = self.world.put("b", key, &body).unwrap();
                assert_eq!(outcome.version.is_some(), model.versioning != Versioning::Never);
                model.push(key, Some(body));
            }
            Step::Delete(key) => {
                let there = model.current(key).is_some();
                let deleted = wait(volume.delete_object("b", &DeleteRequest::of(key))).unwrap();
                assert_eq!((deleted.removed, deleted.marker), (there, model.versioning != Versioning::Never));
                model.push(key, None);
            }
            Step::DeleteVersion(key, which) => self.delete_version(model, key, which),
            Step::Expire(key, which, due) => self.expire_version(model, key, which, due),
            Step::Copy(from, which, to) => self.copy_version(model, from, which, to),
            Step::Multipart(key) => {
                let body = body_of(number, 20_000);
                let upload = wait(volume.create_multipart("b", key, Headers::new(), Documents::new())).unwrap().upload;
                let staged = self.world.stage("b", &body);
                let put = volume.put_part("b", key, &upload, 1, etag_of(&body), Headers::new(), staged);
                let choice = [PartChoice { number: 1, etag: wait(put).unwrap().etag }];
                let none = WriteCondition::None;
                wait(volume.complete_multipart("b", key, &upload, &choice, Headers::new(), &none)).unwrap();
                model.push(key, Some(body));
            }
            Step::Rename(from, to) | Step::Move(from, to) if from == to => {}
            Step::Rename(from, to) => match wait(volume.rename("b", from, to, &WriteCondition::None)) {
                Ok(()) => model.rename(from, to),
                Err(Error::NoSuchKey) => assert!(model.current(from).is_none()),
                Err(error) => panic!("{error}"),
            },
            Step::Write { file, at, len, sync } => self.write(model, number, (file, at, len), sync),
            Step::Unlink(file) => match self.mount.unlink(self.mount.root(), &Name::Plain(file.to_owned())) {
                Ok(()) => model.push(file, None),
                Err(PosixError::NotFound) => assert!(model.current(file).is_none()),
                Err(error) => panic!("{error}"),
            },
            Step::Move(from, to) => {
                let (root, name) = (self.mount.root(), |name: &str| Name::Plain(name.to_owned()));
                match self.mount.rename(root, &name(from), root, &name(to), RenameMode::Replace) {
                    Ok(()) => model.rename(from, to),
                    Err(PosixError::NotFound) => assert!(model.current(from).is_none()),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Maintain => MAINTAINED.pass(volume, &*self.world.engine),
        }
    }

    fn delete_version(&self, model: &mut Model, key: &str, which: usize) {
        let versions = model.keys.get(key).cloned().unwrap_or_default();
        let id = versions.get(which).map_or(VersionId::Numbered(u64::MAX >> 2), |one| one.id.unwrap());
        let request = DeleteRequest { version: Some(id), ..DeleteRequest::of(key) };
        let deleted = wait(self.world.volume.delete_object("b", &request)).unwrap();
        assert_eq!(deleted.removed, which < versions.len());
        assert_eq!(deleted.marker, versions.get(which).is_some_and(|one| one.body.is_none()));
        if which < versions.len() {
            model.keys.get_mut(key).unwrap().remove(which);
            model.tidy(key);
        }
    }

    fn expire_version(&self, model: &mut Model, key: &str, which: usize, due: DueVersion) {
        let versions = model.keys.get(key).cloned().unwrap_or_default();
        let Some(one) = versions.get(which) else { return };
        let id = one.id.unwrap();
        let mut judged = None;
        let request = ListVersionsRequest { bucket: "b", prefix: key, delimiter: None, after: None, max: 1000 };
        let mut note = |item: VersionItem<'_>| match item {
            VersionItem::Version { key: name, version, modified, .. }
            | VersionItem::DeleteMarker { key: name, version, modified, .. }
                if (name, version) == (key, id) =>
            {
                judged = Some(modified);
            }
            _ => {}
        };
        wait(self.world.volume.list_versions(&request, &mut note)).unwrap();
        let expire =
            |modified| wait(self.world.volume.expire_version("b", (key, id, modified), due, &Lease::alone())).unwrap();
        let modified = judged.unwrap();
        assert!(!expire(Timestamp(modified.0 + 1)), "something else was judged");
        let goes = match due {
            DueVersion::Replaced => which > 0,
            DueVersion::LoneMarker => versions.len() == 1 && one.body.is_none(),
        };
        assert_eq!(expire(modified), goes, "{key} {which} {due:?}");
        if goes {
            model.keys.get_mut(key).unwrap().remove(which);
            model.tidy(key);
        }
    }

    fn copy_version(&self, model: &mut Model, from: &str, which: usize, to: &str) {
        let source = model.keys.get(from).and_then(|versions| versions.get(which)).cloned();
        let version = source.as_ref().map_or(Some(VersionId::Numbered(1 << 60)), |one| one.id);
        match (self.copy(from, version, to), source.map(|one| one.body)) {
            (Ok(_), Some(Some(body))) => model.push(to, Some(body)),
            (Err(Error::DeleteMarker { .. }), Some(None)) | (Err(Error::NoSuchVersion), None) => {}
            (done, wanted) => panic!("{done:?}, {wanted:?}"),
        }
    }

    /// One session: open, write, perhaps sync and write again, close.
    fn write(&self, model: &mut Model, number: usize, (file, at, len): (&str, usize, usize), sync: bool) {
        let mut body = model.current(file).cloned().unwrap_or_default();
        let handle = self.open(file);
        for round in 0..1 + usize::from(sync) {
            let bytes = body_of(number + round, len);
            let at = at + round * 10;
            self.mount.write(&handle, at as u64, &bytes, false).unwrap();
            body.resize(body.len().max(at + len), 0);
            body[at..at + len].copy_from_slice(&bytes);
            if sync {
                self.mount.sync(&handle).unwrap();
            }
        }
        self.mount.release(handle).unwrap();
        model.push(file, Some(body));
    }

    fn list(&self, request: &ListVersionsRequest<'_>) -> (Vec<Line>, Option<(String, Option<VersionId>)>) {
        let mut lines = Vec::new();
        let outcome = wait(self.world.volume.list_versions(request, &mut |item| {
            lines.push(match item {
                VersionItem::Version { key, version, is_latest, size, .. } => {
                    Line::One(key.to_owned(), version, is_latest, Some(size))
                }
                VersionItem::DeleteMarker { key, version, is_latest, .. } => {
                    Line::One(key.to_owned(), version, is_latest, None)
                }
                VersionItem::Prefix(prefix) => Line::Prefix(prefix.to_owned()),
            });
        }));
        (lines, outcome.unwrap().next)
    }

    fn pages(&self, prefix: &str, delimiter: Option<&str>, max: usize) -> Vec<Line> {
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let after = next.as_ref().map(|(key, version): &(String, Option<VersionId>)| match version {
                Some(version) => VersionsAfter::Version(key, *version),
                None => VersionsAfter::Prefix(key),
            });
            let (lines, more) = self.list(&ListVersionsRequest { bucket: "b", prefix, delimiter, after, max });
            assert!(lines.len() <= max && (more.is_none() || lines.len() == max));
            all.extend(lines);
            next = more;
            if next.is_none() {
                return all;
            }
        }
    }

    /// Every version is what the model says, and is listed where it says.
    fn compare(&self, model: &mut Model) {
        let lines = self.pages("", None, 1000);
        let mut at = lines.iter();
        for (key, versions) in &mut model.keys {
            for (index, one) in versions.iter_mut().enumerate() {
                let Some(Line::One(name, id, is_latest, size)) = at.next() else { panic!("{key}: {lines:?}") };
                assert_eq!(
                    (name, *is_latest, *size),
                    (key, index == 0, one.body.as_ref().map(|body| body.len() as u64))
                );
                match one.id {
                    Some(known) => assert_eq!(known, *id, "{key}"),
                    None => {
                        assert!(*id != VersionId::Null && model.used.insert((key.clone(), *id)), "{key}: {id}");
                        one.id = Some(*id);
                    }
                }
            }
            let ids: Vec<VersionId> = versions.iter().filter_map(|one| one.id).collect();
            let numbered: Vec<_> = ids.iter().filter(|id| **id != VersionId::Null).collect();
            assert!(numbered.is_sorted_by(|newer, older| newer > older), "{key}: {ids:?}");
        }
        assert_eq!(at.next(), None);
        let current = model.keys.iter().filter(|(_, versions)| versions[0].body.is_some());
        assert_eq!(self.world.keys("b"), current.map(|(key, _)| key.clone()).collect::<Vec<_>>());
    }

    fn compare_bodies(&self, model: &Model) {
        let read = |key: &str, version| {
            wait(self.world.volume.get_version("b", key, version, &ReadCondition::default()))
                .map(|reader| read_all(&reader))
        };
        for (key, versions) in &model.keys {
            for one in versions {
                match (read(key, one.id), &one.body) {
                    (Ok(body), Some(wanted)) => assert!(body == *wanted, "{key} {one:?}"),
                    (Err(Error::DeleteMarker { version, .. }), None) => assert_eq!(Some(version), one.id),
                    (other, wanted) => panic!("{key}: {other:?} {wanted:?}"),
                }
            }
            match (read(key, None), &versions[0]) {
                (Ok(body), One { body: Some(wanted), .. }) => assert!(body == *wanted, "{key}"),
                (Err(Error::Deleted(version)), One { body: None, id, .. }) => assert_eq!(Some(version), *id),
                (other, wanted) => panic!("{key}: {other:?} {wanted:?}"),
            }
        }
        let report = self.world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
        let scrub = self.world.volume.scrub(10, |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!(scrub.damaged, 0, "{scrub:?}");
        let usage = wait(self.world.volume.usage("b")).unwrap();
        let bodies = || model.keys.values().flatten().filter_map(|one| one.body.as_ref());
        let objects = model.keys.values().filter(|versions| versions[0].body.is_some()).count() as u64;
        let all = model.keys.values().flatten().count() as u64;
        let wanted = Usage { objects, versions: all - objects, bytes: bodies().map(|body| body.len() as u64).sum() };
        assert_eq!(usage, wanted);
    }

    fn compare_pages(&self, model: &Model, prefix: &str, delimiter: Option<&str>, max: usize) {
        let mut wanted = Vec::new();
        for (key, versions) in model.keys.iter().filter(|(key, _)| key.starts_with(prefix)) {
            let rest = &key[prefix.len()..];
            match delimiter.and_then(|delimiter| rest.find(delimiter).map(|at| prefix.len() + at + delimiter.len())) {
                Some(end) => wanted.push(Line::Prefix(key[..end].to_owned())),
                None => wanted.extend(versions.iter().enumerate().map(|(index, one)| {
                    Line::One(key.clone(), one.id.unwrap(), index == 0, one.body.as_ref().map(|body| body.len() as u64))
                })),
            }
        }
        wanted.dedup();
        assert_eq!(self.pages(prefix, delimiter, max), wanted, "{prefix:?} {delimiter:?} {max}");
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Line {
    /// Without a size: a delete marker.
    One(String, VersionId, bool, Option<u64>),
    Prefix(String),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop::sample::select(KEYS.to_vec());
    let file = || prop::sample::select(FILES.to_vec());
    let len = || prop::sample::select(vec![0, 3, 100, 3000, 70_000]);
    let which = || 0..4usize;
    prop_oneof![
        1 => prop::sample::select(vec![Versioning::Enabled, Versioning::Suspended]).prop_map(Step::Set),
        4 => (key(), len()).prop_map(|(key, len)| Step::Put(key, len)),
        3 => key().prop_map(Step::Delete),
        4 => (key(), which()).prop_map(|(key, which)| Step::DeleteVersion(key, which)),
        3 => (key(), which(), prop_oneof![Just(DueVersion::Replaced), Just(DueVersion::LoneMarker)])
            .prop_map(|(key, which, due)| Step::Expire(key, which, due)),
        3 => (key(), which(), key()).prop_map(|(from, which, to)| Step::Copy(from, which, to)),
        1 => key().prop_map(Step::Multipart),
        2 => (file(), file()).prop_map(|(from, to)| Step::Rename(from, to)),
        3 => (file(), 0..3000usize, len(), any::<bool>()).prop_map(|(file, at, len, sync)| {
            Step::Write { file, at, len: len.max(1), sync }
        }),
        2 => file().prop_map(Step::Unlink),
        2 => (file(), file()).prop_map(|(from, to)| Step::Move(from, to)),
        3 => Just(Step::Maintain),
    ]
}

fn any_sequence(steps: &[Step], payload: usize) {
    let doors = Doors::new(payload);
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        doors.run(&mut model, number, step);
        doors.compare(&mut model);
    }
    doors.compare_bodies(&model);
    for prefix in ["", "a", "a/", "a/b"] {
        for delimiter in [None, Some("/"), Some("b")] {
            for max in [1, 2, 5] {
                doors.compare_pages(&model, prefix, delimiter, max);
            }
        }
    }
    for (key, versions) in std::mem::take(&mut model.keys) {
        for one in versions.into_iter().rev() {
            let request = DeleteRequest { version: one.id, ..DeleteRequest::of(&key) };
            assert!(wait(doors.world.volume.delete_object("b", &request)).unwrap().removed);
        }
    }
    doors.compare(&mut model);
    doors.compare_bodies(&model);
    wait(doors.world.volume.delete_bucket("b")).unwrap();
    let report = doors.world.volume.fsck(FsckOptions::default()).unwrap();
    assert_eq!((report.live_bytes, report.files, report.directories, report.versions), (0, 0, 0, 0));
}

#[test]
fn any_sequence_matches_the_model() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 40, ..ProptestConfig::default() });
    let cases = (prop::collection::vec(step(), 1..40), prop::sample::select(vec![0usize, 4096, EMBEDDED]));
    let done = runner.run(&cases, |(steps, payload)| {
        any_sequence(&steps, payload);
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    MAINTAINED.told("versions through both doors");
}

#[test]
fn a_bucket_with_versions_is_not_empty() {
    let doors = Doors::new(0);
    wait(doors.world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
    doors.world.put("b", "d/k", b"1").unwrap();
    wait(doors.world.volume.delete_object("b", &DeleteRequest::of("d/k"))).unwrap();
    assert!(doors.world.keys("b").is_empty());
    assert!(matches!(wait(doors.world.volume.delete_bucket("b")), Err(Error::BucketNotEmpty)));
    // No directory is left where only versions are.
    assert_eq!(doors.world.volume.fsck(FsckOptions::default()).unwrap().directories, 0);
    assert!(matches!(wait(doors.world.volume.set_versioning("b", Versioning::Never)), Err(Error::KeepsVersions)));
}

#[test]
fn only_what_was_judged_expires() {
    use DueVersion::{LoneMarker, Replaced};
    let expire = |which, due| Step::Expire("a/b", which, due);
    let mut steps = vec![Step::Set(Versioning::Enabled), Step::Put("a/b", 3), Step::Delete("a/b")];
    // The marker hides something, and what is hidden is no marker.
    steps.extend([expire(0, LoneMarker), expire(0, Replaced), expire(1, LoneMarker), expire(1, Replaced)]);
    steps.extend([expire(0, Replaced), expire(0, LoneMarker), Step::Put("a/b", 3), expire(0, Replaced)]);
    steps.extend([Step::Delete("a/b"), Step::Delete("a/b"), expire(1, Replaced), expire(1, Replaced)]);
    any_sequence(&steps, 0);
}
