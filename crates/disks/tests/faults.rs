//! Single errors at the worst moment: an error that goes up, a copy that is not believed, a directory that is not taken.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use margay_disks::{DiskWish, Disks, DisksError, State};
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Disk, Env, OpenMode};

mod machine;

use machine::Machine;

const EIO: i32 = 5;
const DATA: &str = "/data";
const PACK: &str = "segments/0000000000000001.pack";

fn wish(mirror: Option<&str>, disks: &[&str], copies: u32) -> DiskWish {
    DiskWish {
        mirror: mirror.map(Into::into),
        disks: disks.iter().map(Into::into).collect(),
        copies: Some(copies),
        accept_missing: false,
    }
}

fn open(machine: &Machine, wish: &DiskWish) -> Result<(Env, Disks), DisksError> {
    static SEED: AtomicU64 = AtomicU64::new(77);
    let env = machine.env(&SimRandom::new(SEED.fetch_add(1, Ordering::Relaxed)));
    let disks = Disks::open(&env, Path::new(DATA), wish)?.unwrap();
    Ok((disks.env(&env), disks))
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new(DATA).join(name)
}

/// A whole file, durable with its name.
fn put(env: &Env, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = env.disk.open(&path(name), OpenMode::OpenOrCreate)?;
    file.write_all_at(bytes, 0)?;
    file.sync_data()?;
    env.disk.sync_dir(path(name).parent().unwrap())
}

fn get(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn data_state(disks: &Disks, root: &str) -> State {
    disks.status().disks.iter().find(|disk| disk.root == Path::new(root)).unwrap().data
}

#[test]
fn an_error_of_the_last_directory_of_metadata_goes_up() {
    // Names: two disks that succeed do not hide it.
    let machine = Machine::of(&["data", "d1", "d2"], 3);
    let (env, _disks) = open(&machine, &wish(None, &["/d1", "/d2"], 2)).unwrap();
    put(&env, "segments/1.log", b"rows").unwrap();
    machine.fail("sync_dir", "/data/segments", EIO, 1);
    assert!(env.disk.sync_dir(&path("segments")).is_err());
    // Payload in the data directory, and on a disk.
    let machine = Machine::of(&["data", "d1"], 3);
    let (env, _disks) = open(&machine, &wish(None, &["/data", "/d1"], 2)).unwrap();
    put(&env, PACK, b"first").unwrap();
    for call in ["write", "sync"] {
        machine.fail(call, "/data/segments", EIO, 1);
        assert!(put(&env, PACK, b"other").is_err(), "{call}");
    }
    // The log, while the second directory is being filled.
    let machine = Machine::of(&["data", "mirror"], 3);
    let (env, disks) = open(&machine, &wish(Some("/mirror"), &[], 1)).unwrap();
    put(&env, "segments/1.log", b"rows").unwrap();
    assert_eq!(disks.status().disks.iter().filter(|disk| disk.metadata == State::Filling).count(), 1);
    for call in ["write", "sync"] {
        machine.fail(call, "/data/segments", EIO, 1);
        assert!(put(&env, "segments/1.log", b"more").is_err(), "{call}");
    }
}

#[test]
fn a_disk_that_is_taken_back_twice_at_once_keeps_what_only_it_has() {
    for round in 0..20 {
        let machine = Machine::of(&["data", "d1"], 3);
        let (env, disks) = open(&machine, &wish(None, &["/d1"], 1)).unwrap();
        put(&env, PACK, b"the only copy").unwrap();
        let file = env.disk.open(&path(PACK), OpenMode::ReadWrite).unwrap();
        machine.set("d2", SimDisk::new(round));
        disks.add(Path::new("/d2")).unwrap();
        machine.fail("write", "/d1/", EIO, 1);
        let _ = file.write_all_at(b"the", 0);
        drop(file);
        assert_eq!(data_state(&disks, "/d1"), State::Out);
        let both = Arc::new(Barrier::new(2));
        machine.on("create_dir_all", "/d1/tree", 2, move || {
            both.wait();
            Ok(())
        });
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| disks.add(Path::new("/d1")).unwrap());
            }
        });
        assert!(disks.fill(), "{:#?}", disks.status());
        assert_eq!(get(&*env.disk, &path(PACK)).unwrap(), b"the only copy", "round {round}");
    }
}

