//! The program itself: command line, settings, data directory, listeners, and the wiring of all parts.
//!
//! Why:      the only package that names every crate; it contains no rules of the file system.
//! Not here: what an operation means (margay-volume), what a request means (margay-s3).

/// As std's, but what cannot be written panics nowhere, and a terminal gets no control characters (`margay_env::output`).
macro_rules! println {
    () => { margay_env::output::out(format_args!("\n")) };
    ($($words:tt)*) => { margay_env::output::out(format_args!("{}\n", format_args!($($words)*))) };
}
macro_rules! print {
    ($($words:tt)*) => { margay_env::output::out(format_args!($($words)*)) };
}
macro_rules! eprintln {
    () => { margay_env::output::error(format_args!("\n")) };
    ($($words:tt)*) => { margay_env::output::error(format_args!("{}\n", format_args!($($words)*))) };
}

pub mod admin;
pub mod administration;
pub mod adopt;
pub mod audit;
pub mod backup;
pub mod backup_location;
pub mod buckets;
pub mod checks;
pub mod cli;
pub mod connections;
pub mod console;
pub mod control;
pub mod datadir;
pub mod disks;
pub mod dump;
pub mod endpoint;
pub mod exit;
pub mod far_mount;
pub mod front;
pub mod fsck;
pub mod inventory;
pub mod load;
pub mod logging;
pub mod mounts;
pub mod open_files;
pub mod places;
pub mod pools;
pub mod probe;
pub mod process;
pub mod progress;
mod ready;
pub mod recover;
pub mod restore;
pub mod rows;
pub mod screen;
pub mod server;
pub mod settings;
pub mod spans;
pub mod trace;
pub mod version;
pub mod watching;
pub mod wiring;
pub mod works;
