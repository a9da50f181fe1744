//! A volume whose objects are also in a bucket of another store: what that bucket has, and what it does not have yet.
//!
//! Why:        a mount of a far bucket changes its local volume at once and sends the changes later, in an order that is safe
//!             at every instant, whatever crashes (docs/design/0029).
//! Layout:     `plan` decides which requests are due.
//! Not here:   requests themselves (margay-client), rows and bytes of the local volume (margay-volume). No I/O.

pub mod plan;
