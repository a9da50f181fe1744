//! Mount points of servers, and orders to mount and unmount.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use crate::server::{ends, margay};
use crate::world::World;

/// Mount points; those that are left mounted are detached at the end, for servers that were killed.
pub(crate) struct Mountings {
    folder: PathBuf,
    made: RefCell<Vec<PathBuf>>,
}

impl Mountings {
    pub(crate) fn new(world: &World) -> Mountings {
        Mountings { folder: world.data("points"), made: RefCell::default() }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).unwrap();
        self.made.borrow_mut().push(path.clone());
        path
    }

    pub(crate) fn unmount(&self, world: &World, server: &str, name: &str) {
        let path = self.folder.join(name);
        ends(0, &["unmount", path.to_str().unwrap(), "--data", world.data(server).to_str().unwrap()]);
    }
}

impl Drop for Mountings {
    fn drop(&mut self) {
        for path in self.made.get_mut() {
            // Not mounted any more, or a server that is gone.
            let _ = rustix::mount::unmount(path.as_path(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Asks a server to mount; what it says if it does not.
pub(crate) fn mount(world: &World, server: &str, what: &str, at: &Path, options: &str) -> Result<(), String> {
    let mut command = margay();
    command.args(["mount", "--create", what]).arg(at).arg("--data").arg(world.data(server));
    if !options.is_empty() {
        command.args(["-o", options]);
    }
    let done = command.output().unwrap();
    if done.status.success() { Ok(()) } else { Err(String::from_utf8(done.stderr).unwrap()) }
}

pub(crate) fn is_refused(mounted: Result<(), String>) -> bool {
    mounted.is_err_and(|said| said.contains("is mounted read-write"))
}
