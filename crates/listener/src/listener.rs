//! Accepts connections within limits, and drains them when the server stops.
//!
//! Why:        slow, idle or too many clients cost little and never slow down others.
//! Invariants: L1 at most `connections_max` connections are served; a further one takes the place of one that is idle, or is answered
//!                `503 SlowDown`.
//!             L2 after `stop` no request begins; running ones get the drain time.
//!             L3 responses that clients do not read hold at most `unread_bytes_max` in total, plus one piece per
//!                reader.
//! Not here:   TLS files (`tls`), single connections (`connection`), what requests mean (the handler).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::handler::{Handler, Shared};
use crate::idle::Idle;
use crate::tls::{Beginning, Tls};
use crate::unread::Unread;
use crate::wire::Stream;
use crate::{BindError, ConnectionLimits, Traffic, connection};

/// Connections that the kernel queues before they are accepted.
const BACKLOG: u32 = 4096;
/// Clients that are sent `503` at once because the limit of connections is reached.
const REFUSALS_MAX: usize = 64;
/// How long a new connection waits for the place of one that was told to end.
const PLACE_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause after a failed accept (most likely no file descriptors are left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that accepts until it is stopped.
pub struct Listener {
    /// The local address, with the port that the system chose when 0 was requested.
    pub address: Option<SocketAddr>,
    places: Arc<Semaphore>,
    places_max: u32,
    stop: watch::Sender<bool>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Listener({:?})", self.address)
    }
}

/// Binds the address, so that an occupied port is reported before anything else happens.
pub async fn bind(address: &str, flag: &str) -> Result<TcpListener, BindError> {
    let remedy = |error: &io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            let port = address.rsplit(':').next().unwrap_or(address);
            format!(
                "stop the program that uses it (`ss -ltnp 'sport = :{port}'` names it), or choose another with {flag} HOST:PORT"
            )
        }
        io::ErrorKind::PermissionDenied => format!("ports below 1024 need root; choose another with {flag} HOST:PORT"),
        _ => format!("choose an address of this machine with {flag} HOST:PORT"),
    };
    let fail = |error: io::Error| BindError { address: address.to_owned(), remedy: remedy(&error), source: error };
    let target = lookup_host(address).await.map_err(fail)?.next();
    let target = target.ok_or_else(|| fail(io::ErrorKind::AddrNotAvailable.into()))?;
    let open = || {
        let socket = if target.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(target)?;
        socket.listen(BACKLOG)
    };
    open().map_err(fail)
}

impl Listener {
    /// Starts to accept TCP connections, with TLS if given.
    pub fn start_tcp(
        socket: TcpListener,
        tls: Option<Tls>,
        handler: Arc<dyn Handler>,
        traffic: Arc<Traffic>,
        limits: ConnectionLimits,
    ) -> Listener {
        let address = socket.local_addr().ok();
        let (listener, shared, stopped) = Listener::new(address, handler, traffic, limits);
        let places = Arc::clone(&listener.places);
        tokio::spawn(accept_tcp(socket, tls, shared, places, stopped));
        listener
    }

    /// Starts to accept on a Unix socket.
    pub fn start_unix(
        socket: UnixListener,
        handler: Arc<dyn Handler>,
        traffic: Arc<Traffic>,
        limits: ConnectionLimits,
    ) -> Listener {
        let (listener, shared, stopped) = Listener::new(None, handler, traffic, limits);
        let places = Arc::clone(&listener.places);
        tokio::spawn(accept_unix(socket, shared, places, stopped));
        listener
    }

    fn new(
        address: Option<SocketAddr>,
        handler: Arc<dyn Handler>,
        traffic: Arc<Traffic>,
        limits: ConnectionLimits,
    ) -> (Listener, Arc<Shared>, watch::Receiver<bool>) {
        let places_max = u32::try_from(limits.connections_max).unwrap_or(u32::MAX);
        let places = Arc::new(Semaphore::new(limits.connections_max));
        let (stop, stopped) = watch::channel(false);
        let listener = Listener { address, places, places_max, stop };
        let unread = Unread::new(limits.unread_bytes_max, Arc::clone(&traffic));
        (listener, Arc::new(Shared { handler, traffic, limits, unread, idle: Idle::default() }), stopped)
    }

