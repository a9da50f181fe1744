//! A simulated world that crashes: workloads, models and checkers for the real code over a disk that forgets.
//!
//! Why:        a promise such as "nothing acknowledged is lost" is only worth what a checker has tried to break.
//! Layout:     `machine` is a disk with its faults and power cuts; `engine`, `volume` and `server` are the three layers
//!             that run on it; `ledger`, `client` and `verify` are the S3-side workload and its judge, which `kill`
//!             also turns on a real process that is killed again and again; `doors` changes one tree through S3 and
//!             through a mount and looks at it through both; `mirror` compares the mount with a directory;
//!             `setup` is what these three begin with.
//! Invariants: every failure names its seed. One seed gives one workload and one choice of what a power cut keeps;
//!             when the engine's own threads reach the disk is up to the scheduler, so a rare failure may take a few
//!             replays.
//! Not here:   anything that a release needs; nothing imports this crate.

pub mod blob;
pub mod client;
pub mod doors;
pub mod engine;
mod failure;
pub mod http;
pub mod kill;
pub mod ledger;
pub mod machine;
pub mod mirror;
mod process;
pub mod server;
pub mod setup;
pub mod soak;
pub mod target;
pub mod upkeep;
pub mod verify;
pub mod volume;

pub use failure::Failure;
