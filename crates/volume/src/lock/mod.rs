//! Object lock: what keeps a version from being removed or changed, and who decides.
//!
//! Why:        a record that must not vanish is as safe as the weakest door to it, so both doors ask here.
//! Invariants: O1 a version under a legal hold, or a retention whose time is not over, is not removed and not changed; a new
//!                version or a delete marker in its place leaves it as it is. Governance yields to who may bypass it.
//!             O2 locks are documents of the version's inode, so whoever asserts its row asserts them.
//!             O3 a bucket with object lock keeps versions, for ever.
//!             O4 the mount never bypasses: a locked current version is read-only there.
//! Not here:   their values (object_lock), who has the right to bypass (the S3 door).

mod change;
mod check;
mod configuration;
