//! Times of the mount's operations on names, without the kernel: microseconds each, on one thread.
//!
//! Why:      a FUSE round trip costs 7 to 16 us, so these times must be below that.
//! Use:      `posix_names FOLDER [FILES]`; the folder is created, and not removed.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "an example that measures")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::embedded::{self, EmbeddedEngine};
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::{Ino, Options, Volume};

fn mount(folder: &Path) -> Arc<Mount> {
    let store = Store::open(Env::real(), margay_segment::Options::new(folder.join("segments"))).unwrap();
    let options = embedded::Options::new(folder.join("tree"));
    let engine = EmbeddedEngine::open(Env::real(), Arc::clone(&store), options).unwrap();
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let volume = Volume::open(Env::real(), engine, store, Options::default()).unwrap();
    let mut made = std::pin::pin!(volume.create_bucket("bucket"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while made.as_mut().poll(&mut context).is_pending() {
        std::thread::yield_now();
    }
    Mount::open(Arc::clone(&volume), "bucket", "", MountOptions::default()).unwrap()
}

fn time(what: &str, names: &[Name], mut operation: impl FnMut(&Name)) {
    let begun = Instant::now();
    names.iter().for_each(&mut operation);
    println!("{what:24} {:8.2} us", begun.elapsed().as_secs_f64() * 1e6 / names.len() as f64);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap();
    let files: usize = arguments.next().map_or(100_000, |files| files.parse().unwrap());
    let mount = mount(Path::new(&folder));
    let new = NewFile { rights: 0o644, umask: 0o022, uid: 0, gid: 0 };
    let flags = OpenFlags { read: true, write: true, exclusive: true, ..OpenFlags::default() };
    let plain = |name: String| Name::Plain(name);
    let parent = mount.make_directory(mount.root(), &plain("d".to_owned()), &new).unwrap().ino;
    let names: Vec<Name> = (0..files).map(|index| plain(format!("file.{index:08}"))).collect();
    let moved: Vec<Name> = (0..files).map(|index| plain(format!("moved.{index:08}"))).collect();
    let mut inos: Vec<Ino> = Vec::new();
    time("make_file", &names, |name| {
        inos.push(mount.make_file(parent, name, &new, FileKind::Regular, 0).unwrap().ino);
    });
    time("lookup", &names, |name| {
        mount.lookup(parent, name).unwrap();
    });
    time("lookup of nothing", &moved, |name| assert!(mount.lookup(parent, name).is_err()));
    let mut each = inos.iter();
    time("attributes", &names, |_| {
        mount.attributes(*each.next().unwrap()).unwrap();
    });
    let handle = mount.open_directory(parent).unwrap();
    for with_attributes in [false, true] {
        let begun = Instant::now();
        let mut lines = 0;
        mount
            .read_directory(&handle, 0, with_attributes, &mut |_| {
                lines += 1;
                true
            })
            .unwrap();
        let each = begun.elapsed().as_secs_f64() * 1e6 / lines as f64;
        println!("read_directory {with_attributes:5}     {each:8.2} us a line");
    }
    let mut to = moved.iter();
    time("rename", &names, |name| mount.rename(parent, name, parent, to.next().unwrap(), RenameMode::Replace).unwrap());
    time("unlink", &moved, |name| mount.unlink(parent, name).unwrap());
    time("create and release", &names, |name| {
        let handle = mount.create(parent, name, &new, flags).unwrap().1;
        mount.release(handle).unwrap();
    });
    time("unlink", &names, |name| mount.unlink(parent, name).unwrap());
    time("make_directory", &names, |name| {
        mount.make_directory(parent, name, &new).unwrap();
    });
    let mut to = moved.iter();
    let other = mount.make_directory(mount.root(), &plain("e".to_owned()), &new).unwrap().ino;
    time("rename of a directory", &names, |name| {
        mount.rename(parent, name, other, to.next().unwrap(), RenameMode::Replace).unwrap();
    });
    time("remove_directory", &moved, |name| mount.remove_directory(other, name).unwrap());
}
