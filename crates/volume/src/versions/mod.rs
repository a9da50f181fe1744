//! Versions: what a key held before, and delete markers.
//!
//! Why:        the current object stays an entry, so listing and reading what is current costs what it always did;
//!             everything else is a row beside the tree, found by bucket and key.
//! Invariants: Y1 of one key the entry has a larger sequence than every version row; an entry older than its bucket's
//!                versioning has 0, and no rows.
//!             Y2 a key without an entry has no version row, or the newest one is a delete marker.
//!             Y3 at most one version of a key is `null`; when it is a row, the null version row has its sequence.
//!             Y4 sequences are numbers of the volume's one space of numbers, so none is ever used twice. A commit that
//!                makes one asserts that no version row of its key has a larger one.
//!             Y5 directories have no versions, and none is renamed in a bucket that keeps them: a key's rows never move.
//! Not here:   what PUT and DELETE otherwise do (put_object, delete_object), locks (lock).

mod bucket_state;
mod delete_version;
mod displace;
mod expire_version;
mod find;
mod key_of;
mod list;
mod rows;

pub use self::expire_version::DueVersion;
