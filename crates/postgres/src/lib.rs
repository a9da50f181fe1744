//! Metadata in PostgreSQL: an engine that any number of processes share.
//!
//! Why:        a volume that has outgrown one machine keeps its rows where operators already know how to keep them: copies,
//!             fail-over, backups.
//! Example:    `PostgresEngine::open(&PostgresOptions { config: "host=/run/postgresql user=margay".into(), .. })`.
//! Invariants: P1 a commit is one call of a function, so no transaction waits for this process. It takes locks on keys in
//!                ascending order, so no two wait for each other: those that it writes alone, those that it asserts together.
//!             P2 the transaction gets its number, the version of its rows, when all locks are held: of two commits that meet,
//!                the later one has the larger number.
//!             P3 a commit goes through a lane, which has one at a time and counts them. What became of one whose answer was
//!                lost is asked through the lane's row, which waits until it has ended (`resolve_v2`).
//!                Callers that wait share its calls (`group`).
//!             P4 an answer with a warning, or none, is an unknown outcome: a cancelled wait for a standby succeeds with one.
//!             P5 of several hosts only the newest that takes writes is asked, and what it shows counts only while standbys
//!                confirm its commits (`trust`).
//! Locking:    none here is held over a call.
//! Durability: that of the server (`synchronous_commit`, which must be on): what is visible is durable.
//! Not here:   asking again (margay_meta::patient), sessions that are fenced.
//! Source:     the schema is `schema.sql`; docs/design/0034.

mod batch;
mod blocking;
mod check;
mod commit;
mod connection;
mod engine;
mod feed;
mod filling;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod hosts;
mod lane;
mod primary;
mod read;
mod scan;
mod single;
mod snapshot;
mod tasks;
mod timeline;
mod tls;
mod trust;

pub use check::{ServerSetting, Verdict};
pub use engine::{OpenError, Password, PostgresEngine, PostgresOptions};
pub use filling::{FillError, Filling};
