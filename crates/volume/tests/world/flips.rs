//! A data directory with some of everything, flips of its bits, and the questions whose answers must stay right.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Disk, Env, OpenMode, Random};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::Store;
use margay_volume::posix::{Attributes, Mount, MountOptions, Name, OpenFlags};
use margay_volume::*;

use super::{etag_of, wait};

const SEGMENTS: &str = "/data/segments";
const TREE: &str = "/data/tree";
/// Buckets: one that never kept versions, one that does.
const PLAIN: &str = "plain";
const KEPT: &str = "kept";

/// Where a bit is wrong.
#[derive(Clone, Debug)]
pub struct Flip {
    pub path: String,
    pub offset: u64,
    pub bit: u8,
    /// Something names this byte.
    pub named: bool,
}

/// What told of the damage first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Opening,
    Fsck,
    Scrub,
    Nowhere,
}

pub struct Told {
    pub found: Found,
    /// Questions that were answered with an error.
    pub errors: usize,
}

struct Running {
    volume: Arc<Volume>,
    engine: Arc<EmbeddedEngine>,
    store: Arc<Store>,
}

/// An answer, or an error that tells of damage.
type ReadAnswer = Result<String, String>;

pub struct Directory {
    disk: SimDisk,
    truth: BTreeMap<String, ReadAnswer>,
    /// Path, first byte and end of what something names: pages of the tree, records of the log.
    pages: Vec<(String, u64, u64)>,
    records: Vec<(String, u64, u64)>,
    /// Payload in segments, as single bytes.
    runs: Vec<(String, u64)>,
    files: Vec<(String, u64)>,
}

fn open(disk: &SimDisk) -> Result<Running, String> {
    let random = Arc::new(SimRandom::new(1));
    let env = Env { disk: Arc::new(disk.clone()), clock: Arc::new(RealClock::new()), random };
    let mut segments = margay_segment::Options::new(Path::new(SEGMENTS));
    (segments.pack_bytes_max, segments.raw_bytes_min, segments.reserve_bytes) = (256 << 10, 48 << 10, 0);
    let store = Store::open(env.clone(), segments).map_err(|error| format!("segments: {error}"))?;
    let mut tree = margay_meta::embedded::Options::new(TREE.into());
    (tree.log_file_bytes, tree.tree_cache_bytes) = (256 << 10, 64 << 10);
    tree.sync_interval = Duration::from_millis(1);
    let engine = EmbeddedEngine::open(env.clone(), Arc::clone(&store), tree).map_err(|error| error.to_string())?;
    let engine = Arc::new(engine);
    let below = Arc::clone(&engine) as Arc<dyn Engine>;
    let options = Options { run_bytes_max: 40 << 10, ..Options::default() };
    let volume = Volume::open(env, below, Arc::clone(&store), options).map_err(|error| error.to_string())?;
    Ok(Running { volume, engine, store })
}

fn noise(random: &SimRandom, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

fn put(volume: &Volume, bucket: &str, key: &str, body: &[u8], headers: Headers) {
    wait(async {
        let mut upload = volume.begin_upload(bucket, body.len() as u64).await.unwrap();
        upload.write(Bytes::copy_from_slice(body)).await.unwrap();
        let staged = upload.finish().await.unwrap();
        let request = PutRequest { bucket, key, etag: etag_of(body), headers, ..PutRequest::default() };
        volume.put_object(request, staged).await.unwrap();
    });
}

fn metadata(random: &SimRandom) -> Headers {
    let value: String = noise(random, 24).iter().map(|byte| format!("{byte:02x}")).collect();
    [("content-type".to_owned(), "text/plain".to_owned()), ("x-amz-meta-mark".to_owned(), value)].into()
}

/// Some of everything; the bodies that lie in segments or in the log.
fn fill(running: &Running, random: &SimRandom) -> Vec<Vec<u8>> {
    let volume = &running.volume;
    let mut long = Vec::new();
    for bucket in [PLAIN, KEPT] {
        wait(volume.create_bucket(bucket)).unwrap();
    }
    wait(volume.set_versioning(KEPT, Versioning::Enabled)).unwrap();
    for number in 0..160 {
        let body = noise(random, random.below(128) as usize);
        put(volume, PLAIN, &format!("small/{:02}/{number:04}", number % 7), &body, metadata(random));
    }
    for (number, len) in [900, 3000, 9000, 30_000, 60_000, 70_000, 130_000].into_iter().cycle().take(28).enumerate() {
        let body = noise(random, len);
        put(volume, PLAIN, &format!("long/{number:03}"), &body, metadata(random));
        long.push(body);
    }
    for number in 0..30 {
        for _ in 0..1 + number % 3 {
            let body = noise(random, 1 + random.below(3000) as usize);
            put(volume, KEPT, &format!("v/{number:02}"), &body, metadata(random));
            long.push(body);
        }
        if number % 5 == 0 {
            wait(volume.delete_object(KEPT, &DeleteRequest::of(&format!("v/{number:02}")))).unwrap();
        }
    }
    running.engine.checkpoint().unwrap();
    // What follows is in the log only.
    for number in 0..12 {
        let body = noise(random, 100 + 700 * (number % 4));
        put(volume, PLAIN, &format!("new/{number:02}"), &body, metadata(random));
        long.push(body);
    }
    long.retain(|body| body.len() > 200);
    long
}

/// A short text for a long answer.
fn digest(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    format!("{} bytes {sum:016x}", bytes.len())
}

/// Errors that tell of damage; any other is an answer, and a wrong one where the truth differs.
fn answer<T>(outcome: Result<T, Error>, show: impl FnOnce(T) -> String) -> ReadAnswer {
    match outcome {
        Ok(value) => Ok(show(value)),
        Err(Error::Corrupt(what)) => Err(what),
        Err(other) => Ok(format!("refused: {other}")),
    }
}

async fn read(reader: Reader) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    loop {
        let bytes = reader.read(body.len() as u64, u64::MAX).await?;
        if bytes.is_empty() {
            return Ok(body);
        }
        body.extend_from_slice(&bytes);
    }
}

