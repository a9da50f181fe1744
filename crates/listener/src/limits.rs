//! Limits of connections and requests.
//!
//! Not here:   their names and defaults (the settings of the binary).

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    pub connections_max: usize,
    pub header_bytes_max: usize,
    pub header_time_max: Duration,
    pub idle_time_max: Duration,
    pub stall_time_max: Duration,
    /// Bytes per second; 0 means no minimum.
    pub body_rate_min: u64,
    pub streams_max: u32,
    /// Bytes of responses that clients have not read, over all connections.
    pub unread_bytes_max: u64,
    pub drain_time_max: Duration,
}
