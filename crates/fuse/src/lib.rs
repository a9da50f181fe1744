//! The POSIX door: the tree as a file system of this machine's kernel.
//!
//! Why:        it translates only; what an operation means is decided by `margay_volume::posix`.
//! Layout:     `session` speaks to the kernel (today over fuser), `protocol` is the seam, `operations` answer through
//!             the volume, `notifier` makes the kernel forget what other doors changed, `pruner` what it need not know.
//! Invariants: D1 no type of the transport crosses `protocol`, so that another transport changes no operation.
//!             D2 the root is number 1 in the kernel, whatever its number in the volume.
//!             D3 nothing is told to the kernel from inside a request.
//! Not here:   which mounts there are and who asked for them (the binary).

mod absent;
pub mod connections;
mod door;
pub mod errno;
mod handles;
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
