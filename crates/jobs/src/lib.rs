//! What a server does beside its requests: expiry, notifications, access logs, reclaim and checks.
//!
//! Why:        where many processes share a volume each of these must run once; here they stand together.
//! Layout:     one module for each job. A job is started with what it needs, and ends when it is stopped or dropped.
//! Not here:   what a job does to data (margay-volume), rules and messages (margay-s3).

pub mod access_log;
pub mod lifecycle;
pub mod notify;
pub mod reclaimer;
