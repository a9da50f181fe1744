//! Requests about open directories.
//!
//! Invariants: C1 cookie 1 follows `.` and cookie 2 follows `..`; the volume's cookies are shifted by 2.

use margay_volume::posix::FileKind;

use super::answer;
use crate::door::{Door, OpenDirectory};
use crate::names;
use crate::protocol::{Answer, Attributes, DirectoryLine, Errno, Node, ROOT, TakeLine};

/// Cookies of `.` and `..`.
const OWN_COOKIES: u64 = 2;

impl Door {
    pub(super) fn do_open_directory(&self, node: Node) -> Answer<u64> {
        let handle = answer(self.mount.open_directory(self.ino(node)))?;
        Ok(self.directories.insert(OpenDirectory { handle, node }))
    }

    pub(super) fn do_read_directory(
        &self,
        handle: u64,
        cookie: u64,
        with_attributes: bool,
        take: &mut TakeLine<'_>,
    ) -> Answer<()> {
        let open = self.directories.get(handle).ok_or(Errno::BADF)?;
        for own in cookie..OWN_COOKIES {
            if !self.take_own(&open, own, take)? {
                return Ok(());
            }
        }
        let mut name = Vec::with_capacity(64);
        let visited =
            self.mount.read_directory(&open.handle, cookie.saturating_sub(OWN_COOKIES), with_attributes, &mut |item| {
                assert!(item.cookie > 0, "the volume's cookies begin at 1 (C1)");
                name.clear();
                names::shown(item.name, item.beside, &mut name);
                let attributes = item.attributes.map(|found| self.shown(found));
                take(&DirectoryLine {
                    node: self.node(item.ino),
                    kind: item.kind,
                    name: &name,
                    cookie: item.cookie.saturating_add(OWN_COOKIES),
                    attributes: attributes.as_ref(),
                })
            });
        answer(visited)
    }

    /// Emits `.` or `..`; the kernel uses only the number of the line.
    fn take_own(&self, open: &OpenDirectory, cookie: u64, take: &mut TakeLine<'_>) -> Answer<bool> {
        let (node, name): (_, &[u8]) = match cookie {
            0 => (open.node, b"."),
            _ => (self.parent_node(open.node)?, b".."),
        };
        let attributes = Attributes {
            ino: margay_volume::Ino(node),
            kind: FileKind::Directory,
            rights: 0,
            links: 1,
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            stored: 0,
            accessed: margay_env::Timestamp(0),
            modified: margay_env::Timestamp(0),
            changed: margay_env::Timestamp(0),
        };
        let attributes = Some(&attributes);
        Ok(take(&DirectoryLine { node, kind: FileKind::Directory, name, cookie: cookie + 1, attributes }))
    }

    fn parent_node(&self, node: Node) -> Answer<Node> {
        if node == ROOT {
            return Ok(ROOT);
        }
        match self.mount.parent(self.ino(node)) {
            Ok(parent) => Ok(self.node(parent)),
            // The directory was removed while open: `..` shows the directory itself.
            Err(margay_volume::posix::PosixError::NotFound | margay_volume::posix::PosixError::Stale) => Ok(node),
            Err(error) => Err(crate::errno::errno(&error)),
        }
    }
}
