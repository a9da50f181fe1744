//! Requests about attributes: stat, chmod, chown, extended attributes.

use margay_env::{Env, OpenMode};
use margay_volume::posix::SetXattr;
use rustix::fs::XattrFlags;

use super::answer;
use crate::door::Door;
use crate::protocol::{Answer, AttributeChange, Attributes, Caller, Errno, Node};

/// The xattr of the access ACL.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const SET_GROUP_ID: u32 = 0o2000;
/// Bytes of /proc/PID/status that are read.
const STATUS_BYTES: usize = 64 * 1024;

impl Door {
    pub(super) fn do_attributes(&self, node: Node) -> Answer<Attributes> {
        answer(self.mount.attributes(self.ino(node))).map(|found| self.shown(found))
    }

    pub(super) fn do_set_attributes(&self, node: Node, change: &AttributeChange) -> Answer<Attributes> {
        answer(self.mount.set_attributes(self.ino(node), change)).map(|found| self.shown(found))
    }

    pub(super) fn do_set_xattr(&self, caller: Caller, node: Node, name: &[u8], value: &[u8], flags: i32) -> Answer<()> {
        let how = match u32::try_from(flags).ok().and_then(XattrFlags::from_bits) {
            Some(flags) if flags.is_empty() => SetXattr::Any,
            Some(flags) if flags == XattrFlags::CREATE => SetXattr::Create,
            Some(flags) if flags == XattrFlags::REPLACE => SetXattr::Replace,
            _ => return Err(Errno::INVAL),
        };
        let kill = name == ACCESS_ACL && self.loses_set_group_id(caller, node)?;
        answer(self.mount.set_xattr(self.ino(node), name, value, how, kill))
    }

    /// Lists names in `trusted.` for root only: the kernel hides their values from other users, but not the names.
    pub(super) fn do_list_xattrs(&self, caller: Caller, node: Node) -> Answer<Vec<u8>> {
        let names = answer(self.mount.list_xattrs(self.ino(node)))?;
        if caller.uid == 0 {
            return Ok(names);
        }
        let shown = names.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
        Ok(shown.flatten().copied().collect())
    }

    /// Whether a file loses set-group-id when this caller sets its ACL: the caller is neither root nor in the file's
    /// group. fuser does not pass on the kernel's own flag (FUSE_SETXATTR_ACL_KILL_SGID).
    fn loses_set_group_id(&self, caller: Caller, node: Node) -> Answer<bool> {
        if caller.uid == 0 {
            return Ok(false);
        }
        let found = answer(self.mount.attributes(self.ino(node)))?;
        Ok(found.rights & SET_GROUP_ID != 0 && found.gid != caller.gid && !in_group(&self.env, caller, found.gid))
    }
}

/// Whether a group is one of a process's supplementary groups; false when the process cannot be found.
fn in_group(env: &Env, caller: Caller, group: u32) -> bool {
    let read = || -> std::io::Result<Vec<u8>> {
        let path = format!("/proc/{}/status", caller.process);
        let file = env.disk.open(path.as_ref(), OpenMode::Read)?;
        let mut bytes = vec![0; STATUS_BYTES];
        let count = file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    };
    let Ok(bytes) = read() else { return false };
    String::from_utf8_lossy(&bytes)
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .is_some_and(|groups| groups.split_whitespace().any(|word| word.parse() == Ok(group)))
}
