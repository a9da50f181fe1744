//! Ports for servers that a test starts, also again after a stop (as `tests/ports.py`).
//!
//! Why: a port that the kernel gives (port 0) is given to somebody else as soon as it is free. A server that is started again finds it
//!      taken, and clients that look for it meanwhile talk to the server of another test, which refuses their keys.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

/// Lower ones may belong to services of the machine.
const FIRST: u16 = 10_000;

/// Free now, and not one of those that connections and servers without a wish get.
pub(crate) fn free_port() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let behind: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    let first = FIRST.min(behind - 1000);
    loop {
        let random = RandomState::new().hash_one(first);
        let port = first + (random % u64::from(behind - first)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
