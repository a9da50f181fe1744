//! Background jobs of a server: expiry, notifications, access logs, reclaim and checks.
//!
//! Why:        where several processes share a volume, each job must run once; this crate holds them all.
//! Layout:     one module per job. A job is started with its dependencies, and ends when it is stopped or dropped.
//! Not here:   how a job changes data (margay-volume), lifecycle rules and messages (margay-s3).

pub mod access_log;
pub mod lifecycle;
pub mod notify;
pub mod reclaimer;
pub mod session_keeper;
