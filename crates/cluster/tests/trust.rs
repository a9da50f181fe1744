//! Who asks and who answers whom: with and without TLS, with another key, of before.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

mod port;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_cluster::{ClusterKey, HttpPeers, StorePort, StoreTls, store_port_tls};
use margay_env::Env;
use margay_listener::Listener;
use margay_listener::tls::Tls;
use margay_meta::memory::Memory;
use margay_meta::{Batch, Engine};
use margay_segment::{Extent, Options, RunLength, SegmentError, Segments, Store, StoreName, StoreNumber};
use margay_volume::Peers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

const STORE: StoreNumber = StoreNumber(3);

/// A store with a run, behind a port.
struct World {
    runtime: Runtime,
    folder: tempfile::TempDir,
    extent: Extent,
    address: String,
    _listener: Listener,
}

fn key_of(secret: &str) -> ClusterKey {
    ClusterKey::derive(secret.as_bytes())
}

/// The port as a server of before had it: it knows nothing of TLS.
fn without_tls() -> Option<Tls> {
    None
}

fn with_tls(secret: &str, tls: StoreTls) -> Option<Tls> {
    Some(store_port_tls(&key_of(secret), tls).unwrap())
}

/// Another program's TLS, with a certificate.
fn with_certificate() -> Option<Tls> {
    let file =
        |name: &str| -> PathBuf { Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tls").join(name) };
    Some(Tls::load(&Env::real(), file("first.pem"), file("first.key.pem")).unwrap())
}

impl World {
    fn new(secret: &str, tls: Option<Tls>) -> World {
        let (runtime, folder) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(Env::real(), Options::new(folder.path().join("store"))).unwrap();
        store.attach(StoreName { number: STORE, generation: 1, ..store.name() }).unwrap();
        let mut writer = store.begin(RunLength::Exact(5), b"owner").unwrap();
        writer.write(b"bytes").unwrap();
        let extent = Extent::whole(writer.end().unwrap());
        drop(writer);
        store.sync_blocking(extent.run.segment).unwrap();
        let (listener, address) = port::serve(&runtime, StorePort::new(store, key_of(secret)), tls);
        World { runtime, folder, extent, address, _listener: listener }
    }

    /// Reads the run as another process does that has this secret.
    fn ask(&self, secret: &str, tls: StoreTls) -> Result<bytes::Bytes, SegmentError> {
        let engine = Memory::new();
        let writes = port::rows_of(STORE, &self.address);
        engine.commit(Batch { writes, ..Batch::default() }).unwrap();
        let peers = HttpPeers::start(Arc::new(engine), key_of(secret), tls, None).unwrap();
        peers.store(STORE).unwrap().read(&self.extent, 0, 5)
    }

    /// What answers these bytes; empty: the connection is closed.
    fn told(&self, bytes: &[u8]) -> String {
        self.runtime.block_on(async {
            let mut stream = TcpStream::connect(&self.address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut told = Vec::new();
            // A reset says nothing either.
            let _ = stream.read_to_end(&mut told).await;
            String::from_utf8_lossy(&told).into_owned()
        })
    }
}

const ALL: [StoreTls; 3] = [StoreTls::Off, StoreTls::Preferred, StoreTls::Required];

#[test]
fn whoever_may_talk_does_and_nobody_else() {
    for answers in ALL {
        let world = World::new("volume", with_tls("volume", answers));
        assert!(world.folder.path().exists());
        for asks in ALL {
            let read = world.ask("volume", asks);
            let may = (asks, answers) != (StoreTls::Off, StoreTls::Required);
            assert_eq!(read.as_deref().ok(), may.then_some(&b"bytes"[..]), "{asks:?} asks {answers:?}: {read:?}");
        }
    }
}

#[test]
fn a_server_of_before_is_asked_and_asks_unless_nothing_goes_without() {
    let before = World::new("volume", without_tls());
    assert_eq!(before.ask("volume", StoreTls::Preferred).unwrap(), "bytes");
    assert!(matches!(before.ask("volume", StoreTls::Required), Err(SegmentError::Unreachable(..))));
    // What it asks is what is asked with `Off`.
    let now = World::new("volume", with_tls("volume", StoreTls::Preferred));
    assert_eq!(now.ask("volume", StoreTls::Off).unwrap(), "bytes");
}

#[test]
fn a_stranger_with_tls_gets_no_question_and_one_that_asks_gets_no_answer() {
    for stranger in [
        World::new("other", with_tls("other", StoreTls::Off)),
        World::new("other", with_tls("other", StoreTls::Required)),
        World::new("volume", with_certificate()),
        // The port would answer this question: what it proves before is not this volume's.
        World::new("volume", with_tls("other", StoreTls::Preferred)),
    ] {
        for asks in [StoreTls::Preferred, StoreTls::Required] {
            let read = stranger.ask("volume", asks);
            assert!(matches!(read, Err(SegmentError::Unreachable(..))), "{asks:?}: {read:?}");
        }
    }
    let without = World::new("other", without_tls());
    assert!(matches!(without.ask("volume", StoreTls::Preferred), Err(SegmentError::Unreachable(..))), "the signature");
}

#[test]
fn where_nothing_goes_without_tls_whoever_asks_without_is_told() {
    let world = World::new("volume", with_tls("volume", StoreTls::Required));
    let told = world.told(b"POST /store HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 403 ") && told.contains("store_tls=require"), "{told}");
    assert_eq!(told.lines().filter(|line| line.contains("store_tls")).count(), 1);
    // No handshake, and no request.
    assert!(!world.told(&[22, 3, 1, 0, 5, 1, 2, 3, 4, 5]).contains("HTTP"));
    assert_eq!(world.ask("volume", StoreTls::Required).unwrap(), "bytes", "it goes on");
}
