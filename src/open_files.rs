//! Raises the limit of file descriptors for the configured connections, or lowers the number of connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors reserved for everything but client connections.
const RESERVED: u64 = 1024;

/// Raises this process's limit as far as allowed; returns how many connections fit under it.
pub fn allow(connections_max: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections_max as u64 + RESERVED;
    let reachable = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let current = limit.current.unwrap_or(u64::MAX);
    let raised = if current < reachable {
        let raised = Rlimit { current: Some(reachable), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).map_or(current, |()| reachable)
    } else {
        current
    };
    let fits = usize::try_from(raised.saturating_sub(RESERVED).max(raised / 2)).unwrap_or(usize::MAX);
    if fits < connections_max {
        tracing::warn!(
            connections_max = fits,
            wanted = connections_max,
            "the limit of open files is too low for limits.connections_max; raise it (ulimit -n, LimitNOFILE=)"
        );
    }
    fits.min(connections_max)
}
