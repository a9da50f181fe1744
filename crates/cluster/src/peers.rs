//! The stores of other processes, over HTTP.
//!
//! Invariants: H1 where a store is reached is read from the rows, and again after any failure: its process may have another
//!                address by now, or another process may have its folder.
//!             H2 bytes are given on only if their checksum is that of the answer. The store has checked them against its own.
//! Locking:    leaf locks; none is held while somebody waits for an answer.
//! Not here:   what is asked of a store (store), which store has a segment (margay-volume), answers (port).

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use margay_meta::Engine;
use margay_segment::{SegmentError, SegmentId, StoreNumber};
use margay_volume::{StorePlace, store_place};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use crate::key::ClusterKey;
use crate::pools::{PoolBuckets, Pools};
use crate::question::{
    BYTES_SIGNATURE, CHECKSUM, CORRUPT, FAILURE, MISSING, OTHER_STORE, PATH, QUESTION, Question, READ_BYTES_MAX,
    REFUSED, SIGNATURE, What,
};
use crate::tls::{Connection, Connector, KeyPair, NoTls, StoreTls};

/// Threads that wait for answers.
const THREADS: usize = 2;
/// A process that takes no connection within this time is not there.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// Others are asked before a store that did not answer, for so long.
const DOUBTED_FOR: Duration = Duration::from_secs(10);
/// A store that is not reached is told of at most so often.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// How often one question is asked: a connection may have ended, or the store may have moved.
const TRIES_MAX: usize = 3;
/// Connections to one store that are kept while nobody uses them.
const IDLE_MAX: usize = 64;

/// All stores of other processes.
#[derive(Debug)]
pub struct HttpPeers(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    key: ClusterKey,
    /// By store: when it was told last that it is not reached, and how often not since.
    told: Mutex<HashMap<StoreNumber, (Option<Instant>, u64)>>,
    /// When it did not answer, unless it has since.
    doubted: Mutex<HashMap<StoreNumber, Instant>>,
    places: Mutex<HashMap<StoreNumber, Arc<Place>>>,
    /// `None`: without TLS.
    connector: Option<Connector>,
    tls: StoreTls,
    /// Stores that speak no TLS; each is told of once.
    without_tls: Mutex<HashSet<StoreNumber>>,
    pub(crate) pools: Arc<Pools>,
    /// Taken at the end, which does not wait for answers.
    runtime: Option<Runtime>,
}

/// A store at its address.
struct Place {
    of: StorePlace,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// Why there is no answer that counts.
#[derive(Debug)]
enum NoAnswer {
    /// Its process cannot be reached, or is another one: its store may have moved.
    NotThere(String),
    /// It took the question, and is silent.
    Silent,
    Segment(SegmentError),
}

impl Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Place({:?})", self.of)
    }
}