#[test]
fn a_volume_of_its_own_never_becomes_a_copy_of_another_one() {
    let machine = Machine::of(&["data", "mirror", "other"], 3);
    let (env, disks) = open(&machine, &wish(Some("/mirror"), &[], 1)).unwrap();
    assert!(disks.fill());
    drop((env, disks));
    let env = machine.env(&SimRandom::new(5));
    for name in ["format", "keys", "tree/rows.redb", "segments/0000000000000001.pack"] {
        let path = Path::new("/other").join(name);
        env.disk.create_dir_all(path.parent().unwrap()).unwrap();
        let file = env.disk.open(&path, OpenMode::OpenOrCreate).unwrap();
        file.write_all_at(b"of another volume", 0).unwrap();
    }
    for accept_missing in [false, true] {
        let wish = DiskWish { accept_missing, ..wish(Some("/mirror"), &[], 1) };
        let refused = Disks::open(&env, Path::new("/other"), &wish).map(drop).unwrap_err();
        assert!(matches!(refused, DisksError::NotEmpty(..)), "{refused}");
    }
    assert_eq!(get(&*env.disk, Path::new("/other/tree/rows.redb")).unwrap(), b"of another volume");
    // An empty one with files of the process is taken.
    let env = machine.env(&SimRandom::new(6));
    machine.set("other", SimDisk::new(1));
    env.disk.create_dir_all(Path::new("/other")).unwrap();
    for name in ["lock", "control", "connections"] {
        env.disk.open(&Path::new("/other").join(name), OpenMode::OpenOrCreate).unwrap();
    }
    machine.set("data", SimDisk::new(1));
    let wish = DiskWish { accept_missing: true, ..wish(Some("/mirror"), &[], 1) };
    drop(Disks::open(&env, Path::new("/other"), &wish).unwrap());
}

#[test]
fn a_copy_that_was_not_completed_is_none_after_a_restart() {
    for case in ["write", "sync_dir"] {
        let machine = Machine::of(&["data", "d1", "d2"], 3);
        let (env, disks) = open(&machine, &wish(None, &["/d1", "/d2"], 2)).unwrap();
        put(&env, PACK, b"first").unwrap();
        machine.set("d2", SimDisk::new(9));
        put(&env, PACK, b"other").unwrap();
        disks.add(Path::new("/d2")).unwrap();
        if case == "write" {
            let file = env.disk.open(&path(PACK), OpenMode::ReadWrite).unwrap();
            // All is copied, then a write to the new copy fails.
            let beside = machine.clone();
            machine.on("sync", ".filling", 1, move || {
                beside.fail("write", ".filling", EIO, 1);
                file.write_all_at(b"newer", 0)
            });
        } else {
            let beside = machine.clone();
            machine.on("rename", ".filling", 1, move || {
                beside.fail("sync_dir", "/d2/segments", EIO, 1);
                Ok(())
            });
        }
        assert!(!disks.fill());
        let status = disks.status();
        machine.mend();
        drop((env, disks));
        assert!(!machine.get("d2").exists(&Path::new("/d2").join(PACK)).unwrap(), "{case}: {status:#?}");
        let (env, disks) = open(&machine, &wish(None, &["/d1", "/d2"], 2)).unwrap();
        if data_state(&disks, "/d2") == State::Out {
            disks.add(Path::new("/d2")).unwrap();
        }
        assert!(disks.fill());
        let bytes = get(&*env.disk, &path(PACK)).unwrap();
        assert_eq!(get(&machine, &Path::new("/d2").join(PACK)).unwrap(), bytes, "{case}");
    }
}

