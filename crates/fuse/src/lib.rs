//! The POSIX door: the tree as a file system mounted on this machine.
//!
//! Why:        this crate only translates; `margay_volume::posix` decides what an operation means.
//! Layout:     `session` talks to the kernel (today through fuser), `protocol` is the interface between session and
//!             operations, `operations` call the volume, `notifier` invalidates the kernel's caches when another door
//!             changes a file, `pruner` limits how many inodes the kernel knows.
//! Invariants: D1 no type of the transport crosses `protocol`, so another transport changes no operation.
//!             D2 the root is number 1 in the kernel, whatever its number in the volume.
//!             D3 no invalidation is sent from inside a request.

mod absent;
pub mod connections;
mod door;
pub mod errno;
mod handles;
pub mod holders;
pub mod metrics;
pub mod mount_point;
mod mounted;
pub mod names;
mod notifier;
mod operations;
pub mod protocol;
mod pruner;
mod remount;
pub mod session;
mod waiters;

pub use door::Ownership;
pub use mounted::{Mounted, MountedState};
pub use remount::remount;
pub use session::{MountError, Session, SessionOptions};
