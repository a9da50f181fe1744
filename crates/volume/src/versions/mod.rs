//! Versions: the earlier contents of a key, and delete markers, as rows beside the tree, by bucket and key.
//!
//! Why:        the current object stays an entry, so reading and listing it costs the same as without versions.
//! Invariants: Y1 a key's entry has a larger sequence than all its version rows; one older than versioning has 0, and
//!                no rows.
//!             Y2 a key without an entry has no version row, or the newest one is a delete marker.
//!             Y3 at most one version of a key is `null`; if it is a row, the null version row has its sequence.
//!             Y5 directories have no versions, and none is renamed with versioning: a key's rows never move.
//!             Y4 sequences are numbers of the volume, never reused. A commit that creates one asserts that no version
//!                row of its key has a larger one.

mod delete_version;
mod displace;
mod expire_version;
mod find;
mod key_of;
mod list;
mod rows;

pub use self::expire_version::DueVersion;
