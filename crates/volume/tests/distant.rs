//! Operations of S3 over an engine whose answers come from somewhere else: they hold no thread while they wait.
//!
//! Why:      a thread held for each request under way is what limits how many there may be.
//! Not here: what operations answer there (model, which runs over such an engine too).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;
use std::time::Duration;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::distant::DistantEngine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::{AttributeChange, Mount, MountOptions, Name, NewFile, OpenFlags};
use margay_volume::*;
use world::{World, far, segment_options, wait};

fn world() -> (Arc<DistantEngine>, World) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
    let distant = Arc::new(far(Arc::new(Memory::with_payloads(Arc::clone(&store), 64 << 10))));
    let engine = Arc::clone(&distant) as Arc<dyn Engine>;
    let volume = Volume::open(Env::real(), Arc::clone(&engine), Arc::clone(&store), Options::default()).unwrap();
    (distant, World { volume, engine, store, folder })
}

fn list(volume: &Volume, delimiter: Option<&str>, prefix: &str) -> usize {
    let request = ListRequest { bucket: "b", prefix, delimiter, after: None, after_is_prefix: false, max: 1000 };
    let mut count = 0;
    wait(volume.list(&request, &mut |_| count += 1)).unwrap();
    count
}

#[test]
fn no_operation_of_s3_holds_a_thread_while_it_waits_for_the_engine() {
    let (engine, world) = world();
    let volume = &world.volume;
    let before = engine.blocked();
    wait(volume.create_bucket("b")).unwrap();
    for versioning in [None, Some(Versioning::Enabled), Some(Versioning::Suspended)] {
        if let Some(versioning) = versioning {
            wait(volume.set_versioning("b", versioning)).unwrap();
        }
        for key in ["a", "d/e/f/a", "d/e/b", "d/c/", "x"] {
            // Cold, warm, and in the place of another one.
            for body in [&b"body"[..], &[7; 100_000][..]] {
                world.put("b", key, body).unwrap();
                let condition = ReadCondition::default();
                assert_eq!(wait(volume.head_object("b", key, &condition)).unwrap().size, body.len() as u64);
                let reader = wait(volume.get_object("b", key, &condition)).unwrap();
                assert_eq!(wait(reader.read(0, body.len() as u64)).unwrap(), body);
            }
        }
        assert_eq!((list(volume, None, "d/"), list(volume, Some("/"), "d/"), list(volume, None, "d/e/")), (3, 2, 2));
        let request = CopyRequest {
            source_bucket: "b",
            source_key: "d/e/f/a",
            source_version: None,
            bucket: "b",
            key: "copy/1",
            headers: None,
            documents_kept: margay_rows::kinds::DocumentSet::default(),
            documents: Documents::new(),
            encryption: CopyEncryption::default(),
            condition: WriteCondition::None,
            source_condition: ReadCondition::default(),
        };
        wait(volume.copy_object(request)).unwrap();
        if versioning.is_none() {
            wait(volume.rename("b", "copy/1", "copy/2", &WriteCondition::None)).unwrap();
            wait(volume.rename("b", "copy/", "moved/", &WriteCondition::None)).unwrap();
        }
        let keys = ["a", "d/e/f/a", "d/e/b", "absent"].map(DeleteRequest::of);
        assert!(wait(volume.delete_objects("b", &keys)).unwrap().iter().all(Result::is_ok));
        wait(volume.delete_object("b", &DeleteRequest::of("d/c/"))).unwrap();
        wait(volume.make_directory("b", "made/by/hand/")).unwrap();
        let versions = ListVersionsRequest { bucket: "b", prefix: "", delimiter: None, after: None, max: 1000 };
        wait(volume.list_versions(&versions, &mut |_| {})).unwrap();
    }
    assert_eq!(engine.blocked() - before, 0);
}

#[test]
fn a_rename_by_s3_does_not_wait_for_a_mount_that_waits_for_the_engine() {
    // Long enough for a machine that stands still for seconds.
    const STALL: Duration = Duration::from_secs(10);
    let (engine, world) = world();
    let volume = &world.volume;
    wait(volume.create_bucket("b")).unwrap();
    let mount = Mount::open(Arc::clone(volume), "b", "", MountOptions::default()).unwrap();
    let name = Name::Plain("file".to_owned());
    let (made, _open) = mount.create(mount.root(), &name, &NewFile::default(), OpenFlags::default()).unwrap();
    let blocked = engine.blocked();
    engine.set_round_trip(STALL);
    let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
    let clock = Env::real().clock;
    let began = clock.monotonic();
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| mount.set_attributes(made.ino, &change).unwrap());
        while engine.blocked() == blocked {
            std::thread::yield_now();
        }
        engine.set_round_trip(Duration::ZERO);
        let renamed = wait(volume.rename("b", "file", "renamed", &WriteCondition::None));
        assert!(clock.monotonic() - began < STALL, "the thread of a request of S3 waited for a mount");
        assert!(matches!(renamed, Err(Error::Busy)), "{renamed:?}");
        changing.join().unwrap();
    });
    wait(volume.rename("b", "file", "renamed", &WriteCondition::None)).unwrap();
    assert_eq!(mount.attributes(made.ino).unwrap().rights, 0o600, "the mount knows where it is");
}
