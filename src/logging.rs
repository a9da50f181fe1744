//! The server's log: structured lines on stderr.
//!
//! Why:      text for people, JSON for machines; chosen by whether stderr is a terminal, unless configured.
//! Not here: results of commands (stdout).

use std::io::{IsTerminal, stderr};
use std::str::FromStr;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;

/// Installs the process-wide subscriber; the first call wins.
pub fn start(level: &str, format: &str) -> Result<(), Failure> {
    let filter = filter(level).map_err(|error| Failure::usage(format!("log_level {level:?}: {error}")))?;
    let json = match format {
        "json" => true,
        "text" => false,
        _ => !stderr().is_terminal(),
    };
    // A line that cannot be written is lost; to complain about it on the same stream would end the thread.
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    let lines = lines.log_internal_errors(false);
    let lines = if json { lines.json().flatten_event(true).boxed() } else { lines.boxed() };
    // A second start in one process (tests) keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    Ok(())
}

/// What is logged. Of a word that is no level the library makes a target, which then is the only one: `inof` would silence all.
fn filter(level: &str) -> Result<Targets, String> {
    const FORMS: &str = "write error, warn, info, debug, trace or off, or TARGET=LEVEL,TARGET=LEVEL";
    for word in level.split(',').map(str::trim) {
        let (target, name) = word.split_once('=').map_or((None, word), |(target, name)| (Some(target), name));
        if target == Some("") || LevelFilter::from_str(name).is_err() || name.is_empty() {
            return Err(format!("{name:?} is no level; {FORMS}"));
        }
    }
    Targets::from_str(level).map_err(|error| format!("{error}; {FORMS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_level_is_refused() {
        for right in ["info", "INFO", "off", "3", "warn,margay::access=debug", "margay_s3=trace, info"] {
            assert!(filter(right).is_ok(), "{right}");
        }
        for wrong in
            ["inof", "", "info,", "margay::access", "margay::access=debgu", "=info", "info,margay=", "info;debug"]
        {
            let error = filter(wrong).unwrap_err();
            assert!(error.contains("error, warn, info"), "{wrong}: {error}");
        }
    }
}
