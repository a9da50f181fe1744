//! Which files of a data directory are kept in several directories, and with what.
//!
//! Invariants: C1 a name that this program does not know is left where it is.
//! Not here:   where the copies are (entry).

use std::path::{Component, Path, PathBuf};

/// What a file belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Rows, log, keys: a copy in each directory of metadata.
    Metadata,
    /// Payload: as many copies as are wanted, on disks for data.
    Data,
    /// Of the running process only.
    Local,
}

/// Says which member of which volume a directory is.
pub(crate) const IDENTITY_FILE: &str = "disk-id";
/// The list of members.
pub(crate) const RECORD_FILE: &str = "disks";
/// Follows the name of a copy that is not complete.
pub(crate) const FILLING: &str = ".filling";
/// Folders whose files have copies.
pub(crate) const FOLDERS: [&str; 2] = ["segments", "tree"];
/// The folder with payload.
pub(crate) const DATA_FOLDER: &str = "segments";
const LOCAL: [&str; 8] =
    ["lock", "control", "connections", "sync-probe", IDENTITY_FILE, RECORD_FILE, "disk-id.new", "disks.new"];

/// `path` counts from the data directory.
pub(crate) fn class(path: &Path) -> Class {
    let mut names = path.components().map(|part| match part {
        Component::Normal(name) => name.to_str().unwrap_or_default(),
        _ => "",
    });
    match (names.next(), names.next(), names.next()) {
        (Some(name), None, None) if is_mirrored(name) => Class::Metadata,
        (Some(DATA_FOLDER), Some(name), None) if is_payload(name) => Class::Data,
        (Some(folder), Some(name), None)
            if FOLDERS.contains(&folder) && !name.ends_with(FILLING) && !is_doubtful(name) =>
        {
            Class::Metadata
        }
        _ => Class::Local,
    }
}

fn is_mirrored(name: &str) -> bool {
    !name.is_empty() && !LOCAL.contains(&name) && !FOLDERS.contains(&name) && !name.ends_with(FILLING)
}

/// A pack or a raw segment, in quarantine or not; logs belong to the metadata.
fn is_payload(name: &str) -> bool {
    let kind = name.split('.').nth(1);
    matches!(kind, Some("pack" | "raw")) && !name.ends_with(FILLING) && !is_doubtful(name)
}

/// Between a segment's name and the time when it was set aside.
const QUARANTINE: &str = ".quarantine-";

/// The name of a payload file when it is not in quarantine.
pub(crate) fn segment(name: &Path) -> PathBuf {
    let text = name.to_string_lossy();
    PathBuf::from(text.split(QUARANTINE).next().unwrap_or_default())
}

/// Between a segment's name and the generation of the list that first said that its disk is out.
const DOUBTFUL: &str = ".doubtful-";

pub(crate) fn doubtful_name(name: &Path, left: u64) -> PathBuf {
    let mut doubtful = segment(name).into_os_string();
    doubtful.push(format!("{DOUBTFUL}{left:016x}"));
    doubtful.into()
}

fn is_doubtful(name: &str) -> bool {
    name.contains(DOUBTFUL)
}

/// The segment and the order of leaving.
pub(crate) fn in_doubt(name: &str) -> Option<(PathBuf, u64)> {
    let (segment, left) = name.split_once(DOUBTFUL)?;
    let left = u64::from_str_radix(left, 16).ok()?;
    Some((Path::new(DATA_FOLDER).join(segment), left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_its_class() {
        let of = |path: &str| class(Path::new(path));
        for path in ["format", "keys", "sync-failed", "tree/rows.redb", "segments/0000000000000001.log"] {
            assert_eq!(of(path), Class::Metadata, "{path}");
        }
        for path in ["segments/0000000000000001.pack", "segments/0000000000000001.raw.quarantine-0000000000000009"] {
            assert_eq!(of(path), Class::Data, "{path}");
        }
        for path in [
            "lock",
            "control",
            "disks",
            "disk-id",
            "segments",
            "tree",
            "a/b/c",
            "lost+found/x",
            "tree/x.filling",
            "",
            "segments/0000000000000001.pack.doubtful-0000000000000001",
        ] {
            assert_eq!(of(path), Class::Local, "{path}");
        }
    }

    #[test]
    fn a_name_in_doubt_names_its_segment() {
        let name = doubtful_name(Path::new("segments/0000000000000001.pack.quarantine-0000000000000009"), 17);
        assert_eq!(name, Path::new("segments/0000000000000001.pack.doubtful-0000000000000011"));
        let name = name.file_name().unwrap().to_str().unwrap();
        assert!(is_doubtful(name));
        assert_eq!(in_doubt(name), Some(("segments/0000000000000001.pack".into(), 17)));
        assert_eq!(in_doubt("0000000000000001.pack.doubtful-x"), None);
    }
}