async fn listing(volume: &Volume, bucket: &str, prefix: &str, delimiter: Option<&str>) -> Result<Vec<String>, Error> {
    let mut items = Vec::new();
    let request = ListRequest { bucket, prefix, delimiter, after: None, after_is_prefix: false, max: usize::MAX };
    volume.list(&request, &mut |item| items.push(format!("{item:?}"))).await?;
    Ok(items)
}

async fn versions(volume: &Volume, bucket: &str) -> Result<Vec<(String, String, Option<VersionId>)>, Error> {
    let mut items = Vec::new();
    let request = ListVersionsRequest { bucket, prefix: "", delimiter: None, after: None, max: usize::MAX };
    let mut visit = |item: VersionItem<'_>| match item {
        VersionItem::Version { key, version, .. } => items.push((format!("{item:?}"), key.to_owned(), Some(version))),
        other => items.push((format!("{other:?}"), String::new(), None)),
    };
    volume.list_versions(&request, &mut visit).await?;
    Ok(items)
}

/// The same through the mount: a directory's lines, attributes and content.
fn ask_mount(volume: &Arc<Volume>, truth: &BTreeMap<String, ReadAnswer>, answers: &mut BTreeMap<String, ReadAnswer>) {
    let posix = |outcome: Result<String, posix::PosixError>| match outcome {
        Ok(text) => Ok(text),
        Err(posix::PosixError::Failed(Error::Corrupt(what))) => Err(what),
        Err(other) => Ok(format!("refused: {other}")),
    };
    let mount = match Mount::open(Arc::clone(volume), PLAIN, "", MountOptions::default()) {
        Ok(mount) => mount,
        Err(error) => {
            let names = truth.keys().filter(|name| name.starts_with("mount ")).cloned();
            let error = posix(Err(error));
            answers.extend(names.map(|name| (name, error.clone())));
            return;
        }
    };
    let shown = |at: &Attributes| format!("{:?} {} {:o}", at.kind, at.size, at.rights);
    let find = |path: &str| {
        let mut found = mount.attributes(mount.root())?;
        for name in path.split('/') {
            found = mount.lookup(found.ino, &Name::Plain(name.to_owned()))?;
        }
        Ok(found)
    };
    for path in ["long/003", "long/006", "small/03/0045", "new/02"] {
        answers.insert(format!("mount stat {path}"), posix(find(path).map(|found| shown(&found))));
        let content = find(path).and_then(|found| {
            let handle = mount.open_file(found.ino, OpenFlags { read: true, ..OpenFlags::default() })?;
            let body = mount.read(&handle, 0, 1 << 20);
            mount.release(handle)?;
            body.map(|body| digest(&body))
        });
        answers.insert(format!("mount read {path}"), posix(content));
    }
}

