//! Ordered, transactional metadata: a small contract and its engines.
//!
//! Why:        the file system needs ordered rows, atomic batches with preconditions and a change feed, and nothing
//!             else; every engine (embedded, PostgreSQL) must pass the same contract tests.
//! Invariants: see `contract`.
//! Not here:   the meaning of keys and values (volume), payload files (segment).

pub mod contract;
pub mod counted;
pub mod distant;
pub mod embedded;
pub mod feed;
mod guards;
pub mod kind;
pub mod layer;
pub mod memory;
pub mod patient;
pub mod read;
mod timer;
pub mod unready;
pub mod unreliable;

pub use contract::*;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use embedded::fuzzing;
pub use feed::{Change, FEED_PAGE_BYTES_MAX, FeedError, FeedPage};
pub use kind::{RowKind, has_counters, is_plain};
pub use read::{Answers, Ask, ReadAnswer, ReadLimit, RowBatch};