    /// Stops accepting and waits until every connection has ended; `false` when `drain_time_max` ran out first.
    pub async fn stop(&self, drain_time_max: Duration) -> bool {
        self.stop.send_replace(true);
        timeout(drain_time_max, self.places.acquire_many(self.places_max)).await.is_ok()
    }
}

async fn accept_tcp(
    socket: TcpListener,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        // Without Nagle's algorithm: a small response must not wait for an acknowledgement. A failure only costs that
        // delay.
        let _ = stream.set_nodelay(true);
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                let (tls, shared, stop) = (tls.clone(), Arc::clone(&shared), stop.clone());
                tokio::spawn(serve_tcp(stream, peer, tls, shared, stop, place));
            }
            // Its end is waited for apart, so that others are accepted meanwhile.
            Err(_) if shared.idle.end_one() => {
                let places = Arc::clone(&places);
                let (tls, shared, stop) = (tls.clone(), Arc::clone(&shared), stop.clone());
                tokio::spawn(async move {
                    match timeout(PLACE_TIME_MAX, places.acquire_owned()).await {
                        Ok(Ok(place)) => serve_tcp(stream, peer, tls, shared, stop, place).await,
                        Ok(Err(_)) | Err(_) => {
                            shared.traffic.refused();
                            if tls.is_none() {
                                refuse(stream).await;
                            }
                        }
                    }
                });
            }
            Err(_) => {
                shared.traffic.refused();
                // A TLS client cannot be answered before the handshake; past this many refusals, clients wait in the
                // kernel's queue.
                if tls.is_none()
                    && let Ok(place) = Arc::clone(&refusals).acquire_owned().await
                {
                    tokio::spawn(async move {
                        refuse(stream).await;
                        drop(place);
                    });
                }
            }
        }
    }
}

async fn serve_tcp(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    let _open = shared.traffic.opened();
    let stream = match tls {
        None => Stream::Tcp(stream),
        Some(tls) => match timeout(shared.limits.header_time_max, begin_tls(stream, peer, &tls)).await {
            Ok(Some(stream)) => stream,
            Ok(None) | Err(_) => return,
        },
    };
    connection::serve(stream, Some(peer), shared, stop).await;
}

/// `None`: the connection has ended.
async fn begin_tls(stream: TcpStream, peer: SocketAddr, tls: &Tls) -> Option<Stream> {
    match tls.beginning(&stream).await {
        Ok(Beginning::Tls) => {}
        Ok(Beginning::Served) => return Some(Stream::Tcp(stream)),
        Ok(Beginning::Told(answer)) => {
            tell(stream, &answer).await;
            return None;
        }
        Err(_) => return None,
    }
    match tls.accept(stream, peer).await {
        Ok(stream) => Some(Stream::Tls(Box::new(stream))),
        Err(error) => {
            tracing::debug!(target: "margay::listener", %peer, %error, "TLS handshake failed");
            None
        }
    }
}

async fn accept_unix(
    socket: UnixListener,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                let (shared, stop) = (Arc::clone(&shared), stop.clone());
                tokio::spawn(async move {
                    connection::serve(Stream::Unix(stream), None, shared, stop).await;
                    drop(place);
                });
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

async fn pause_after(error: &io::Error) {
    // A client that disconnected before it was accepted is not reported.
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tracing::warn!(target: "margay::listener", %error, "cannot accept a connection; raise the limit of open files (ulimit -n)");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Tells a client in S3's words that the limit of connections is reached.
async fn refuse(stream: TcpStream) {
    const BODY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code>\
        <Message>Too many connections. Please reduce your request rate.</Message></Error>";
    let answer = format!(
        "HTTP/1.1 503 Slow Down\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nretry-after: 1\r\n\
         connection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    tell(stream, answer.as_bytes()).await;
}

/// Sends an answer to a request that is not read.
async fn tell(mut stream: TcpStream, answer: &[u8]) {
    let tell = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let mut scratch = [0; 1024];
        while stream.read(&mut scratch).await? > 0 {}
        io::Result::Ok(())
    };
    // The client may be gone or slow; one second is enough for either.
    let _ = timeout(Duration::from_secs(1), tell).await;
}
