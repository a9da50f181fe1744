//! A TCP proxy that makes a server far away: bytes come out as they came in, half the latency later each way.
//!
//! Why:        how a mount feels on a far S3 is decided by round trips, and nobody has a far S3 on his desk.
//! Invariants: L1 order and bytes are kept, and so is the end of each direction.
//!             L2 bytes on their way do not wait for each other: bandwidth stays, up to `ON_THE_WAY_BYTES_MAX` per latency.
//!             L3 opening a connection takes one round trip before its first byte leaves, as it does on a wire.
//! Not here:   loss and limits of bandwidth.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::error::BenchError;
use crate::target::Target;

/// Bytes of one read.
const PIECE_BYTES: usize = 64 << 10;
/// The most bytes on their way in one direction of one connection.
const ON_THE_WAY_BYTES_MAX: usize = 64 << 20;
/// For the next try after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A proxy on this machine; it ends with its handle, and cuts its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    ending: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Bytes on their way, and when they arrive.
struct Piece {
    due: Instant,
    bytes: Bytes,
    /// Room that is free again when they have arrived.
    _room: OwnedSemaphorePermit,
}

impl Proxy {
    /// A proxy before `host:port`, `latency` away: that much is added to every round trip.
    pub(crate) fn start(host: &str, port: u16, latency: Duration) -> Result<Proxy, BenchError> {
        let failed = |source| BenchError::File { path: "a proxy on 127.0.0.1".to_owned(), source };
        let runtime = crate::runtime()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let upstream: Arc<str> = match host.contains(':') {
            true => format!("[{host}]:{port}").into(),
            false => format!("{host}:{port}").into(),
        };
        let (ending, end) = oneshot::channel();
        // A thread of its own: measuring may block the one that starts it.
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(&listener, &upstream, latency) => {}
                    _ = end => {}
                }
            });
        });
        Ok(Proxy { address, ending: Some(ending), thread: Some(thread) })
    }
}

/// The server behind a new proxy, when there is to be one. https is refused: its certificate names the server.
pub(crate) fn before(
    target: Arc<Target>,
    latency: Option<Duration>,
) -> Result<(Arc<Target>, Option<Proxy>), BenchError> {
    let Some(latency) = latency else { return Ok((target, None)) };
    if target.tls.is_some() {
        return Err(BenchError::Usage("--latency works with http endpoints only".to_owned()));
    }
    let proxy = Proxy::start(&target.host, target.port, latency)?;
    Ok((Arc::new(target.at(proxy.address)), Some(proxy)))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.ending.take());
        if let Some(thread) = self.thread.take() {
            // A proxy that panicked has cut its connections, too.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, upstream: &Arc<str>, latency: Duration) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(tokio::spawn(forward(client, Arc::clone(upstream), latency))),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// One connection; it is closed towards the client when the server cannot be reached.
async fn forward(client: TcpStream, upstream: Arc<str>, latency: Duration) {
    let opened = Instant::now() + latency;
    let Ok(server) = TcpStream::connect(&*upstream).await else { return };
    if client.set_nodelay(true).is_err() || server.set_nodelay(true).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        direction(from_client, to_server, opened, latency / 2),
        direction(from_server, to_client, opened, latency / 2),
    );
}

/// Bytes that come before `opened` leave then.
async fn direction(from: OwnedReadHalf, to: OwnedWriteHalf, opened: Instant, delay: Duration) {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::join!(take(from, sender, opened, delay), deliver(to, receiver));
}

async fn take(mut from: OwnedReadHalf, sender: mpsc::UnboundedSender<Piece>, opened: Instant, delay: Duration) {
    let room = Arc::new(Semaphore::new(ON_THE_WAY_BYTES_MAX));
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(PIECE_BYTES);
        let read = from.read_buf(&mut buffer).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let due = Instant::now().max(opened) + delay;
        let bytes = buffer.split().freeze();
        let wanted = bytes.len().min(ON_THE_WAY_BYTES_MAX) as u32;
        let Ok(_room) = Arc::clone(&room).acquire_many_owned(wanted).await else { return };
        if sender.send(Piece { due, bytes, _room }).is_err() {
            return;
        }
    }
}

async fn deliver(mut to: OwnedWriteHalf, mut receiver: mpsc::UnboundedReceiver<Piece>) {
    while let Some(piece) = receiver.recv().await {
        tokio::time::sleep_until(piece.due).await;
        if to.write_all(&piece.bytes).await.is_err() {
            return;
        }
    }
    // Fails when the other side is gone, which is what it would say.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// Sends back what it gets, and ends when its input ends.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (mut read, mut write) = stream.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
            }
        });
        address
    }

    async fn exchange(address: SocketAddr, seed: u64) {
        let mut random = Rng::new(seed);
        let bytes: Vec<u8> = (0..300_000).map(|_| random.next() as u8).collect();
        let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
        let sent = bytes.clone();
        let sending = tokio::spawn(async move {
            let mut rest = sent.as_slice();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(1 + (random.next() % 20_000) as usize));
                write.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
                rest = after;
            }
            write.shutdown().await.unwrap();
        });
        let mut back = Vec::new();
        read.read_to_end(&mut back).await.unwrap();
        sending.await.unwrap();
        assert!(back == bytes, "{} of {} bytes", back.len(), bytes.len());
    }

    #[tokio::test]
    async fn order_bytes_and_ends_are_kept() {
        let server = echo().await;
        let proxy = Proxy::start("127.0.0.1", server.port(), Duration::from_millis(3)).unwrap();
        let all: Vec<_> = (0..20).map(|seed| tokio::spawn(exchange(proxy.address, seed))).collect();
        for one in all {
            one.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_round_trip_takes_the_latency_and_many_at_once_do_not_add_up() {
        const LATENCY: Duration = Duration::from_millis(100);
        let server = echo().await;
        let proxy = Proxy::start("127.0.0.1", server.port(), LATENCY).unwrap();
        let began = Instant::now();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        let mut byte = [7];
        stream.write_all(&byte).await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        assert!(began.elapsed() >= 2 * LATENCY, "one for opening, one for the byte: {:?}", began.elapsed());
        let began = Instant::now();
        let pieces = 200;
        for _ in 0..pieces {
            stream.write_all(&[7; 1000]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut back = vec![0; pieces * 1000];
        stream.read_exact(&mut back).await.unwrap();
        let took = began.elapsed();
        assert!(took >= LATENCY && took < LATENCY * pieces as u32 / 2, "{took:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_closes_the_connection() {
        let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let proxy = Proxy::start("127.0.0.1", gone.port(), Duration::from_millis(1)).unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        let mut rest = Vec::new();
        assert!(!matches!(stream.read_to_end(&mut rest).await, Ok(1..)));
    }
}
