"""The programs that write and read objects as files: how each is found, started and ended.

`writes` and `reads` are contexts that give a directory. What a program cannot hold by itself is in its CANNOT tables: a pattern of
`PROPERTY PATH` and why.
"""

import contextlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import time

WAIT_SECONDS = 120


def wait_until(ready, process, log):
    for _ in range(WAIT_SECONDS * 20):
        if ready():
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"does not mount: {pathlib.Path(log).read_text(errors='replace')[-500:]}")


class Program:
    name, variable, package = "", None, None
    # What it does not write, and what it does not read.
    writes_not, reads_not = {}, {}

    def __init__(self, world):
        self.world = world

    def missing(self):
        """Why it cannot run here, or nothing."""
        self.path = os.environ.get(self.variable or "") or shutil.which(self.name)
        return None if self.path else f"no {self.name}: {self.package}"

    def command(self, bucket, directory):
        raise NotImplementedError

    @contextlib.contextmanager
    def mounted(self, bucket):
        directory = tempfile.mkdtemp(prefix=f"{self.name}-", dir=self.world.folder)
        log = f"{directory}.log"
        with open(log, "wb") as out:
            command = [str(word) for word in self.command(bucket, directory)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.world.variables)
        try:
            wait_until(lambda: os.path.ismount(directory), process, log)
            yield directory
            for _ in range(WAIT_SECONDS):
                if subprocess.run(["umount", directory], capture_output=True).returncode == 0:
                    break
                time.sleep(1)
            process.wait(WAIT_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if os.path.ismount(directory):
                subprocess.run(["umount", "-l", directory], capture_output=True)

    writes = reads = mounted


class Margay(Program):
    name = "margay"

    def missing(self):
        return None

    def command(self, bucket, directory):
        cache = tempfile.mkdtemp(prefix="cache-", dir=self.world.folder)
        return [self.world.binary, "mount", f"s3://{bucket}", directory, "--foreground", "--cache", cache, "-o", "suid,dev"]


class S3fs(Program):
    name, package = "s3fs", "the package s3fs"

    def command(self, bucket, directory):
        keys = pathlib.Path(self.world.folder, "passwd")
        keys.write_text(":".join(self.world.keys))
        keys.chmod(0o600)
        options = f"url={self.world.endpoint},use_path_request_style,passwd_file={keys},endpoint=us-east-1,use_xattr,multipart_size=8,suid,dev,retries=1"
        return [self.path, bucket, directory, "-f", "-o", options]


class TigrisFs(Program):
    name, variable, package = "tigrisfs", "TIGRISFS", "TIGRISFS names no program; github.com/tigrisdata/tigrisfs"

    def command(self, bucket, directory):
        options = ["--endpoint", self.world.endpoint, "--region", "us-east-1", "--enable-perms", "--enable-specials", "--enable-mtime", "-o", "suid,dev"]
        return [self.path, "-f", *options, "--stat-cache-ttl", "2s", bucket, directory]

    @contextlib.contextmanager
    def reads(self, bucket):
        with self.mounted(bucket) as directory:
            # It takes modes and times from listings, which only some stores have them in; else from the HEAD for an attribute.
            for parent, directories, files in os.walk(directory):
                for name in directories + files:
                    with contextlib.suppress(OSError):
                        os.listxattr(os.path.join(parent, name), follow_symlinks=False)
            time.sleep(3)
            yield directory


class Goofys(Program):
    name, variable, package = "goofys", "GOOFYS", "GOOFYS names no program; github.com/kahing/goofys"

    def command(self, bucket, directory):
        return [self.path, "-f", "--endpoint", self.world.endpoint, "--region", "us-east-1", bucket, directory]


class RcloneMount(Program):
    name, package = "rclone", "the package rclone"

    def missing(self):
        helper = shutil.which("fusermount") or shutil.which("fusermount3")
        return super().missing() or (None if helper else "no fusermount: the package fuse3")

    def settings(self):
        keys = self.world.keys
        words = ["--s3-provider", "Other", "--s3-access-key-id", keys[0], "--s3-secret-access-key", keys[1], "--s3-endpoint", self.world.endpoint]
        return [*words, "--s3-region", "us-east-1", "--s3-force-path-style", "--s3-upload-cutoff", "8M", "--retries", "1", "--low-level-retries", "1"]

    def command(self, bucket, directory):
        cache = ["--vfs-cache-mode", "writes", "--vfs-write-back", "2s", "--cache-dir", f"{directory}.cache"]
        return [self.path, "mount", f":s3:{bucket}", directory, *cache, *self.settings()]

    @contextlib.contextmanager
    def writes(self, bucket):
        with self.mounted(bucket) as directory:
            yield directory
            # It forgets at the unmount what it has not sent; what changes while it is sent, it may not send at all.
            time.sleep(3)
            for _ in range(WAIT_SECONDS):
                states = [path.read_text(errors="replace") for path in pathlib.Path(f"{directory}.cache", "vfsMeta").rglob("*") if path.is_file()]
                if all('"Dirty": false' in state for state in states):
                    break
                time.sleep(0.1)


class RcloneCopy(RcloneMount):
    """`rclone copy --metadata`, from and to a directory of this machine."""

    def missing(self):
        return Program.missing(self)

    @contextlib.contextmanager
    def writes(self, bucket):
        directory = tempfile.mkdtemp(prefix="rclone-from-", dir=self.world.folder)
        yield directory
        self.copy(directory, f":s3:{bucket}")

    @contextlib.contextmanager
    def reads(self, bucket):
        directory = tempfile.mkdtemp(prefix="rclone-to-", dir=self.world.folder)
        self.copy(f":s3:{bucket}", directory)
        yield directory

    def copy(self, source, target):
        command = [self.path, "copy", "--metadata", "--links", *self.settings(), source, target]
        # With AWS_CA_BUNDLE in its environment this client refuses to start: it gets the environment of the others.
        done = subprocess.run(command, env=self.world.variables, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"rclone copy: {done.stderr[-400:]}")


class Aws(Program):
    """Objects with the metadata of AWS' file gateways, by the command line client."""

    name, package = "aws", "the package awscli"

    @contextlib.contextmanager
    def writes(self, bucket):
        directory = tempfile.mkdtemp(prefix="aws-", dir=self.world.folder)
        yield directory
        for parent, directories, files in os.walk(directory):
            for name in directories + files:
                self.put(bucket, directory, os.path.join(parent, name))

    def put(self, bucket, root, path):
        found = os.lstat(path)
        kind = stat.S_IFMT(found.st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            return
        metadata = {"file-permissions": f"{found.st_mode:07o}", "file-owner": str(found.st_uid), "file-group": str(found.st_gid), "file-mtime": f"{found.st_mtime_ns}ns"}
        body = pathlib.Path(self.world.folder, "body")
        if kind == stat.S_IFLNK:
            body.write_bytes(os.readlink(os.fsencode(path)))
        key = os.path.relpath(path, root) + ("/" if kind == stat.S_IFDIR else "")
        put = ["s3api", "put-object", "--bucket", bucket, "--key", key, "--metadata", json.dumps(metadata)]
        if kind != stat.S_IFDIR:
            put += ["--body", str(body) if kind == stat.S_IFLNK else path]
        subprocess.run([self.path, "--endpoint-url", self.world.endpoint, *put], env=self.world.variables, check=True, capture_output=True)
