//! `margay client put`: a file or standard input as an object.
//!
//! Invariants: P1 what is wrong with the file is told as such: in the middle of a body it would look like a broken connection.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use margay_client::PayloadHash;
use margay_client::client::Client;
use margay_client::payload::{Chunks, Payload};
use margay_env::{Env, File, OpenMode};
use parking_lot::Mutex;

use super::{ObjectUrl, keyed};
use crate::error::BenchError;

/// Bytes read from a file at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// The most bytes that `put -` reads from standard input, since their number must be known before they are sent.
const STDIN_BYTES_MAX: u64 = 256 << 20;

/// What went wrong with the file while it was read.
type Trouble = Arc<Mutex<Option<io::Error>>>;

/// Gives a file piece by piece; reading blocks this one-connection program and nobody else.
struct FileChunks {
    file: Arc<dyn File>,
    position: u64,
    length: u64,
    trouble: Trouble,
}

impl FileChunks {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut chunk = BytesMut::zeroed(CHUNK_BYTES);
        let count = self.file.read_at(&mut chunk, self.position)?;
        self.position += count as u64;
        if count == 0 && self.position < self.length {
            let text = format!("it became shorter while it was read: {} bytes of {}", self.position, self.length);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        chunk.truncate(count);
        Ok((count > 0).then(|| chunk.freeze()))
    }
}

impl Chunks for FileChunks {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        Poll::Ready(self.next().map_err(|error| {
            let kind = error.kind();
            *self.trouble.lock() = Some(error);
            kind.into()
        }))
    }
}

pub(super) async fn run(
    client: &mut Client,
    env: &Env,
    path: &Path,
    url: &ObjectUrl,
    content_type: Option<&str>,
) -> Result<(), BenchError> {
    let is_stdin = path == Path::new("-");
    let mut key = url.key.clone();
    if key.is_empty() || key.ends_with('/') {
        match path.file_name() {
            Some(name) if !is_stdin => key.push_str(&name.to_string_lossy()),
            _ => keyed(url).map(drop)?,
        }
    }
    let trouble = Trouble::default();
    let body = if is_stdin { stdin(path)? } else { file(env, path, &trouble)? };
    let sent = client.put(&url.bucket, &key, body, PayloadHash::Unsigned, content_type).await;
    match trouble.lock().take() {
        Some(source) => Err(BenchError::file(path)(source)),
        None => Ok(sent?),
    }
}

fn stdin(path: &Path) -> Result<Payload, BenchError> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(BenchError::file(path))?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        let most = STDIN_BYTES_MAX >> 20;
        return Err(BenchError::Usage(format!("standard input holds more than {most} MiB; put it from a file")));
    }
    Ok(Payload::Whole(Bytes::from(bytes)))
}

fn file(env: &Env, path: &Path, trouble: &Trouble) -> Result<Payload, BenchError> {
    let file = env.disk.open(path, OpenMode::ReadRegular).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => BenchError::Usage(format!(
            "{} is no file: put takes one file at a time (- for standard input); a whole directory goes up with \
             `aws s3 sync`, `rclone copy` or cp into a mount",
            path.display()
        )),
        _ => BenchError::file(path)(error),
    })?;
    let length = file.len().map_err(BenchError::file(path))?;
    let chunks = FileChunks { file, position: 0, length, trouble: Arc::clone(trouble) };
    Ok(Payload::Stream(Box::new(chunks), length))
}
