//! One connection, from its first byte to its last.
//!
//! Why:        an idle connection costs its socket and this small task, but no buffers. So ten thousand idle clients
//!             fit into a few MiB (the HTTP library alone would hold 16 KiB for each).
//! Invariants: C1 a parked connection has given back every byte that was read ahead.
//!             C2 a connection is closed only when it is idle, except on errors, limits and the end of the drain. One that is idle
//!                also ends when another needs its place (`idle`).
//! Not here:   accepting and counting connections (`listener`), what requests mean (the handler).

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::body::{RequestBody, RunningBody};
use crate::handler::Shared;
use crate::pulse::Pulse;
use crate::unread::Backlog;
use crate::wire::{Stream, Wire};

/// An idle connection keeps its buffers for this long: long enough for a client that sends one request after the other,
/// short enough that a burst of ten thousand connections never holds buffers for all of them at once.
const PARK_AFTER: Duration = Duration::from_millis(100);
/// Memory that the HTTP/1 library uses for one busy connection, in bytes.
const HTTP1_BUFFER_BYTES: usize = 256 * 1024;
/// After the last response, unread request bytes are received up to this size and for this long, so that the client can
/// read the response.
const LINGER_BYTES_MAX: usize = 1024 * 1024;
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// HTTP/2 flow-control windows, in bytes: what a client may send before the handler has taken it.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// An HTTP/2 client with prior knowledge begins with these bytes; no HTTP/1 method does.
const HTTP2_BEGINNING: &[u8; 4] = b"PRI ";

/// Answers the requests of one connection: the handler, with the connection's limits around each body.
#[derive(Clone)]
struct Service {
    shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    backlog: Arc<Backlog>,
    peer: Option<SocketAddr>,
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response<RunningBody>;
    type Error = Infallible;
    // Boxed when called, so that an idle connection does not hold room for it.
    type Future = Pin<Box<dyn Future<Output = Result<Response<RunningBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // Only HTTP/2 can discard the bytes of a cancelled response while its connection goes on.
        if request.version() == http::Version::HTTP_2 && self.pulse.resting().is_some() {
            self.backlog.rests();
        }
        let running = self.pulse.begin(&self.shared.traffic);
        let ends = ends_with_its_answer(&request);
        let limits = self.shared.limits;
        let request = request.map(|body| RequestBody::new(body, limits.stall_time_max, limits.body_rate_min));
        let answer = self.shared.handler.handle(request, self.peer);
        let (shared, backlog) = (Arc::clone(&self.shared), Arc::clone(&self.backlog));
        Box::pin(async move {
            if !shared.unread.has_room() {
                // Boxed: it is rarely needed, and otherwise every request would hold room for it.
                Box::pin(shared.unread.room()).await;
            }
            let mut answer = answer.await;
            if ends {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer.map(|body| RunningBody::new(body, &shared.unread, &backlog, running)))
        })
    }
}

