//! A server with a bucket, and mounts of it by other processes.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::fs;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use margay_client::upstream::{Limits, Source, Upstream};
use rustix::process::{Pid, Signal, kill_process};

use super::{Server, margay};

/// A server with a bucket, and a folder for caches and mount points.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) folder: tempfile::TempDir,
}

/// A mount in the foreground of a child.
pub(crate) struct Far {
    pub(crate) child: Child,
    pub(crate) path: PathBuf,
}

/// Of an upload by `upstream_of`.
pub(crate) const PART_BYTES: u64 = 8 << 20;

/// What an upload sends.
pub(crate) struct Body(pub(crate) Bytes);

impl Source for Body {
    fn read(&self, range: Range<u64>) -> impl Future<Output = io::Result<Bytes>> + Send {
        std::future::ready(Ok(self.0.slice(range.start as usize..range.end as usize)))
    }
}

/// The bucket of a server, or of a gateway, for another client.
pub(crate) fn upstream_of(server: &Server) -> Upstream {
    Upstream::new(Arc::new(server.target()), "bucket", Limits { requests_max: 64, bytes_max: 256 << 20 })
}

impl World {
    pub(crate) fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start_to_stop(&folder.path().join("data"));
        server.client(&["mb", "s3://bucket"]);
        World { server, folder }
    }

    pub(crate) fn command(&self) -> Command {
        let (mut command, keys) = (margay(), self.server.keys());
        command.env("AWS_ACCESS_KEY_ID", keys.access_key);
        command.env("AWS_SECRET_ACCESS_KEY", keys.secret_key);
        command.env("AWS_ENDPOINT_URL", &self.server.endpoint);
        command.env("XDG_STATE_HOME", self.folder.path().join("state"));
        command
    }

    pub(crate) fn mount(&self, cache: &str) -> Far {
        self.mount_at(cache, &self.server.endpoint)
    }

    /// As `mount`, of a store at this address.
    pub(crate) fn mount_at(&self, cache: &str, endpoint: &str) -> Far {
        self.mount_with(cache, &["--endpoint", endpoint])
    }

    /// As `mount`, with more words of the command; its log is `log` in the folder.
    pub(crate) fn mount_with(&self, cache: &str, words: &[&str]) -> Far {
        self.mount_on("mount", cache, words)
    }

    /// A second mount, on a directory of its own.
    pub(crate) fn mount_beside(&self, cache: &str) -> Far {
        self.mount_on("second-mount", cache, &[])
    }

    /// As `mount_beside`, with more words of the command, on a directory that is named after the cache.
    pub(crate) fn mount_beside_with(&self, cache: &str, words: &[&str]) -> Far {
        self.mount_on(&format!("mount-{cache}"), cache, words)
    }

    fn mount_on(&self, directory: &str, cache: &str, words: &[&str]) -> Far {
        let path = self.folder.path().join(directory);
        let mut command = self.command();
        command.args(["mount", "s3://bucket/sub", "--foreground"]).args(words);
        command.args(["--metrics-address", "127.0.0.1:0", "--cache"]);
        command.arg(self.folder.path().join(cache)).arg(&path);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = command.stderr(log).spawn().unwrap();
        let mut far = Far { child, path };
        let begun = Instant::now();
        while !far.is_mounted() {
            assert!(far.child.try_wait().unwrap().is_none(), "the mount ended");
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        far
    }

    /// A server of the far bucket, in the background of a test; its log is `log` in the folder.
    pub(crate) fn serve(&self, cache: &str, endpoint: &str, words: &[&str]) -> Server {
        let cache = self.folder.path().join(cache);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        Server::started(self.serving(&cache, endpoint, words, log.into()), &cache)
    }

    pub(crate) fn serving(&self, cache: &Path, endpoint: &str, words: &[&str], log: Stdio) -> Command {
        let mut command = self.command();
        command.args(["serve", "--upstream", "s3://bucket/sub", "--address", "127.0.0.1:0", "--admin-address", "off"]);
        command.args(["--endpoint", endpoint, "--cache"]).arg(cache).args(words).stderr(log);
        // As on a machine with two processors.
        command.env("TOKIO_WORKER_THREADS", "2");
        command
    }

    /// Puts an object of so many bytes into the mounted directory, as another client; returns its content.
    pub(crate) fn put(&self, name: &str, bytes: usize) -> Vec<u8> {
        let file = super::body(self.folder.path(), "body", bytes);
        self.server.client(&["put", file.to_str().unwrap(), &format!("s3://bucket/sub/{name}")]);
        fs::read(file).unwrap()
    }

    pub(crate) fn keys(&self, prefix: &str) -> String {
        self.server.client(&["ls", &format!("s3://bucket/{prefix}")])
    }
}

impl Far {
    pub(crate) fn is_mounted(&self) -> bool {
        let line = format!(" {} ", self.path.display());
        fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|one| one.contains(&line))
    }

    /// `fsync` of the top directory: everything is in the bucket.
    pub(crate) fn sync(&self) {
        fs::File::open(&self.path).unwrap().sync_all().unwrap();
    }

    pub(crate) fn kill(&mut self) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::KILL).unwrap();
        self.child.wait().unwrap();
        Command::new("umount").arg("-l").arg(&self.path).stderr(Stdio::null()).status().unwrap();
    }

    /// Unmounts as umount(8) does; the process ends when everything is in the bucket.
    pub(crate) fn end(mut self) -> Option<i32> {
        // A child that another test forks has a copy of each open file until it runs its program.
        let begun = Instant::now();
        while !Command::new("umount").arg(&self.path).status().unwrap().success() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it stays busy");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.child.wait().unwrap().code()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.kill();
        }
    }
}

/// A disk of this size that is gone when it is dropped.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    pub(crate) fn new(path: PathBuf, mib: u64) -> SmallDisk {
        fs::create_dir(&path).unwrap();
        let size = format!("size={mib}m");
        assert!(
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path).status().unwrap().success()
        );
        SmallDisk(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().unwrap();
    }
}
