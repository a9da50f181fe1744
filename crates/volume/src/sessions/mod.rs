//! Sessions: each open volume of a shared engine has a row that says that it lives, and takes others for dead by theirs.
//!
//! Why:        what one process alone may do (jobs), and what none may remove while another reads it, needs to be known
//!             of processes that stop, hang, or are away for an hour and come back.
//! Layout:     rows `j` (docs/format/keys.md). A number is one of the volume's numbers, so it is never used twice.
//! Invariants: S1 nobody is taken for dead by a clock: only who saw its beat stand still over `STILL_BEATS_MAX` of the own
//!                acknowledged beats may remove its row, and asserts that beat. Where the engine answers nobody, nobody is fenced.
//!             S2 a session without its row makes no commit once it knows: its next beat, or a batch under a lease, tells it.
//!             S3 an engine that is not shared has no rows of sessions and leases, and pays nothing.
//! Not here:   what is remembered (session_state), who calls `beat` and how often (the jobs).

mod beat;
mod lease;

pub use self::beat::{Beat, STILL_BEATS_MAX};
pub use self::lease::Lease;
