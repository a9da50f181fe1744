"""Churn on a disk that somebody fills again and again: what an operation that failed for want of room may leave behind.

The disk is an ext4 in a file, and another file, the hog, takes what is left of it for moments. An operation may fail with ENOSPC (through S3
with 507): then each file that it was to change has for each byte what it had, what it was to get, or a zero, and a length
from the least to the greatest of both. What is found so is what it has from then on, through both doors. All other files
have their bytes, and a look or a removal never fails for long.
"""

import errno
import os
import pathlib
import re
import subprocess
import threading
import time

from churn_worker import S3, Worker, Wrong, read_file, told

IMAGE_BYTES = 1 << 30
# What the hog leaves of the disk: it takes what the server keeps for itself too.
LEFT_BYTES = (0, 500_000, 5_000_000, 30_000_000, 66_000_000, 68_000_000)
# How long it stays, and how long it is away, each time.
HOG_SECONDS = (0.2, 2.0)
# The server keeps so much of the disk for itself.
RESERVE = "limits.reserve_bytes=64MiB"
PAUSE_SECONDS = 0.05
# Looks and removals on a full disk are tried again for so long.
PATIENCE_SECONDS = 120
PIECE_BYTES = 4 << 20


class S3OnFullDisk(S3):
    def ask(self, method, key, query="", body=b"", more=None, good=(200, 204)):
        answer, data = super().ask(method, key, query, body, more, (*good, 507))
        if answer.status == 507 and 507 not in good:
            raise OSError(errno.ENOSPC, f"S3 {method} {key}: 507")
        return answer, data


def patient(work, *arguments):
    """Does it again while the disk is full."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work(*arguments)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            if time.monotonic() > deadline:
                raise Wrong(f"no room for {PATIENCE_SECONDS} s: {error}") from error
            time.sleep(PAUSE_SECONDS)


class FullWorker(Worker):
    def __init__(self, number, options, state=None):
        super().__init__(number, options, state)
        self.s3 = S3OnFullDisk(options["port"])

    def run(self, until, may_end):
        patient(lambda: os.makedirs(self.path, exist_ok=True))
        return super().run(until, may_end)

    def look(self, name):
        patient(super().look, name)

    def look_at_all(self):
        patient(super().look_at_all)

    def step(self):
        try:
            super().step()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.done["full"] = self.done.get("full", 0) + 1
            # The removal of a file that is held may have failed.
            while self.held:
                os.close(self.held.pop()[0])
            time.sleep(PAUSE_SECONDS)
            patient(self.settle)
            self.pending = []

    def settle(self):
        """Takes what the failed operation left for the truth, if it may have left that."""
        for name in sorted({name for change in self.pending for name in change}):
            before = self.bytes_of(name) if name in self.names else None
            afters = [change[name] for change in self.pending if name in change]
            found = self.found(name)
            states = [before, *afters]
            if not any(mixed(found, one, two) for one in states for two in states):
                wanted = ", ".join(map(told, [before, *afters]))
                raise Wrong(f"{self.key(name)} has {told(found)} after a failed operation, of {wanted}")
            self.adopt(name, found)
        self.sync()
        _, said = self.s3.ask("GET", "", f"prefix={self.folder}%2F&uploads=")
        for key, upload in re.findall(rb"<Key>([^<]+)</Key><UploadId>([^<]+)", said):
            self.s3.ask("DELETE", key.decode(), f"uploadId={upload.decode()}")

    def found(self, name):
        """What both doors have of it, when both have the same."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            by_s3 = self.s3.get(self.key(name))
            try:
                by_mount = read_file(self.at(name))
            except FileNotFoundError:
                by_mount = None
            if by_s3 == by_mount:
                return by_s3
            if time.monotonic() > deadline:
                raise Wrong(f"{self.key(name)}: S3 has {told(by_s3)}, the mount {told(by_mount)}")
            time.sleep(PAUSE_SECONDS)

    def adopt(self, name, found):
        if name in self.names:
            self.drop(name)
        if found is None:
            return
        here = os.stat(self.at(name))
        same_file = [other for other in self.names if here.st_nlink > 1 and os.stat(self.at(other)).st_ino == here.st_ino]
        if same_file:
            self.names[name] = self.names[same_file[0]]
            self.data[self.names[name]] = found
        else:
            self.new(name, found)


def mixed(found, before, after):
    """Whether a change of `before` to `after` that broke off may leave `found`; None is no file."""
    if found is None or before is None or after is None:
        return found in (before, after) or (before is None and found is not None and mixed(found, b"", after or b""))
    if not min(len(before), len(after)) <= len(found) <= max(len(before), len(after)):
        return False
    length = len(found)
    one, two = before[:length].ljust(length, b"\0"), after[:length].ljust(length, b"\0")
    return all(byte in (a, b, 0) for byte, a, b in zip(found, one, two, strict=True))


class Disk:
    """A small ext4 in a file, and somebody who fills it for moments."""

    def __init__(self, folder, random):
        self.folder, self.random = pathlib.Path(folder), random
        self.image, self.at = self.folder / "image", self.folder / "disk"
        self.over, self.thread = threading.Event(), None

    def mount(self):
        self.at.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.at], check=True)

    def fill_at_times(self):
        self.over.clear()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def rest(self):
        if self.thread:
            self.over.set()
            self.thread.join()
            self.thread = None

    def work(self):
        hog = self.at / "hog"
        while not self.over.is_set():
            self.fill(hog, self.random.choice(LEFT_BYTES))
            self.over.wait(self.random.uniform(*HOG_SECONDS))
            hog.unlink(missing_ok=True)
            self.over.wait(self.random.uniform(*HOG_SECONDS))

    def fill(self, hog, left):
        with open(hog, "ab") as file:
            while not self.over.is_set():
                free = os.statvfs(self.at)
                room = free.f_bavail * free.f_frsize - left
                if room <= 0:
                    break
                try:
                    os.posix_fallocate(file.fileno(), file.tell(), min(room, PIECE_BYTES))
                    file.seek(0, os.SEEK_END)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break

    def unmount(self):
        self.rest()
        subprocess.run(["umount", "-l", self.at], check=True)
