//! Dumps of a data directory as one stream, written by the running server or by this process.
//!
//! Why:        only the running server can read its rows and segments; the client receives the stream through the
//!             control socket.
//! Layout:     docs/format/dump.md.
//! Invariants: U1 an incomplete stream lacks its end record, so it is never taken for a dump.
//! Not here:   the format (margay-volume), the commands (`cli::dump`), loading a dump (`load`).

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use margay_env::files;
use margay_listener::body::{BodyError, ResponseBody};
use margay_volume::{DUMP_HEADER_BYTES, DumpReport, DumpRequest, decode_dump_header};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::backup::{KEY_FILE_BYTES_MAX, KEY_FILES};
use crate::progress::{Progress, Running};
use crate::wiring::Storage;

/// Bytes of the stream that are sent at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that are buffered for a slow reader.
const WAITING_PIECES_MAX: usize = 4;

/// Options of a dump.
#[derive(Clone, Copy, Debug)]
pub struct DumpWish {
    pub only_rows: bool,
    pub with_keys: bool,
}

impl DumpWish {
    pub fn to_json(self) -> Value {
        json!({ "only_rows": self.only_rows, "with_keys": self.with_keys })
    }

    pub fn from_json(value: &Value) -> DumpWish {
        DumpWish { only_rows: value["only_rows"] == true, with_keys: value["with_keys"] == true }
    }
}

/// Writes a dump; blocks until it is complete. The error is one line.
pub fn make(storage: &Storage, wish: DumpWish, to: &mut dyn Write) -> Result<DumpReport, String> {
    let mut request = DumpRequest { only_rows: wish.only_rows, files: Vec::new() };
    if wish.with_keys {
        for name in KEY_FILES {
            let path = storage.path().join(name);
            let fail = |error: io::Error| format!("{} cannot be read: {error}", path.display());
            if storage.env.disk.exists(&path).map_err(fail)? {
                let bytes = files::read(&storage.env, &path, KEY_FILE_BYTES_MAX).map_err(fail)?;
                request.files.push((name.to_owned(), bytes));
            }
        }
    }
    let pace = |_, _| if storage.stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    storage.volume.dump(to, &request, pace).map_err(|error| format!("the dump broke off: {error}"))
}

/// A response whose body is a dump. On a failure the body ends early, which the reader notices, and the log says why.
pub fn answer(storage: &Arc<Storage>, wish: DumpWish) -> Response<ResponseBody> {
    let (sender, pieces) = mpsc::channel(WAITING_PIECES_MAX);
    let storage = Arc::clone(storage);
    tokio::task::spawn_blocking(move || {
        let mut to = BufWriter::with_capacity(PIECE_BYTES, Pieces(sender.clone()));
        if let Err(error) = make(&storage, wish, &mut to) {
            tracing::warn!(error, "a dump was not made");
            // A client that disconnected needs no error.
            let _ = sender.blocking_send(Err(error.into()));
        }
    });
    Response::new(ResponseBody::of_pieces(pieces))
}

type Piece = Result<Bytes, BodyError>;

/// Sends what is written to it.
struct Pieces(mpsc::Sender<Piece>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody reads any more"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts a dump's bytes for progress: the stream itself says how many there will be.
#[derive(Debug)]
pub struct Counted<'a, W> {
    to: W,
    head: Vec<u8>,
    done: u64,
    progress: &'a Progress,
    running: Option<Running<'a>>,
}

impl<'a, W: Write> Counted<'a, W> {
    pub fn new(to: W, progress: &'a Progress) -> Counted<'a, W> {
        Counted { to, head: Vec::new(), done: 0, progress, running: None }
    }

    /// Bytes written so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn into_inner(self) -> W {
        self.to
    }
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        if self.running.is_none() {
            let more = (DUMP_HEADER_BYTES - self.head.len()).min(count);
            self.head.extend_from_slice(&bytes[..more]);
            if let Ok(head) = <&[u8; DUMP_HEADER_BYTES]>::try_from(self.head.as_slice()) {
                let total = decode_dump_header(head).map_or(0, |header| header.bytes);
                self.running = Some(self.progress.begin(total));
            }
        }
        self.done += count as u64;
        if let Some(running) = &self.running {
            running.at(self.done);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
