//! A volume whose objects are also in a bucket of another store: what that bucket has, and what it does not have yet.
//!
//! Why:        a mount of a far bucket changes its local volume at once and sends the changes later, in an order that is safe
//!             at every instant, whatever crashes (docs/design/0029, 0030).
//! Layout:     `far` puts the parts together. `tracked` is the engine that the volume uses: it lists a directory before its
//!             rows are read, and notes changes. `bytes` reads objects, `evict` keeps the cache within its size, `pages` asks for listings, `list` enters one, `refresh` what differs from an
//!             older one, `plan` decides which requests are due, `send` makes them, `attributes`, `given`, `xattrs`, `packed` and `words` are the headers, `runtime` the
//!             threads. `opens` is how old what is opened may be. `backlog` says what is left (`below`: in one directory), `reason` why, `told` and `watch` tell the log. `silence` is a bucket that answers nobody, `refusal` one that refuses to be listed.
//! Invariants: F1 what is dirty is a row that is written in the batch of the change: a crash loses neither or both.
//! Not here:   requests (margay-client), the file system (margay-volume), mounting (margay-fuse).

mod attributes;
mod backlog;
mod below;
mod bytes;
mod evict;
pub mod far;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod given;
mod heads;
mod list;
mod opens;
mod packed;
mod pages;
mod patience;
pub mod plan;
pub mod reason;
mod refresh;
mod refusal;
mod runtime;
mod send;
mod silence;
mod told;
mod tracked;
mod watch;
mod words;
mod xattrs;

pub use self::backlog::{Backlog, Failing, at_rest, is_of_the_bucket};
pub use self::far::{CacheOptions, Far, FarOptions, Fsync};
pub use self::opens::{Opens, Ttl, Writers};
pub use self::patience::NotSent;
pub use self::send::PartSizes;
