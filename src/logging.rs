//! The server's log: structured lines on stderr.
//!
//! Why:      text for people, JSON for machines; chosen by whether stderr is a terminal, unless configured.
//! Not here: results of commands (stdout).

use std::io::{IsTerminal, stderr};
use std::str::FromStr;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;

/// Installs the process-wide subscriber; the first call wins.
pub fn start(level: &str, format: &str) -> Result<(), Failure> {
    let filter = Targets::from_str(level).map_err(|error| {
        Failure::usage(format!("log_level {level:?}: {error}; write info, debug, or TARGET=LEVEL,TARGET=LEVEL"))
    })?;
    let json = match format {
        "json" => true,
        "text" => false,
        _ => !stderr().is_terminal(),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let lines = if json { lines.json().flatten_event(true).boxed() } else { lines.boxed() };
    // A second start in one process (tests) keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    Ok(())
}
