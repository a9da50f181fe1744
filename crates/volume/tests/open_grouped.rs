//! A file that one process has open while another one renames it in the midst of much else, over PostgreSQL, where commits that
//! wait share a call.
//!
//! Invariants: what was written through the descriptor is under the name that the file has in the end.
//! Not here:   each moment of it (open_elsewhere), what a call is (margay-postgres).

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_volume::posix::*;
use margay_volume::*;
use world::tree::{NEW, plain};
use world::*;

const BOTH: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
const ROUNDS: usize = 12;
/// Files that are made beside the rename, each by a thread.
const MADE: usize = 40;

#[test]
fn a_file_that_is_renamed_among_many_creations_keeps_what_was_written() {
    let Some(database) = postgres::Database::start() else { return };
    let (engines, stores) = (database.engines(), two_stores::stores());
    let volumes = two_stores::in_sessions_over(&engines, &stores, &Options::default());
    wait(volumes[0].create_bucket("b")).unwrap();
    let [here, there] =
        volumes.each_ref().map(|volume| Mount::open(Arc::clone(volume), "b", "", MountOptions::default()).unwrap());
    for round in 0..ROUNDS {
        let (old, new) = (format!("f{round}"), format!("g{round}"));
        let (made, handle) = here.create(here.root(), &plain(&old), &NEW, BOTH).unwrap();
        here.write(&handle, 0, b"written before", false).unwrap();
        here.sync(&handle).unwrap();
        here.write(&handle, 14, b" and after", false).unwrap();
        std::thread::scope(|scope| {
            for number in 0..MADE {
                let there = &there;
                scope.spawn(move || {
                    let (_, made) =
                        there.create(there.root(), &plain(&format!("c{round}-{number}")), &NEW, BOTH).unwrap();
                    there.release(made).unwrap();
                });
            }
            scope.spawn(|| {
                there.rename(there.root(), &plain(&old), there.root(), &plain(&new), RenameMode::Replace).unwrap()
            });
        });
        here.sync(&handle).unwrap();
        here.release(handle).unwrap();
        let found = there.lookup(there.root(), &plain(&new)).unwrap();
        assert_eq!((found.ino, found.size), (made.ino, 24), "round {round}");
    }
}
