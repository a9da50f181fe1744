//! Ordered, transactional metadata: a small contract and its engines.
//!
//! Why:        the file system needs ordered rows, atomic batches with preconditions and a tail of changes, and
//!             nothing else; every engine (embedded, PostgreSQL) passes one contract test suite.
//! Invariants: see `contract`.
//! Not here:   what keys and values mean (volume), payload files (segment).

pub mod contract;
pub mod counted;
pub mod distant;
pub mod embedded;
pub mod feed;
pub mod memory;
pub mod patient;
pub mod read;
mod timer;
pub mod unreliable;

pub use contract::*;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use embedded::fuzzing;
pub use feed::{Change, FEED_PAGE_BYTES_MAX, FeedError, FeedPage};
pub use read::{Answers, Ask, ReadAnswer, ReadLimit, RowBatch};
