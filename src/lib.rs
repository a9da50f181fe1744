//! The program itself: command line, settings, data directory, listeners, and the wiring of all parts.
//!
//! Why:      the only package that names every crate; it holds no rules of the file system.
//! Not here: what an operation means (margay-volume), what a request means (margay-s3).

pub mod access_log;
pub mod admin;
pub mod answer;
pub mod backup;
pub mod buckets;
pub mod checksum_line;
pub mod cli;
pub mod connections;
pub mod control;
pub mod datadir;
pub mod dump;
pub mod encryption_keys;
pub mod endpoint;
pub mod exit;
pub mod files;
pub mod front;
pub mod identities;
pub mod inventory;
pub mod keys;
pub mod lifecycle;
pub mod listener;
pub mod load;
pub mod logging;
pub mod maintenance;
pub mod metrics;
pub mod mounts;
pub mod notify;
pub mod open_files;
pub mod place;
pub mod probe;
pub mod progress;
pub mod provider_keys;
mod ready;
pub mod restore;
pub mod screen;
pub mod server;
pub mod settings;
pub mod tls;
pub mod wiring;
