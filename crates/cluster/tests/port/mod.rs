//! A store behind a port, and the rows by which others find it.

use std::sync::Arc;
use std::time::Duration;

use margay_cluster::StorePort;
use margay_listener::tls::Tls;
use margay_listener::{ConnectionLimits, Listener, Traffic};
use margay_meta::Write;
use margay_rows::record::{SessionRecord, StoreRecord};
use margay_rows::{Ino, key};
use margay_segment::{StoreIdentity, StoreNumber};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const SESSION: u64 = 11;
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections_max: 64,
    header_bytes_max: 32 << 10,
    header_time_max: Duration::from_secs(20),
    idle_time_max: Duration::from_secs(120),
    stall_time_max: Duration::from_secs(30),
    body_rate_min: 0,
    streams_max: 16,
    unread_bytes_max: 64 << 20,
    drain_time_max: Duration::from_secs(1),
};

/// The port, and its address.
pub(crate) fn serve(runtime: &Runtime, port: StorePort, tls: Option<Tls>) -> (Listener, String) {
    let listener = runtime.block_on(async {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Listener::start_tcp(socket, tls, Arc::new(port), Arc::new(Traffic::default()), LIMITS)
    });
    let address = listener.address.unwrap().to_string();
    (listener, address)
}

/// The rows of a store and of the session that has it open.
pub(crate) fn rows_of(store: StoreNumber, address: &str) -> Vec<Write> {
    let record = StoreRecord { identity: StoreIdentity([7; 16]), generation: 1, session: SESSION };
    let session = SessionRecord { address: address.to_owned(), ..SessionRecord::default() };
    vec![
        Write::Put { key: key::store(store), value: record.encode() },
        Write::Put { key: key::session(Ino(SESSION)), value: session.encode() },
    ]
}