/// Whether the connection closes after the response to this request: one that expects `100 Continue` before an empty
/// body.
///
/// The HTTP library answers such a request at once, as HTTP allows. The AWS SDK for Python up to botocore 1.43, and so
/// the AWS CLI, then takes the next response on the connection for one without a length and waits for the connection to
/// close: `aws s3 sync` of a tree with an empty file hung until a timeout.
fn ends_with_its_answer(request: &Request<Incoming>) -> bool {
    request.version() == http::Version::HTTP_11
        && request.body().is_end_stream()
        && request
            .headers()
            .get(header::EXPECT)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Serves a connection until it ends, is idle too long, or the listener stops.
pub(crate) async fn serve(
    stream: Stream,
    peer: Option<SocketAddr>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let pulse = Pulse::start();
    let http2 = stream.negotiated_http2();
    let known = shared.unread.connection();
    let (traffic, backlog) = (Arc::clone(&shared.traffic), Arc::clone(&known.backlog));
    let mut wire = Wire::new(stream, Arc::clone(&pulse), traffic, shared.limits.stall_time_max, Arc::clone(&backlog));
    let service = Service { shared: Arc::clone(&shared), pulse, backlog, peer };
    let mut first = true;
    loop {
        // The first bytes are waited for below, where they tell the protocol: after a TLS handshake they may already be in
        // the TLS library's buffer.
        if !first && !wire.has_ahead() {
            tokio::select! {
                ready = shared.idle.until(timeout(shared.limits.idle_time_max, wire.stream().readable())) => {
                    if !matches!(ready, Some(Ok(Ok(())))) { return }
                }
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
        let use_http2 = if first && !http2 {
            tokio::select! {
                found = shared.idle.until(begins_http2(&mut wire, shared.limits.header_time_max)) => match found.flatten() {
                    Some(found) => found,
                    None => return,
                },
                _ = stop.wait_for(|stop| *stop) => return,
            }
        } else {
            http2
        };
        first = false;
        let busy = Box::pin(async {
            if use_http2 {
                serve_http2(wire, service.clone(), stop.clone()).await;
                None
            } else {
                serve_http1(wire, service.clone(), stop.clone()).await
            }
        });
        let again = tokio::select! {
            again = busy => again,
            () = known.backlog.closing() => None,
        };
        match again {
            Some(parked) => wire = parked,
            None => return,
        }
    }
}

/// Reads as few bytes as distinguish HTTP/1 from HTTP/2 and gives them back; `None` when they do not arrive in time.
async fn begins_http2(wire: &mut Wire, limit: Duration) -> Option<bool> {
    let mut bytes = [0; HTTP2_BEGINNING.len()];
    let mut count = 0;
    let read = async {
        while count < bytes.len() && bytes[..count] == HTTP2_BEGINNING[..count] {
            match wire.read(&mut bytes[count..]).await? {
                0 => break,
                more => count += more,
            }
        }
        io::Result::Ok(())
    };
    let in_time = matches!(timeout(limit, read).await, Ok(Ok(())));
    if !in_time || count == 0 {
        return None;
    }
    wire.give_back(Bytes::copy_from_slice(&bytes[..count]));
    Some(&bytes == HTTP2_BEGINNING)
}

/// Serves requests until the connection ends (`None`) or is idle: then the wire comes back without buffers.
async fn serve_http1(wire: Wire, service: Service, mut stop: watch::Receiver<bool>) -> Option<Wire> {
    let limits = service.shared.limits;
    let pulse = Arc::clone(&service.pulse);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time_max)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(HTTP1_BUFFER_BYTES.max(limits.header_bytes_max))
        .half_close(false);
    let mut connection = builder.serve_connection(TokioIo::new(wire), service);
    let mut parking = false;
    let mut stopping = false;
    let result = loop {
        tokio::select! {
            result = std::future::poll_fn(|context| connection.poll_without_shutdown(context)) => break result,
            () = sleep(PARK_AFTER), if !parking => {
                if pulse.silent().is_some_and(|rest| rest >= PARK_AFTER) {
                    parking = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
            }
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                parking = false;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let parts = connection.into_parts();
    let mut wire = parts.io.into_inner();
    match result {
        Ok(()) if parking && !*stop.borrow() => {
            if !parts.read_buf.is_empty() {
                wire.give_back(parts.read_buf);
            }
            Some(wire)
        }
        Ok(()) => {
            linger(wire).await;
            None
        }
        Err(error) => {
            tracing::debug!(target: "margay::listener", %error, "connection ended by an error");
            // The library may have sent an error response (400, 431) before it gave up.
            linger(wire).await;
            None
        }
    }
}

/// Closes our side and receives for a moment what the client still sends: a reset would destroy our last response.
async fn linger(mut wire: Wire) {
    let ending = async {
        wire.shutdown().await?;
        let mut scratch = vec![0; 16 * 1024];
        let mut taken = 0;
        while taken < LINGER_BYTES_MAX {
            match wire.read(&mut scratch).await? {
                0 => break,
                count => taken += count,
            }
        }
        io::Result::Ok(())
    };
    // Whatever goes wrong here, the connection ends.
    let _ = timeout(LINGER_TIME_MAX, ending).await;
}

async fn serve_http2(wire: Wire, service: Service, mut stop: watch::Receiver<bool>) {
    let limits = service.shared.limits;
    let pulse = Arc::clone(&service.pulse);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(limits.stall_time_max)
        .keep_alive_timeout(limits.stall_time_max);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(wire), service));
    let mut ending = false;
    loop {
        let rest_max = if pulse.asked() { limits.idle_time_max } else { limits.header_time_max };
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(target: "margay::listener", %error, "connection ended by an error");
                }
                return;
            }
            () = sleep(rest_max) => {
                if pulse.resting().is_some_and(|rest| rest >= rest_max) {
                    // The library has no timeout for a client that never finishes its preface or its shutdown.
                    if ending || !pulse.asked() {
                        return;
                    }
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
            _ = stop.wait_for(|stop| *stop), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
