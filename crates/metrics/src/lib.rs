//! Counters of the server, and the page that Prometheus reads.
//!
//! Why:        jobs, the listener and the storage write their values on one page.
//! Layout:     `exposition` (the text), `requests` (counters and latencies of requests).
//! Not here:   serving the page (the binary), the values of a component (the component).

mod exposition;
mod requests;

pub use exposition::{Exposition, Kind};
pub use requests::{BUCKETS_US, OperationCounts, Requests};
