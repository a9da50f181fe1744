//! Directories of /proc, whose entries come and go while they are read.
//!
//! Why:        `Disk::list` asks for the attributes of each entry and fails when one is gone meanwhile; here that happens all the time.
//! Invariants: N1 only names are read: nothing is opened or looked up where a link leads.
//! Not here:   files of /proc, which are read like others.

use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags};

/// What a directory of /proc holds; nothing if the process has ended or belongs to somebody else. The directory's own descriptor is
/// among those of this process.
pub fn names(path: &Path) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(mut folder) = rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new) else { return Vec::new() };
    let mut names = Vec::new();
    while let Some(Ok(entry)) = folder.read() {
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != "." && name != "..");
    names
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test opens what it looks for")]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn descriptors_of_this_process_are_named_while_others_come_and_go() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let number = file.as_raw_fd().to_string();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(std::fs::File::open("/proc/self/stat").unwrap());
                }
            });
            let all = (0..1000).all(|_| names(Path::new("/proc/self/fd")).contains(&number));
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(all);
        });
        assert!(names(Path::new("/proc/self/no-such-directory")).is_empty());
    }
}
