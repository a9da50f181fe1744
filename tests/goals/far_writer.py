"""A writer that changes files of its own directory of a mount at random, and knows what it did (manifest.py).

It is parked while somebody kills and judges, and reads its directory again before it goes on. A call that fails while the mount's
process lives is an error, except an fsync while there is no network.
"""

import errno
import os
import random
import threading
import time

from manifest import Change, Manifest

FILES_MAX = 30
# Of any call that needs no bucket, while there is no network.
CALL_SECONDS_MAX = 10
# What calls say when the mount's process is gone.
GONE = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENODEV, errno.EINTR)


class Writer(threading.Thread):
    def __init__(self, mount, number, seed, pause, large):
        super().__init__(daemon=True)
        self.mount, self.top, self.pause, self.large = mount, f"w{number}/", pause, large
        self.random, self.manifest = random.Random(f"{seed} {number}"), Manifest()
        self.wanted, self.ended = threading.Event(), threading.Event()
        # Held by the thread during a change, and by the controller while it is parked.
        self.turn, self.is_parked = threading.Lock(), True
        self.turn.acquire()
        self.names, self.directories, self.errors = 0, [], []
        self.calls, self.slowest, self.offline = 0, 0, False

    # What the controller calls.

    def begin(self):
        if not self.directories:
            os.mkdir(self.path(""))
            self.directories = [self.new_name(self.top) + "/" for _ in range(2)]
            for directory in self.directories:
                os.mkdir(self.path(directory))
            self.sync(self.top)
            self.start()
        self.go_on()

    def park(self):
        if not self.is_parked:
            self.wanted.clear()
            self.turn.acquire()
            self.is_parked = True

    def go_on(self):
        if self.is_parked:
            self.is_parked = False
            self.turn.release()
        self.wanted.set()

    def end(self):
        self.ended.set()
        self.wanted.set()

    def adopt(self):
        """After a kill, with a new mount."""
        found = read_tree(self.mount, self.top)
        known = {path.rsplit("/", 1)[0] + "/" for path in found}
        self.directories = [directory for directory in list_directories(self.mount, self.top)]
        wrong = self.manifest.adopt(found)
        if wrong:
            # Goes on from what is there, so that the next kill tells something again.
            self.manifest = Manifest()
            for path, content in found.items():
                self.manifest.begin_write(path, Change(b"", content, 0))()
            return [f"{'LOST' if 'missing' in text else 'TORN'} {self.top} {text}" for text in wrong]
        missing = known - set(self.directories) - {self.top}
        errors, self.errors = self.errors, []
        return [f"LOST directory {name}" for name in missing] + errors

    def take_errors(self):
        errors, self.errors = self.errors, []
        return errors

    def judge_bucket(self, tree, is_at_rest):
        return self.manifest.judge({path: content for path, content in tree.items() if path.startswith(self.top)}, is_at_rest)

    def judge_mount(self, mount):
        wrong = self.manifest.judge(read_tree(mount, self.top), True)
        found = set(list_directories(mount, self.top))
        return wrong + [f"LOST directory {name}" for name in set(self.directories) - found] + [f"MORE directory {name}" for name in found - set(self.directories)]

    # What the thread does.

    def run(self):
        while not self.ended.is_set():
            self.wanted.wait()
            with self.turn:
                is_gone = self.wanted.is_set() and not self.ended.is_set() and self.one_change()
            while is_gone and self.wanted.is_set() and not self.ended.is_set():
                time.sleep(0.01)
            if self.pause:
                time.sleep(self.random.expovariate(1 / self.pause))

    def one_change(self):
        """True when the mount is gone: the controller parks."""
        began = time.monotonic()
        try:
            is_sync = self.change()
        except OSError as error:
            if error.errno in GONE and not self.offline and self.is_gone():
                return True
            self.errors.append(f"ERROR {self.top} {error}")
            time.sleep(0.1)
            return False
        self.calls += 1
        if self.offline and not is_sync:
            self.slowest = max(self.slowest, time.monotonic() - began)
        return False

    def is_gone(self):
        """Whether the mount's process is gone, or goes: a killed one answers for a moment."""
        for _ in range(20):
            try:
                os.statvfs(self.mount)
            except OSError:
                return True
            if not self.wanted.is_set():
                return True
            time.sleep(0.05)
        return False

    def path(self, path):
        return os.path.join(self.mount, path or self.top)

    def new_name(self, directory):
        self.names += 1
        return f"{directory}{self.names}"

    def change(self):
        paths = list(self.manifest.tree)
        if len(paths) > FILES_MAX:
            return self.remove(self.random.choice(paths))
        kinds = [(30, self.create), (15, self.replace), (10, self.overwrite), (10, self.append), (5, self.modify), (10, self.rename)]
        kinds += [(2, self.rename_directory), (10, self.remove), (10, self.sync_file), (3, self.sync_directory), (5, self.read)]
        call = self.random.choices([call for _, call in kinds], [weight for weight, _ in kinds])[0]
        if call in (self.create, self.rename_directory, self.sync_directory):
            return call()
        return call(self.random.choice(paths)) if paths else None

    def content(self):
        kind = self.random.random()
        size = 4096 if kind < 0.6 else 128 << 10 if kind < 0.9 else 1 << 20 if kind < 0.995 else self.large << 20
        return self.random.randbytes(self.random.randrange(1, size))

    def write(self, path, change, flags, is_synced):
        done = self.manifest.begin_write(path, change)
        handle = os.open(self.path(path), flags | os.O_WRONLY, 0o644)
        try:
            at = 0 if flags & os.O_APPEND else change.at
            left = memoryview(change.new)
            while left:
                size = os.write(handle, left) if flags & os.O_APPEND else os.pwrite(handle, left, at)
                left, at = left[size:], at + size
            done()
            if is_synced:
                self.fsync(handle, path)
        finally:
            os.close(handle)
        return is_synced

    def create(self):
        self.write(self.new_name(self.random.choice(self.directories)), Change(b"", self.content(), 0), os.O_CREAT | os.O_EXCL, self.random.random() < 0.3 and not self.offline)

    def replace(self, path):
        """As editors do."""
        new = self.new_name(path.rsplit("/", 1)[0] + "/t")
        self.write(new, Change(b"", self.content(), 0), os.O_CREAT | os.O_EXCL, self.random.random() < 0.5 and not self.offline)
        self.move(new, path)

    def overwrite(self, path):
        self.write(path, Change(b"", self.content(), 0), os.O_TRUNC, self.random.random() < 0.3 and not self.offline)

    def append(self, path):
        old = self.manifest.tree[path][1]
        self.write(path, Change(old, self.content(), len(old)), os.O_APPEND, self.random.random() < 0.3 and not self.offline)

    def modify(self, path):
        old = self.manifest.tree[path][1]
        at = self.random.randrange(len(old) + 1)
        self.write(path, Change(old, self.content()[: len(old) - at], at), 0, self.random.random() < 0.3 and not self.offline)

    def move(self, old, new):
        done = self.manifest.begin_rename(old, new)
        os.rename(self.path(old), self.path(new))
        done()

    def rename(self, path):
        self.move(path, self.new_name(self.random.choice(self.directories)))

    def rename_directory(self):
        old, new = self.random.choice(self.directories), self.new_name(self.top + "d") + "/"
        self.move(old, new)
        self.directories = [directory for directory in self.directories if directory != old] + [new]

    def remove(self, path):
        done = self.manifest.begin_remove(path)
        os.unlink(self.path(path))
        done()

    def read(self, path):
        with open(self.path(path), "rb", buffering=0) as file:
            found = file.readall()
        if found != self.manifest.tree[path][1]:
            self.errors.append(f"TORN {path} as it was read")

    def sync_file(self, path):
        if self.offline:
            return False
        handle = os.open(self.path(path), os.O_RDONLY)
        try:
            self.fsync(handle, path)
        finally:
            os.close(handle)
        return True

    def sync_directory(self):
        if not self.offline:
            self.sync(self.top)
        return True

    def sync(self, directory):
        handle = os.open(self.path(directory), os.O_RDONLY)
        try:
            self.fsync(handle, None)
        finally:
            os.close(handle)

    def fsync(self, handle, path):
        os.fsync(handle)
        self.manifest.acknowledge(path)


def read_tree(mount, top):
    found = {}
    for folder, _, names in os.walk(os.path.join(mount, top), onerror=fail):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb", buffering=0) as file:
                found[os.path.relpath(path, mount)] = file.readall()
    return found


def list_directories(mount, top):
    """Those below the top, as paths that end in '/'."""
    return [os.path.relpath(os.path.join(folder, name), mount) + "/" for folder, names, _ in os.walk(os.path.join(mount, top), onerror=fail) for name in names]


def fail(error):
    raise error
