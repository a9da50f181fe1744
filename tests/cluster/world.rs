//! Servers of one volume: a database, folders, and a client of each server.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use margay_client::upstream::{Upstream, Wanted};
use margay_client::{ClientError, Condition};
use tokio::runtime::Runtime;

use crate::postgres;
use crate::server::far::upstream_of;
use crate::server::{Server, margay, metric, until};

/// Longer than bytes that rows hold.
pub(crate) const BODY_BYTES: usize = 300_000;
/// A database, and the folders of servers.
pub(crate) struct World {
    pub(crate) postgres: postgres::Server,
    folder: tempfile::TempDir,
    pub(crate) runtime: Runtime,
}

/// A server and a client of it.
pub(crate) struct Door {
    pub(crate) server: Server,
    pub(crate) upstream: Upstream,
}

pub(crate) fn body(seed: u8) -> Vec<u8> {
    (0..BODY_BYTES).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

impl World {
    /// `None`: there is no PostgreSQL here, and that was said.
    pub(crate) fn new() -> Option<World> {
        let postgres = postgres::Server::start()?;
        Some(World { postgres, folder: tempfile::tempdir().unwrap(), runtime: Runtime::new().unwrap() })
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, name: &str, more: &[&str]) -> std::process::Command {
        let mut command = margay();
        command.args([
            "serve",
            "--address",
            "127.0.0.1:0",
            "--admin-address",
            "127.0.0.1:0",
            "--store-address",
            "127.0.0.1:0",
        ]);
        command.args(["--metadata", &self.postgres.url(), "--data"]).arg(self.data(name)).args(more);
        command
    }

    /// A server gets the keys of the first one, as docs/cluster.md says.
    pub(crate) fn serve(&self, name: &str, more: &[&str]) -> Door {
        let data = self.data(name);
        if name != "one" && !data.exists() {
            fs::create_dir(&data).unwrap();
            for file in ["keys", "identity-key", "encryption-keys"] {
                fs::copy(self.data("one").join(file), data.join(file)).unwrap();
            }
        }
        let mut command = self.command(name, more);
        command.stderr(fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap());
        let server = Server::started(command, &data);
        Door { upstream: upstream_of(&server), server }
    }

    pub(crate) fn put(&self, door: &Door, key: &str, body: &[u8]) {
        self.try_put(door, key, body).unwrap();
    }

    pub(crate) fn try_put(&self, door: &Door, key: &str, body: &[u8]) -> Result<(), ClientError> {
        let put = door.upstream.put(key, Bytes::copy_from_slice(body), Condition::Always);
        self.runtime.block_on(put).map(drop)
    }

    /// `Ok(None)`: there is no such object.
    pub(crate) fn get(&self, door: &Door, key: &str) -> Result<Option<Bytes>, ClientError> {
        let Some(there) = self.runtime.block_on(door.upstream.describe(key))? else { return Ok(None) };
        let found = self.runtime.block_on(door.upstream.get(key, 0..there.size, Wanted::Any))?;
        Ok(found.map(|found| found.bytes))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// Until it is so. A server that others take for dead needs six beats of a second each, and a look, and more on a busy machine.
pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    until(what, is_so);
}

/// Until these servers know how many copies are wanted, and all that was changed with that number or before it: each looks once a
/// second, if the machine lets it.
#[allow(dead_code, reason = "each file of tests uses a part of it")]
pub(crate) fn wait_for_wanted(servers: &[&Server], copies: u64) {
    let is_known = |server: &&Server| metric(&server.data, "margay_copies_wanted") == copies;
    wait_until("the servers know how many copies are wanted", || servers.iter().all(is_known));
}