fn ask(running: &Running, truth: &BTreeMap<String, ReadAnswer>) -> BTreeMap<String, ReadAnswer> {
    let volume = &running.volume;
    let mut answers = BTreeMap::new();
    let mut say = |question: String, answer: ReadAnswer| answers.insert(question, answer);
    let buckets = wait(volume.list_buckets("", None, 100));
    let names = |buckets: Vec<BucketInfo>| buckets.into_iter().map(|bucket| bucket.name).collect::<Vec<_>>().join(" ");
    say("buckets".into(), answer(buckets, names));
    for bucket in [PLAIN, KEPT] {
        say(format!("usage {bucket}"), answer(wait(volume.usage(bucket)), |usage| format!("{usage:?}")));
        for (prefix, delimiter) in [("", None), ("", Some("/")), ("small/", Some("/")), ("small/03/", None)] {
            let lines = wait(listing(volume, bucket, prefix, delimiter));
            say(format!("list {bucket} {prefix} {delimiter:?}"), answer(lines, |lines| lines.join("\n")));
        }
        let lines = wait(versions(volume, bucket));
        let text = |lines: Vec<(String, _, _)>| lines.into_iter().map(|(line, ..)| line).collect::<Vec<_>>().join("\n");
        say(format!("versions {bucket}"), answer(lines, text));
    }
    // The same questions as of the whole directory.
    let asked: Vec<String> = match truth.is_empty() {
        false => truth.keys().filter(|name| name.starts_with("object ")).cloned().collect(),
        true => all_objects(volume),
    };
    for question in asked {
        let mut words = question.split(' ').skip(1);
        let (bucket, key) = (words.next().unwrap(), words.next().unwrap());
        let version = words.next().map(|text| text.parse::<VersionId>().unwrap());
        let condition = ReadCondition::default();
        let head = wait(volume.head_version(bucket, key, version, &condition));
        let head = answer(head, |info| format!("{info:?}"));
        let body = wait(async { read(volume.get_version(bucket, key, version, &condition).await?).await });
        let body = answer(body, |body| digest(&body));
        let both = match (head, body) {
            (Ok(head), Ok(body)) => Ok(format!("{head} {body}")),
            // A HEAD reads no data: it may be right where a GET is not.
            (Ok(head), Err(error))
                if truth
                    .get(&question)
                    .is_none_or(|truth| truth.as_ref().is_ok_and(|truth| truth.starts_with(&head))) =>
            {
                Err(error)
            }
            (Ok(head), Err(_)) => Ok(format!("another HEAD: {head}")),
            (Err(error), _) => Err(error),
        };
        answers.insert(question, both);
    }
    ask_mount(volume, truth, &mut answers);
    answers
}

fn all_objects(volume: &Volume) -> Vec<String> {
    let mut questions = Vec::new();
    for bucket in [PLAIN, KEPT] {
        for (_, key, version) in wait(versions(volume, bucket)).unwrap() {
            let Some(version) = version else { continue };
            questions.push(format!("object {bucket} {key}"));
            if bucket == KEPT {
                questions.push(format!("object {bucket} {key} {version}"));
            }
        }
    }
    questions
}

