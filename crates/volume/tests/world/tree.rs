//! A mount over a world, by paths.

use std::sync::Arc;

use margay_volume::posix::*;
use margay_volume::*;

use super::*;

pub struct Tree {
    pub world: World,
    pub mount: Arc<Mount>,
}

pub fn plain(name: &str) -> Name {
    Name::Plain(name.to_owned())
}

pub const NEW: NewFile = NewFile { rights: 0o755, umask: 0o022, uid: 7, gid: 8 };

/// Adds kind, rights, names, size, attributes and content of everything below a directory to a text, without times.
pub fn show_tree(mount: &Mount, ino: Ino, path: &str, text: &mut String) {
    let handle = mount.open_directory(ino).unwrap();
    let mut items = Vec::new();
    let mut visit = |item: &DirectoryItem<'_>| {
        items.push((item.name.to_owned(), item.beside, item.attributes.unwrap()));
        true
    };
    mount.read_directory(&handle, 0, true, &mut visit).unwrap();
    for (name, beside, found) in items {
        let path = format!("{path}/{name}{}", if beside { "*" } else { "" });
        let size = if found.kind == FileKind::Directory { 0 } else { found.size };
        let xattrs = mount.list_xattrs(found.ino).unwrap_or_default().len();
        *text += &format!(" {path}:{:?}:{:o}:{}:{size}:{xattrs}", found.kind, found.rights, found.links);
        match found.kind {
            FileKind::Directory => show_tree(mount, found.ino, &path, text),
            FileKind::Regular => {
                let handle = mount.open_file(found.ino, OpenFlags { read: true, ..OpenFlags::default() }).unwrap();
                let bytes = mount.read(&handle, 0, 1 << 20).unwrap();
                assert_eq!(bytes.len() as u64, size, "{path}");
                *text += &format!(":{}", bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte)));
            }
            _ => {}
        }
    }
}

impl Tree {
    pub fn new() -> Tree {
        let world = World::new(EMBEDDED);
        wait(world.volume.create_bucket("b")).unwrap();
        let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
        Tree { world, mount }
    }

    pub fn root(&self) -> Ino {
        self.mount.root()
    }

    /// The number of what has this path.
    pub fn at(&self, path: &str) -> Result<Attributes, PosixError> {
        let mut found = self.mount.attributes(self.root())?;
        for name in path.split('/') {
            found = self.mount.lookup(found.ino, &plain(name))?;
        }
        Ok(found)
    }

    pub fn split(&self, path: &str) -> (Ino, Name) {
        match path.rsplit_once('/') {
            Some((above, name)) => (self.at(above).unwrap().ino, plain(name)),
            None => (self.root(), plain(path)),
        }
    }

    pub fn file(&self, path: &str) -> Result<Attributes, PosixError> {
        let (parent, name) = self.split(path);
        self.mount.make_file(parent, &name, &NEW, FileKind::Regular, 0)
    }

    pub fn directory(&self, path: &str) -> Result<Attributes, PosixError> {
        let (parent, name) = self.split(path);
        self.mount.make_directory(parent, &name, &NEW)
    }

    pub fn unlink(&self, path: &str) -> Result<(), PosixError> {
        let (parent, name) = self.split(path);
        self.mount.unlink(parent, &name)
    }

    pub fn rmdir(&self, path: &str) -> Result<(), PosixError> {
        let (parent, name) = self.split(path);
        self.mount.remove_directory(parent, &name)
    }

    pub fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<(), PosixError> {
        let ((parent, name), (new_parent, new_name)) = (self.split(from), self.split(to));
        self.mount.rename(parent, &name, new_parent, &new_name, mode)
    }

    pub fn lines(&self, ino: Ino) -> Vec<String> {
        let handle = self.mount.open_directory(ino).unwrap();
        let mut lines = Vec::new();
        let mut visit = |item: &DirectoryItem<'_>| {
            let mark = if item.kind == FileKind::Directory { "/" } else { "" };
            lines.push(format!("{}{mark}{}", item.name, if item.beside { "*" } else { "" }));
            true
        };
        self.mount.read_directory(&handle, 0, true, &mut visit).unwrap();
        lines
    }

    pub fn clean(&self) {
        let report = self.world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }
}
