//! Why the directories of a volume cannot be used together.
//!
//! Not here:   errors of single calls, which are those of the disk.

use std::io;
use std::path::PathBuf;

use margay_env::files;

#[derive(Debug, thiserror::Error)]
pub enum DisksError {
    #[error("{0} is a disk of another volume; name the right one, or an empty directory")]
    OtherVolume(PathBuf),
    #[error("{0} and {1} are the same directory; name each disk once")]
    Twice(PathBuf, PathBuf),
    #[error("{0} was taken out of this volume; name another directory, or empty this one")]
    Dismissed(PathBuf),
    #[error("{0} is in use by another margay; stop that one")]
    InUse(PathBuf),
    #[error("{0} is not empty (it holds {1:?}) and is no disk of a volume; choose an empty or new directory")]
    NotEmpty(PathBuf, String),
    #[error("{0} is damaged: {1}; put back a copy of it, or give this disk up with an empty directory in its place")]
    Damaged(PathBuf, String),
    #[error(
        "{0} is empty and was a disk of this volume: is it mounted? If the disk was replaced, start once with \
         --accept-missing-disks"
    )]
    Replaced(PathBuf),
    #[error(
        "the directory {0} with a copy of the metadata is not there: is it mounted? It may be newer than this one. If it is \
         lost, start once with --accept-missing-disks"
    )]
    MissingMetadata(PathBuf),
    #[error(
        "too many disks are not there: {}; are they mounted? If they are lost, start once with --accept-missing-disks (payload \
         that only they had is lost then)", .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    MissingData(Vec<PathBuf>),
    #[error(
        "{0} is one of several directories of a volume, and the list of them (the file disks) is in none that can be read: name \
         the other directory with metadata with --mirror-metadata, or put back a copy of the file"
    )]
    NoRecord(PathBuf),
    #[error("no directory of {0} has all metadata; bring back the one that was used last")]
    NoMetadata(PathBuf),
    #[error(
        "{0} and {1} were each used without the other and differ; decide which one is right, and move the other one away"
    )]
    Split(PathBuf, PathBuf),
    #[error("--copies {copies} needs as many disks, and there are {disks}; name more with --disk DIR")]
    TooFew { copies: u32, disks: usize },
    #[error(
        "the path {0:?} cannot be a disk: it must be text in one line of at most 4096 bytes; mount the disk elsewhere"
    )]
    Path(PathBuf),
    #[error("a volume has at most {} disks", crate::MEMBERS_MAX)]
    TooMany,
    #[error("{0} is no disk of this volume")]
    Unknown(PathBuf),
    #[error("{0} is in use as it is, there is nothing to do")]
    Healthy(PathBuf),
    #[error("{} cannot be used: {}; {}", .0.display(), .1, files::remedy(.1))]
    Io(PathBuf, io::Error),
}
