//! Sessions: each open volume of a shared engine has a row whose heartbeat shows others that it lives.
//!
//! Why:        jobs that must run once, and bytes that others may be reading, must survive processes that stop, hang,
//!             or pause for an hour and continue.
//! Layout:     rows `j` (docs/format/keys.md). A session's number is a number of the volume, so it is never used twice.
//! Invariants: S1 no clock declares a session dead: a process may remove the row only after its beat stood still over
//!                `STILL_BEATS_MAX` own acknowledged beats, and asserts that beat.
//!             S2 a session without its row commits nothing once it knows: from its next beat or leased batch.
//!             S3 an engine that is not shared has no rows of sessions and leases, and no cost.
//!             S4 a store's row names the session that has its folder open; while that one lives, no other process opens it.
//! Not here:   beats and the state in memory (session_state), the caller of `beat` and its period (the jobs).

mod file_locks;
mod known_identities;
mod lease;
mod lock_ranges;
mod mount_lease;
mod own;

pub(crate) use self::file_locks::{LockChange, LockChanged};
pub use self::known_identities::BehindSession;
pub use self::lease::Lease;
pub use self::mount_lease::MountHolder;
pub(crate) use self::mount_lease::MountWish;