fn bytes_of(disk: &SimDisk, path: &str) -> Vec<u8> {
    let file = disk.open(Path::new(path), OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

impl Directory {
    /// `cleanly`: the engine was stopped; else it was killed.
    pub fn make(cleanly: bool) -> Directory {
        let random = SimRandom::new(17);
        let machine = SimDisk::new(3);
        let running = open(&machine).unwrap();
        let bodies = fill(&running, &random);
        let end_of_log = |disk: &SimDisk, path: &str| {
            bytes_of(disk, path).iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
        };
        let logs: Vec<String> =
            running.store.logs().iter().map(|info| format!("{SEGMENTS}/{:016x}.log", info.id.0)).collect();
        let ends: Vec<u64> = logs.iter().map(|path| end_of_log(&machine, path)).collect();
        // The group that proves all before it.
        put(&running.volume, PLAIN, "zz-last", b"one", Headers::new());
        let pages = tree_pages(&running);
        let disk = if cleanly {
            drop(running);
            machine.kill(5)
        } else {
            let disk = machine.kill(5);
            drop(running);
            disk
        };
        // Of older logs the tree has all but the payload.
        let records = logs.into_iter().zip(ends).rfind(|(_, end)| *end > 64).map(|(path, end)| (path, 0, end));
        let mut files = Vec::new();
        for folder in [SEGMENTS, TREE] {
            let entries = disk.list(Path::new(folder)).unwrap();
            files.extend(entries.into_iter().map(|entry| (format!("{folder}/{}", entry.name), entry.len)));
        }
        files.retain(|(_, len)| *len > 0);
        files.sort();
        let runs = runs_of(&disk, &files, &bodies);
        let copy = disk.kill(1);
        let running = open(&copy).unwrap();
        let truth = ask(&running, &BTreeMap::new());
        assert!(truth.values().all(Result::is_ok), "{:?}", truth.iter().find(|(_, answer)| answer.is_err()));
        let refused = |question: &str| truth[question].as_ref().is_ok_and(|text| text.starts_with("refused"));
        assert!(truth.keys().all(|question| question.starts_with("object kept") || !refused(question)));
        assert!(truth.len() > 250);
        assert!(running.volume.fsck(FsckOptions::default()).unwrap().clean());
        let pages = if cleanly { tree_pages_at_rest(&disk) } else { pages };
        Directory { truth, pages, records: records.into_iter().collect(), runs, files, disk }
    }

    /// Half in what something names, half anywhere.
    pub fn choose(&self, number: u64) -> Flip {
        let random = SimRandom::new(number.wrapping_mul(0x9e37_79b9) + 7);
        let bit = random.below(8) as u8;
        let within = |places: &[(String, u64, u64)]| {
            let (path, begin, end) = &places[random.below(places.len() as u64) as usize];
            (path.clone(), begin + random.below(end - begin))
        };
        let (named, (path, offset)) = match random.below(6) {
            0 => (true, within(&self.pages)),
            1 => (true, within(&self.records)),
            2 => (true, self.runs[random.below(self.runs.len() as u64) as usize].clone()),
            _ => {
                let (path, len) = &self.files[random.below(self.files.len() as u64) as usize];
                (false, (path.clone(), random.below(*len)))
            }
        };
        Flip { path, offset, bit, named }
    }

    pub fn ask_after(&self, flip: &Flip) -> Result<Told, String> {
        let disk = self.disk.kill(2);
        let file = disk.open(Path::new(&flip.path), OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, flip.offset).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << flip.bit)], flip.offset).unwrap();
        drop(file);
        catch_unwind(AssertUnwindSafe(|| self.judge(&disk))).unwrap_or_else(|_| Err("it panicked".into()))
    }

    fn judge(&self, disk: &SimDisk) -> Result<Told, String> {
        let running = match open(disk) {
            Ok(running) => running,
            Err(error)
                if error.contains("damaged") || error.contains("cannot be read") || error.contains("checksum") =>
            {
                return Ok(Told { found: Found::Opening, errors: self.truth.len() });
            }
            Err(error) => return Err(format!("the opening names no damage: {error}")),
        };
        let answers = ask(&running, &self.truth);
        let mut errors = 0;
        for (question, truth) in &self.truth {
            match answers.get(question) {
                Some(answer) if answer == truth => {}
                Some(Err(_)) => errors += 1,
                other => return Err(format!("{question}: {other:?} instead of {truth:?}")),
            }
        }
        let found = if !running.volume.fsck(FsckOptions::default()).is_ok_and(|report| report.clean()) {
            Found::Fsck
        } else if !running.volume.scrub(9, |_| ControlFlow::Continue(())).is_ok_and(|report| report.damaged == 0) {
            Found::Scrub
        } else {
            Found::Nowhere
        };
        match (errors, found) {
            (1.., Found::Nowhere) => Err(format!("{errors} errors, but fsck and scrub find nothing")),
            _ => Ok(Told { found, errors }),
        }
    }
}

fn tree_pages(running: &Running) -> Vec<(String, u64, u64)> {
    let mut pages = Vec::new();
    let checked = running.engine.check_storage(1, &mut |checked| {
        pages.push((format!("{TREE}/rows.redb"), checked.last.0, checked.last.0 + checked.last.1));
        ControlFlow::Continue(())
    });
    let checked = checked.unwrap();
    assert!(checked.damaged == 0 && checked.complete && checked.pages > 20, "{checked:?}");
    pages
}

/// The pages that a stopped engine left: closing writes some anew, and so does the next opening.
fn tree_pages_at_rest(disk: &SimDisk) -> Vec<(String, u64, u64)> {
    let before = bytes_of(disk, &format!("{TREE}/rows.redb"));
    let copy = disk.kill(9);
    let running = open(&copy).unwrap();
    running.engine.checkpoint().unwrap();
    let after = bytes_of(&copy, &format!("{TREE}/rows.redb"));
    let mut pages = tree_pages(&running);
    // Those that this opening has not written.
    pages.retain(|(_, begin, end)| {
        before.get(*begin as usize..*end as usize) == after.get(*begin as usize..*end as usize)
    });
    assert!(pages.len() > 10, "{} pages", pages.len());
    pages
}

/// Bytes of the bodies, where they lie in segments.
fn runs_of(disk: &SimDisk, files: &[(String, u64)], bodies: &[Vec<u8>]) -> Vec<(String, u64)> {
    const WINDOW: usize = 16;
    let segments: Vec<(&String, Vec<u8>)> = files
        .iter()
        .filter(|(path, _)| path.starts_with(SEGMENTS))
        .map(|(path, _)| (path, bytes_of(disk, path)))
        .collect();
    let mut places = Vec::new();
    for body in bodies {
        for at in [7, body.len() / 3, body.len() / 2, body.len() - WINDOW - 1] {
            let window = &body[at..at + WINDOW];
            let found = segments.iter().find_map(|(path, bytes)| {
                let found = bytes.windows(WINDOW).position(|bytes| bytes == window)?;
                Some(((*path).clone(), (found + WINDOW / 2) as u64))
            });
            places.extend(found);
        }
    }
    assert!(places.len() > bodies.len(), "{} places of {} bodies", places.len(), bodies.len());
    places
}
