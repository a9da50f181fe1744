//! What a volume keeps in memory: rows, paths, facts of buckets.
//!
//! Why:        an operation that finds its rows here asks the engine nothing before its commit.
//! Invariants: nothing here decides: what a cache says is asserted by the commit, or is valid by the version of a row that the
//!             request has read.
//! Locking:    leaf locks; no engine is called under them.
//! Not here:   files that a mount knows (known), open ones (open_files).

mod bucket_facts;
mod bucket_states;
mod entry_hints;
mod followed;
mod fresh;
pub(crate) mod inos;
mod kept_rows;
mod path;
mod quota;

pub use self::bucket_facts::BucketFact;
pub(crate) use self::bucket_facts::BucketFacts;
pub(crate) use self::bucket_states::BucketState;
pub(crate) use self::entry_hints::{ACCESS_LIST, EntryHints, RowsFor};
pub(crate) use self::followed::FollowedFeed;
pub(crate) use self::fresh::Fresh;
pub(crate) use self::kept_rows::{KeptRows, RowChanges};
pub(crate) use self::path::{Path, PathCache, Step, split};
pub use self::quota::Quota;