impl HttpPeers {
    /// `engine`: the rows of the volume, which say where stores are. `buckets` opens pools.
    pub fn start(
        engine: Arc<dyn Engine>,
        key: ClusterKey,
        tls: StoreTls,
        buckets: Option<Arc<dyn PoolBuckets>>,
    ) -> io::Result<HttpPeers> {
        let connector = match tls {
            StoreTls::Off => None,
            StoreTls::Preferred | StoreTls::Required => Some(KeyPair::of(&key)?.connector()?),
        };
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("peers").enable_all().build()?;
        Ok(HttpPeers(Arc::new(Shared {
            engine,
            key,
            told: Mutex::default(),
            doubted: Mutex::default(),
            places: Mutex::default(),
            connector,
            tls,
            without_tls: Mutex::default(),
            pools: Arc::new(Pools::new(buckets, runtime.handle().clone())),
            runtime: Some(runtime),
        })))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Shared {
    /// `None`: no process has the store open.
    fn place(&self, number: StoreNumber) -> Result<Option<Arc<Place>>, SegmentError> {
        if let Some(place) = self.places.lock().get(&number) {
            return Ok(Some(Arc::clone(place)));
        }
        let failed = |error: margay_volume::Error| SegmentError::Io(io::Error::other(error.to_string()));
        let Some(of) = store_place(&*self.engine, number).map_err(failed)? else { return Ok(None) };
        let place = Arc::new(Place { of, idle: Mutex::default() });
        Ok(Some(Arc::clone(self.places.lock().entry(number).or_insert(place))))
    }

    fn forget(&self, number: StoreNumber, place: &Arc<Place>) {
        let mut places = self.places.lock();
        if places.get(&number).is_some_and(|known| Arc::ptr_eq(known, place)) {
            places.remove(&number);
        }
    }

    /// As `place`, which waits for the rows.
    async fn place_apart(self: &Arc<Shared>, number: StoreNumber) -> Result<Option<Arc<Place>>, SegmentError> {
        if let Some(place) = self.places.lock().get(&number) {
            return Ok(Some(Arc::clone(place)));
        }
        let shared = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || shared.place(number)).await;
        read.unwrap_or_else(|error| Err(SegmentError::Io(io::Error::other(error))))
    }

    /// Asks a store until it answers.
    pub(crate) async fn ask(
        self: &Arc<Shared>,
        number: StoreNumber,
        what: What,
        time_max: Duration,
    ) -> Result<Bytes, SegmentError> {
        self.ask_with(number, what, Vec::new(), time_max).await
    }

    /// As `ask`, with the bytes that the question sends.
    pub(crate) async fn ask_with(
        self: &Arc<Shared>,
        number: StoreNumber,
        what: What,
        bytes: Vec<u8>,
        time_max: Duration,
    ) -> Result<Bytes, SegmentError> {
        assert_eq!(bytes.len() as u64, what.bytes_behind(), "a question says how many bytes it sends");
        let id = what.segment();
        let signed = Signed::new(&self.key, Question { store: number, what }, bytes);
        let mut why = "no process has it open".to_owned();
        for _ in 0..TRIES_MAX {
            let place = match self.place_apart(number).await {
                Ok(Some(place)) => place,
                Ok(None) => break,
                // Where it is stands in the rows.
                Err(error) => {
                    why = error.to_string();
                    break;
                }
            };
            let answer = match timeout(time_max, self.send(number, &place, &signed)).await {
                Ok(answer) => answer.map_err(NoAnswer::NotThere),
                Err(_) => Err(NoAnswer::Silent),
            };
            match answer.and_then(|answer| checked(what, answer)) {
                Ok(bytes) => {
                    self.doubted.lock().remove(&number);
                    return Ok(bytes);
                }
                Err(NoAnswer::Segment(error)) => return Err(error),
                Err(NoAnswer::NotThere(said)) => {
                    self.forget(number, &place);
                    why = format!("{}: {said}", place.of.address);
                }
                Err(NoAnswer::Silent) => {
                    self.forget(number, &place);
                    why = format!("{}: no answer within {} ms", place.of.address, time_max.as_millis());
                    break;
                }
            }
        }
        self.doubted.lock().insert(number, Instant::now());
        self.tell_unreachable(number, id, &why);
        Err(SegmentError::Unreachable(id, number))
    }

    /// It did not answer a moment ago.
    pub(crate) fn is_doubted(&self, number: StoreNumber) -> bool {
        self.doubted.lock().get(&number).is_some_and(|at| at.elapsed() < DOUBTED_FOR)
    }

    /// A line in the log for each store that is not reached, and not for each request that it fails.
    fn tell_unreachable(&self, number: StoreNumber, id: SegmentId, why: &str) {
        let mut told = self.told.lock();
        let (at, left_out) = told.entry(number).or_insert((None, 0));
        if at.is_some_and(|at: Instant| at.elapsed() < TOLD_EVERY) {
            *left_out += 1;
            return;
        }
        tracing::warn!(store = number.0, segment = id.0, why, left_out, "the store of another process is not reached");
        (*at, *left_out) = (Some(Instant::now()), 0);
    }

    /// Lets a task run on the threads of answers.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.as_ref().expect("it ends with its last owner").spawn(task));
    }

    /// Blocks this thread, not those of the answers.
    pub(crate) fn block<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().expect("it ends with its last owner");
        runtime.spawn(async move { drop(sender.send(task.await)) });
        receiver.recv().ok()
    }
}

/// What is sent to ask a question.
#[derive(Debug)]
struct Signed {
    question: String,
    signature: String,
    bytes: Bytes,
    bytes_signature: Option<String>,
}

impl Signed {
    fn new(key: &ClusterKey, question: Question, bytes: Vec<u8>) -> Signed {
        let digits = base16ct::lower::encode_string;
        let question = question.encode();
        let bytes_signature = (!bytes.is_empty()).then(|| digits(&key.of_bytes(&question).sign(&bytes)));
        let signature = digits(&key.sign(&question));
        Signed { question: digits(&question), signature, bytes: bytes.into(), bytes_signature }
    }
}

