//! The number of an inode.
//!
//! Not here:   giving numbers out (margay-volume).

/// Number of a file, directory, upload or part; never used twice. 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);