#[test]
fn the_old_copy_of_a_disk_that_comes_back_is_there_until_a_new_one_is() {
    let machine = Machine::of(&["data", "d1", "d2"], 3);
    let (env, disks) = open(&machine, &wish(None, &["/d1", "/d2"], 2)).unwrap();
    put(&env, PACK, b"payload").unwrap();
    // One file is not found for a moment, and the disk comes back by itself.
    machine.fail("write", "/d2/", 2, 1);
    put(&env, PACK, b"payload").unwrap();
    assert_eq!(data_state(&disks, "/d2"), State::Out);
    // The other disk has a bad sector there.
    machine.fail("read", "/d1/segments", EIO, u32::MAX);
    let whole = disks.fill();
    assert_eq!(data_state(&disks, "/d2"), State::In);
    assert_eq!(get(&*env.disk, &path(PACK)).unwrap(), b"payload", "{whole}");
    drop((env, disks));
    let (env, disks) = open(&machine, &wish(None, &["/d1", "/d2"], 2)).unwrap();
    disks.fill();
    assert_eq!(get(&*env.disk, &path(PACK)).unwrap(), b"payload");
    machine.mend();
    assert!(disks.fill(), "{:#?}", disks.status());
    let left = machine.get("d2").list(Path::new("/d2/segments")).unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn of_two_disks_that_were_out_the_newer_copy_counts() {
    for restart in [false, true] {
        let machine = Machine::of(&["data", "d1", "d2", "d3"], 3);
        let all = wish(None, &["/d1", "/d2"], 2);
        let (mut env, mut disks) = open(&machine, &all).unwrap();
        put(&env, PACK, b"old bytes").unwrap();
        disks.add(Path::new("/d3")).unwrap();
        machine.fail("write", "/d1/", EIO, 1);
        put(&env, PACK, b"new bytes").unwrap();
        machine.fail("read", "/d2/segments", EIO, u32::MAX);
        machine.fail("write", "/d2/", EIO, u32::MAX);
        let _ = get(&*env.disk, &path(PACK));
        disks.fill();
        assert_eq!((data_state(&disks, "/d1"), data_state(&disks, "/d2")), (State::Out, State::Out));
        machine.mend();
        disks.add(Path::new("/d1")).unwrap();
        disks.fill();
        if restart {
            drop((env, disks));
            machine.fail("open", "/d2/disk-id", EIO, 2);
            (env, disks) = open(&machine, &DiskWish { accept_missing: true, ..DiskWish::default() }).unwrap();
            disks.fill();
        }
        disks.add(Path::new("/d2")).unwrap();
        assert!(disks.fill(), "{:#?}", disks.status());
        assert_eq!(get(&*env.disk, &path(PACK)).unwrap(), b"new bytes", "{restart}");
        for root in ["/d1", "/d2", "/d3"] {
            let copy = get(&machine, &Path::new(root).join(PACK));
            assert!(copy.as_ref().map_or(true, |bytes| bytes == b"new bytes"), "{root}");
        }
    }
}

#[test]
fn two_directories_that_each_went_on_alone_are_refused_whatever_their_generations() {
    for more in 0..4 {
        let machine = Machine::of(&["data", "mirror"], 3);
        let both = wish(Some("/mirror"), &[], 1);
        let (env, disks) = open(&machine, &both).unwrap();
        assert!(disks.fill());
        drop((env, disks));
        let mirror = machine.get("mirror");
        machine.set("mirror", SimDisk::new(8));
        let alone = DiskWish { accept_missing: true, ..DiskWish::default() };
        for _ in 0..=more {
            drop(open(&machine, &alone).unwrap());
        }
        machine.set("mirror", mirror.crash(1));
        let data = machine.get("data").crash(1);
        machine.set("data", SimDisk::new(9));
        let env = machine.env(&SimRandom::new(4));
        for _ in 0..2 {
            drop(Disks::open(&env, Path::new("/mirror"), &alone).unwrap());
        }
        machine.set("data", data);
        let refused = open(&machine, &both).map(drop).unwrap_err();
        assert!(matches!(refused, DisksError::Split(..)), "{more}: {refused}");
    }
}

#[test]
fn a_directory_whose_list_is_gone_or_cannot_be_read_is_not_trusted() {
    let machine = Machine::of(&["data", "mirror"], 3);
    let both = wish(Some("/mirror"), &[], 1);
    let (env, disks) = open(&machine, &both).unwrap();
    put(&env, "keys", b"old").unwrap();
    assert!(disks.fill());
    drop((env, disks));
    machine.fail("open", "/data/disks", EIO, u32::MAX);
    let refused = open(&machine, &both).map(drop).unwrap_err();
    assert!(matches!(refused, DisksError::MissingMetadata(_)), "{refused}");
    let refused = open(&machine, &DiskWish::default()).map(drop).unwrap_err();
    assert!(matches!(refused, DisksError::NoRecord(_)), "{refused}");
    machine.mend();
    machine.get("data").remove(Path::new("/data/disks")).unwrap();
    let refused = open(&machine, &both).map(drop).unwrap_err();
    assert!(matches!(refused, DisksError::MissingMetadata(_)), "{refused}");
    let (env, disks) = open(&machine, &DiskWish { accept_missing: true, ..both.clone() }).unwrap();
    assert!(disks.fill());
    assert_eq!(get(&*env.disk, &path("keys")).unwrap(), b"old");
    drop((env, disks));
    open(&machine, &both).unwrap();
}

#[test]
fn a_name_that_is_changed_in_one_copy_only_is_not_believed_in_the_other() {
    const ENOSPC: i32 = 28;
    // Refused by the first: nothing has changed. Refused by the second: it is out.
    for (refuser, is_done) in [("/data/", false), ("/mirror/", true)] {
        for call in ["rename", "remove"] {
            let machine = Machine::of(&["data", "mirror"], 3);
            let both = wish(Some("/mirror"), &[], 1);
            let (env, disks) = open(&machine, &both).unwrap();
            put(&env, "tree/a", b"one").unwrap();
            put(&env, "tree/b", b"two").unwrap();
            assert!(disks.fill());
            machine.fail(call, &format!("{refuser}tree/a"), ENOSPC, 1);
            let done = match call {
                "rename" => env.disk.rename(&path("tree/a"), &path("tree/b")),
                _ => env.disk.remove(&path("tree/a")),
            };
            assert_eq!(done.is_ok(), is_done, "{call} {refuser}");
            let status = disks.status();
            let is_out = status.disks.iter().any(|disk| disk.metadata == State::Out);
            assert_eq!(is_out, is_done, "{call} {refuser}");
            assert_eq!(get(&*env.disk, &path("tree/a")).is_ok(), !is_done);
            drop((env, disks));
            let (env, disks) = open(&machine, &both).unwrap();
            let _ = disks.add(Path::new("/mirror"));
            assert!(disks.fill());
            assert_eq!(get(&*env.disk, &path("tree/a")).is_ok(), !is_done);
            for name in ["a", "b"] {
                let in_copy = |root: &str| get(&machine, &Path::new(root).join("tree").join(name)).ok();
                assert_eq!(in_copy("/data"), in_copy("/mirror"), "{call} {refuser} {name}");
            }
        }
    }
}

#[test]
fn a_bad_sector_in_one_copy_of_metadata_does_not_stop_the_start() {
    for bad in ["/data", "/mirror"] {
        let machine = Machine::of(&["data", "mirror"], 3);
        let both = wish(Some("/mirror"), &[], 1);
        let (env, disks) = open(&machine, &both).unwrap();
        put(&env, "tree/rows", b"rows").unwrap();
        assert!(disks.fill());
        let machine = machine.power_cut(&SimRandom::new(3));
        drop((env, disks));
        machine.fail("read", &format!("{bad}/tree/rows"), EIO, u32::MAX);
        let (env, disks) = open(&machine, &both).unwrap();
        assert_eq!(get(&*env.disk, &path("tree/rows")).unwrap(), b"rows", "{bad}");
        let status = disks.status();
        assert!(status.disks.iter().any(|disk| disk.metadata == State::Out && disk.root == Path::new(bad)), "{bad}");
    }
}

#[test]
fn a_list_without_room_is_written_once_there_is_some() {
    const ENOSPC: i32 = 28;
    let machine = Machine::of(&["data", "d1", "d2"], 3);
    let (env, disks) = open(&machine, &wish(None, &["/d1", "/d2"], 2)).unwrap();
    put(&env, PACK, b"payload").unwrap();
    machine.fail("write", "/data/disks.new", ENOSPC, 2);
    machine.fail("write", "/d2/segments", EIO, 1);
    assert!(put(&env, PACK, b"failed!").is_err());
    assert_eq!(data_state(&disks, "/d2"), State::Out);
    // Nothing is acknowledged before the list says so.
    assert!(put(&env, PACK, b"failed!").is_err());
    put(&env, PACK, b"written").unwrap();
    drop((env, disks));
    machine.set("d1", SimDisk::new(4));
    let refused = open(&machine, &DiskWish::default()).map(drop).unwrap_err();
    assert!(matches!(refused, DisksError::MissingData(_)), "{refused}");
}

#[test]
fn a_directory_that_gets_payload_again_forgets_what_it_had() {
    let machine = Machine::of(&["data", "d1"], 3);
    let first = wish(None, &["/data"], 1);
    let (env, disks) = open(&machine, &first).unwrap();
    put(&env, PACK, b"old").unwrap();
    drop((env, disks));
    machine.fail("remove", "/data/segments", EIO, 1);
    let (env, disks) = open(&machine, &wish(None, &["/d1"], 1)).unwrap();
    assert!(disks.fill());
    assert_eq!(data_state(&disks, "/data"), State::None);
    put(&env, PACK, b"new").unwrap();
    drop((env, disks));
    assert!(machine.get("data").exists(&path(PACK)).unwrap());
    let (env, disks) = open(&machine, &wish(None, &["/data", "/d1"], 2)).unwrap();
    assert!(disks.fill());
    assert_eq!(get(&*env.disk, &path(PACK)).unwrap(), b"new");
    assert_eq!(get(&machine, &path(PACK)).unwrap(), b"new");
}

#[test]
fn a_first_start_that_was_cut_short_goes_on() {
    let all = wish(Some("/mirror"), &["/d1", "/d2"], 2);
    for changes in 0..40 {
        let machine = Machine::of(&["data", "mirror", "d1", "d2"], 3);
        // Each of them stops in turn, and all go on afterwards.
        for victim in ["data", "mirror", "d1", "d2"] {
            machine.get(victim).kill_after(changes);
            drop(open(&machine, &all));
            machine.set(victim, machine.get(victim).kill(1));
            for name in ["data", "mirror", "d1", "d2"].iter().filter(|name| **name != victim) {
                machine.set(name, machine.get(name).kill(1));
            }
        }
        let wish = DiskWish { accept_missing: true, ..all.clone() };
        let (env, disks) = open(&machine, &wish).unwrap_or_else(|error| panic!("{changes}: {error}"));
        put(&env, "keys", b"keys").unwrap();
        drop(disks);
    }
}

#[test]
fn a_path_that_no_list_can_hold_is_refused() {
    let machine = Machine::of(&["data", "d1", "d2\n"], 3);
    let refused = open(&machine, &wish(None, &["/d1", "/d2\n"], 2)).map(drop).unwrap_err();
    assert!(matches!(&refused, DisksError::Path(_)) && !refused.to_string().contains('\n'), "{refused}");
    let (_env, disks) = open(&machine, &wish(None, &["/d1"], 1)).unwrap();
    assert!(matches!(disks.add(Path::new("/d2\n")), Err(DisksError::Path(_))));
}
