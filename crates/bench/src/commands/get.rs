//! `margay client get`: an object into a file or to standard output.
//!
//! Invariants: G1 the file has the whole object or stays as it was. What came so far is in a new file beside it, with a name that
//!                no other file has, which is removed when it does not become the file, also after Ctrl-C.
//! Durability: none; a file that must survive a power cut is synced by its owner.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use margay_client::PayloadHash;
use margay_client::client::Client;
use margay_env::{Env, OpenMode};

use super::{ObjectUrl, keyed, stdout_failed};
use crate::error::BenchError;
use crate::stop;

pub(super) async fn run(
    client: &mut Client,
    env: &Env,
    url: &ObjectUrl,
    path: Option<&Path>,
) -> Result<(), BenchError> {
    let key = keyed(url)?;
    let path = match (path, Path::new(key).file_name()) {
        (Some(path), _) => path.to_owned(),
        (None, Some(name)) => PathBuf::from(name),
        (None, None) => return Err(BenchError::Usage(format!("{key} names no file; say which one to write"))),
    };
    if path == Path::new("-") {
        return to_stdout(client, url, key).await;
    }
    // A device or a directory cannot be replaced.
    if matches!(env.disk.open(&path, OpenMode::ReadRegular), Err(error) if error.kind() == io::ErrorKind::InvalidInput)
    {
        return Err(BenchError::Usage(format!("{} is no file; name one, or - for standard output", path.display())));
    }
    let partial = Partial::new(env, &path);
    // Dropping the work leaves nothing half done but the partial file.
    tokio::select! {
        outcome = fetch(client, env, (url, key), (&partial, &path)) => outcome,
        () = stop::asked() => Err(BenchError::Interrupted),
    }
}

async fn to_stdout(client: &mut Client, url: &ObjectUrl, key: &str) -> Result<(), BenchError> {
    let (_, mut body) = client.get(&url.bucket, key, PayloadHash::Unsigned).await?;
    let mut out = io::stdout().lock();
    while let Some(chunk) = client.next_chunk(&mut body).await? {
        out.write_all(&chunk).map_err(stdout_failed)?;
    }
    out.flush().map_err(stdout_failed)
}

/// A new file in the directory of another one; removed when this is dropped, unless it was renamed.
struct Partial<'a> {
    env: &'a Env,
    path: PathBuf,
}

impl Partial<'_> {
    fn new<'a>(env: &'a Env, path: &Path) -> Partial<'a> {
        let name = format!(".margay-{:016x}.partial", env.random.next_u64());
        Partial { env, path: path.with_file_name(name) }
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        // Renamed, or never made, or nothing can be done about it.
        let _ = self.env.disk.remove(&self.path);
    }
}

async fn fetch(
    client: &mut Client,
    env: &Env,
    (url, key): (&ObjectUrl, &str),
    (partial, path): (&Partial<'_>, &Path),
) -> Result<(), BenchError> {
    let (info, mut body) = client.get(&url.bucket, key, PayloadHash::Unsigned).await?;
    let failed = BenchError::file(path);
    let file = env.disk.open(&partial.path, OpenMode::CreateNew).map_err(&failed)?;
    let mut position = 0;
    while let Some(chunk) = client.next_chunk(&mut body).await? {
        file.write_all_at(&chunk, position).map_err(&failed)?;
        position += chunk.len() as u64;
    }
    if position != info.size {
        let reason = format!("{position} bytes came of {}", info.size);
        return Err(BenchError::Nonsense { request: format!("GET {key}"), reason });
    }
    env.disk.rename(&partial.path, path).map_err(&failed)
}