impl Shared {
    /// A new connection to where the store is.
    async fn connect(&self, number: StoreNumber, place: &Place) -> Result<SendRequest<Full<Bytes>>, String> {
        let Some(connector) = &self.connector else { return begin(place.reach().await?).await };
        let address = &place.of.address;
        let protected = timeout(CONNECT_TIME_MAX, connector.connect(place.reach().await?)).await;
        match protected.map_err(|_| format!("{address} does not answer the beginning of TLS"))? {
            Ok(stream) => {
                self.without_tls.lock().remove(&number);
                begin(stream).await
            }
            Err(NoTls::NotSpoken(_)) if self.tls == StoreTls::Preferred => {
                if self.without_tls.lock().insert(number) {
                    tracing::info!(store = number.0, address, "the store speaks no TLS: it is asked without");
                }
                begin(place.reach().await?).await
            }
            Err(NoTls::NotSpoken(why)) => {
                Err(format!("it speaks no TLS, and store_tls=require asks nobody without ({why})"))
            }
            Err(NoTls::Failed(why)) => Err(why),
        }
    }

    async fn send(&self, number: StoreNumber, place: &Place, signed: &Signed) -> Result<Response<Bytes>, String> {
        let mut connection = match place.idle().await {
            Some(idle) => idle,
            None => self.connect(number, place).await?,
        };
        let mut request = Request::post(PATH).header(header::HOST, &place.of.address);
        request = request.header(QUESTION, &signed.question).header(SIGNATURE, &signed.signature);
        if let Some(signature) = &signed.bytes_signature {
            request = request.header(BYTES_SIGNATURE, signature);
        }
        let request = request.body(Full::new(signed.bytes.clone())).map_err(|error| error.to_string())?;
        let response = connection.send_request(request).await.map_err(|error| said_by(&error))?;
        let (parts, body): (_, Incoming) = response.into_parts();
        let body = Limited::new(body, READ_BYTES_MAX as usize).collect().await.map_err(|error| error.to_string())?;
        let mut idle = place.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(Response::from_parts(parts, body.to_bytes()))
    }
}

/// With its reason, which may be that of TLS.
fn said_by(error: &hyper::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

async fn begin(stream: impl Connection + 'static) -> Result<SendRequest<Full<Bytes>>, String> {
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends with the connection; its error reaches the request in flight.
    tokio::spawn(async move { drop(driver.await) });
    Ok(sender)
}

impl Place {
    /// A connection that waits for questions.
    async fn idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        loop {
            let idle = self.idle.lock().pop();
            let mut idle = idle?;
            if idle.ready().await.is_ok() {
                return Some(idle);
            }
        }
    }

    async fn reach(&self) -> Result<TcpStream, String> {
        let address = &self.of.address;
        let stream = timeout(CONNECT_TIME_MAX, TcpStream::connect(address));
        let stream = stream.await.map_err(|_| format!("{address} takes no connection"))?;
        let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        stream.map_err(|error| format!("{address}: {error}"))
    }
}

/// The bytes of an answer.
fn checked(what: What, answer: Response<Bytes>) -> Result<Bytes, NoAnswer> {
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let id = what.segment();
    if answer.status() == StatusCode::OK {
        if header(CHECKSUM).parse() != Ok(crc32c::crc32c(answer.body())) {
            return Err(NoAnswer::NotThere("the answer came damaged".to_owned()));
        }
        return Ok(answer.into_body());
    }
    let said = String::from_utf8_lossy(answer.body()).trim().to_owned();
    Err(match header(FAILURE) {
        MISSING => NoAnswer::Segment(SegmentError::Missing(id)),
        CORRUPT => {
            tracing::error!(segment = id.0, said, "another process found bytes damaged");
            NoAnswer::Segment(SegmentError::Corrupt {
                segment: id,
                offset: 0,
                what: "so says the process that stores it",
            })
        }
        OTHER_STORE => NoAnswer::NotThere(said),
        // It knows no such question, and may answer any other.
        REFUSED if answer.status() == StatusCode::BAD_REQUEST => {
            NoAnswer::Segment(SegmentError::Io(io::Error::other(format!("not understood: {said}"))))
        }
        REFUSED => {
            NoAnswer::NotThere(format!("refused: {said}; all processes of a volume need the same file identity-key"))
        }
        _ => NoAnswer::Segment(SegmentError::Io(io::Error::other(said))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_not_known_is_no_wrong_key() {
        let answer = |status| {
            let answer = Response::builder().status(status).header(FAILURE, REFUSED);
            checked(What::State(SegmentId(7)), answer.body(Bytes::from_static(b"why")).unwrap())
        };
        let unknown = answer(StatusCode::BAD_REQUEST);
        assert!(matches!(&unknown, Err(NoAnswer::Segment(SegmentError::Io(_)))), "{unknown:?}");
        let stranger = answer(StatusCode::FORBIDDEN);
        assert!(matches!(&stranger, Err(NoAnswer::NotThere(why)) if why.contains("identity-key")), "{stranger:?}");
    }
}
