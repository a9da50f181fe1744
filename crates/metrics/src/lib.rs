//! What the server counts, and the page that Prometheus reads.
//!
//! Why:        jobs, the listener and the storage write their numbers on one page.
//! Layout:     `exposition` (the text), `requests` (counters and times of requests).
//! Not here:   where the page is served (the binary), numbers of a part (the part itself).

mod exposition;
mod requests;

pub use exposition::{Exposition, Kind};
pub use requests::{BUCKETS_US, Requests};
