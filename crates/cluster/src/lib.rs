//! The processes of a volume that several machines serve: each reads what another one has stored.
//!
//! Why:        a process writes to the disk of its own machine only, and every other one answers with those bytes too.
//! Layout:     `question` is what is asked and how it is signed, `port` answers, `peers` asks, `store` is one of them, `tls` encrypts, `copies` keeps what this process stores at
//!             other ones too, `pools` are buckets of other S3 stores.
//! Invariants: P1 nothing but copies can be changed through the port, and those of own segments not: a question that is sent again
//!                does no harm, since a segment's bytes never change and its number is never used again.
//!             P2 a question without the key of the volume's processes is refused before it is read.
//!             P3 a store that does not answer is unreachable, never empty.
//! Not here:   who is alive and which store is whose (margay-volume).

mod copies;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hedge;
mod key;
mod peers;
mod pools;
mod port;
mod question;
mod store;
mod tls;

pub use copies::{CopyStatistics, HttpCopies, Mended, Ordered};
pub use key::ClusterKey;
pub use peers::HttpPeers;
pub use pools::PoolBuckets;
pub use port::StorePort;
pub use question::PATH;
pub use tls::{StoreTls, store_port_tls};
