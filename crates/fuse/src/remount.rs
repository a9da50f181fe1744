//! `mount -o remount`: changes the flags of a mount without unmounting it.
//!
//! Why:        flags such as `ro` belong to the kernel; the server is not involved, and open files continue.
//! Invariants: N1 a flag that no option names stays unchanged.
//!             N2 a remount cannot enable set-id bits: those need other FUSE capabilities, negotiated at mount time.
//!             N3 only this mount changes, not other mounts of the same bucket, which share one superblock.
//! Not here:   options that the server evaluates: they need an unmount and a new mount.

use std::io;
use std::path::Path;

use rustix::fs::StatVfsMountFlags as Shown;
use rustix::mount::MountFlags;

/// A flag, how the kernel shows it, the option that sets it and the one that clears it.
const FLAGS: [(MountFlags, Shown, &str, &str); 7] = [
    (MountFlags::RDONLY, Shown::RDONLY, "ro", "rw"),
    (MountFlags::NOSUID, Shown::NOSUID, "nosuid", "suid"),
    (MountFlags::NODEV, Shown::NODEV, "nodev", "dev"),
    (MountFlags::NOEXEC, Shown::NOEXEC, "noexec", "exec"),
    (MountFlags::NOATIME, Shown::NOATIME, "noatime", "atime"),
    (MountFlags::NODIRATIME, Shown::NODIRATIME, "nodiratime", "diratime"),
    (MountFlags::RELATIME, Shown::RELATIME, "relatime", "norelatime"),
];

/// Changes the flags that the options name; other options are ignored, as mount(8) repeats all of them.
pub fn remount(path: &Path, words: &[String]) -> io::Result<()> {
    let shown = rustix::fs::statvfs(path)?.f_flag;
    let flags = flags(shown, words);
    if gains_set_id(shown, flags) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "set-id bits count only on a mount that was made so: unmount it and mount it again with -o allow_suid",
        ));
    }
    rustix::mount::mount_remount(path, flags | MountFlags::BIND, "")?;
    let still = rustix::fs::statvfs(path)?.f_flag.contains(Shown::RDONLY);
    if still && !flags.contains(MountFlags::RDONLY) {
        return Err(io::Error::other("it was mounted read-only; unmount it and mount it again"));
    }
    Ok(())
}

/// Such a mount did not tell the kernel that the server clears set-id bits, so the kernel clears them before a byte
/// changes.
fn gains_set_id(shown: Shown, flags: MountFlags) -> bool {
    shown.contains(Shown::NOSUID) && !flags.contains(MountFlags::NOSUID)
}

fn flags(shown: Shown, words: &[String]) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (flag, bit, on, off) in FLAGS {
        let last = words.iter().rev().find(|word| *word == on || *word == off);
        flags.set(flag, last.map_or(shown.contains(bit), |word| word == on));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_what_they_name_and_the_last_one_counts() {
        let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let shown = Shown::NOSUID | Shown::NODEV | Shown::RELATIME;
        let kept = MountFlags::NODEV | MountFlags::RELATIME;
        assert_eq!(flags(shown, &words("remount,ro,data=/d")), kept | MountFlags::NOSUID | MountFlags::RDONLY);
        assert_eq!(flags(shown, &words("remount,ro,rw,suid")), kept);
        assert!(gains_set_id(shown, flags(shown, &words("remount,suid"))));
        assert!(!gains_set_id(shown, flags(shown, &words("remount,ro,dev"))));
        assert!(!gains_set_id(Shown::RELATIME, flags(Shown::RELATIME, &words("remount,suid"))));
        assert_eq!(
            flags(shown | Shown::RDONLY, &words("remount,rw,norelatime")),
            MountFlags::NOSUID | MountFlags::NODEV
        );
    }
}
