//! Inode numbers.
//!
//! Not here:   allocating numbers (margay-volume).

/// Number of a file, directory, upload or part; never reused. 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);
