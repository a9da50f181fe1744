"""fsx on a real mount: random calls on few files against bytes in memory, beside reclaim and expiry at their most aggressive.

Each process has files of its own and several descriptors of each: reads and writes, also vectored, appending, direct and through
maps, truncation, all modes of fallocate, copies of ranges, renames, files without a name, syncs, dropped pages. S3 replaces closed
files, reads synced ones, and copies them to where copies expire after a second. Every call is compared. `margay compact` comes at
random moments, passes and checks of the server's own every few seconds; at the end fsck, and all of it again after a restart.

    fsx.py --seconds 20
    fsx.py --seconds 3600 --seed 7 --workers 4

Needs root and /dev/fuse; MARGAY_BIN names the program.
"""

import argparse
import ctypes
import errno
import mmap
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.request

import churn
from churn_worker import BUCKET, LIBC, RULES, S3, SHORT, Wrong, read_file, same

# Beside those of churn.
SETTINGS = ["limits.file_memory_bytes_max=64KiB", "limits.files_memory_bytes_max=1MiB", "limits.overlay_bytes_max=4MiB", "limits.known_files_max=16"]
NAMES = "abcd"
FILE_BYTES_MAX = 600_000
PIECE_BYTES = [1, 100, 4096, 5000, 60_000, 200_000]
BLOCK = 4096
DESCRIPTORS_MAX = 3
LATE_SECONDS = 60
ORDER_PAUSE_SECONDS = 0.15
KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
# Runs of so many seconds have to show that reclaim and expiry did something.
PROOF_SECONDS = 8


class File:
    def __init__(self, data=b""):
        self.data, self.descriptors, self.map = bytearray(data), [], None

    def close(self):
        self.unmap()
        while self.descriptors:
            os.close(self.descriptors.pop())

    def unmap(self):
        if self.map is not None:
            self.map.close()
            self.map = None


class Fsx:
    def __init__(self, number, mount, port, seed):
        self.folder, self.random, self.s3 = f"x{number}", random.Random(f"{seed} {number}"), S3(port)
        self.path = os.path.join(mount, self.folder)
        self.files, self.done, self.checks, self.missing = {}, 0, 0, set()

    def at(self, name):
        return os.path.join(self.path, name)

    def key(self, name):
        return f"{self.folder}/{name}"

    def open(self, name, flags=0):
        file = self.files[name]
        if len(file.descriptors) >= DESCRIPTORS_MAX:
            os.close(file.descriptors.pop(self.random.randrange(DESCRIPTORS_MAX)))
        file.descriptors.append(os.open(self.at(name), os.O_RDWR | flags))
        return file.descriptors[-1]

    def any_descriptor(self, name):
        file = self.files[name]
        return self.random.choice(file.descriptors) if file.descriptors else self.open(name)

    def range(self, name, end=FILE_BYTES_MAX):
        length = self.random.randrange(1, self.random.choice(PIECE_BYTES) + 1)
        return self.random.randrange(min(end, len(self.files[name].data) + 20_000)), length

    def put(self, name, at, piece):
        data = self.files[name].data
        data.extend(bytes(max(0, at - len(data))))
        data[at : at + len(piece)] = piece

    def compare(self, what, name, found, at=0, length=FILE_BYTES_MAX * 2):
        same(f"{what} of {self.key(name)} at {at}", bytes(found), bytes(self.files[name].data[at : at + length]))
        self.checks += 1

    # Calls.

    def read(self, name):
        at, length = self.range(name)
        self.compare("read", name, os.pread(self.any_descriptor(name), length, at), at, length)

    def write(self, name):
        at, length = self.range(name)
        piece = self.random.randbytes(length)
        if self.random.random() < 0.2:
            cut = self.random.randrange(length + 1)
            done = os.pwritev(self.any_descriptor(name), [piece[:cut], piece[cut:]], at)
        else:
            done = os.pwrite(self.any_descriptor(name), piece, at)
        self.put(name, at, piece[:done])

    def append(self, name):
        piece = self.random.randbytes(self.random.choice(PIECE_BYTES))
        if len(self.files[name].data) + len(piece) < FILE_BYTES_MAX:
            file = os.open(self.at(name), os.O_WRONLY | os.O_APPEND)
            self.put(name, len(self.files[name].data), piece[: os.write(file, piece)])
            os.close(file)

    def direct(self, name):
        at, length = self.range(name)
        at, length = at // BLOCK * BLOCK, (length // BLOCK + 1) * BLOCK
        file, buffer = os.open(self.at(name), os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, length)
        try:
            if self.random.random() < 0.5:
                buffer[:] = self.random.randbytes(length)
                self.put(name, at, buffer[: os.pwritev(file, [buffer], at)])
            else:
                self.compare("direct read", name, buffer[: os.preadv(file, [buffer], at)], at, length)
        finally:
            os.close(file)
            buffer.close()

    def mapped(self, name):
        """Through a map, which stays at times: what other calls write is seen in it and the other way round."""
        file = self.files[name]
        if not file.data:
            return
        if file.map is None or len(file.map) > len(file.data):
            file.unmap()
            # Pages of a map belong where they are, also on a descriptor that appends.
            appends = os.open(self.at(name), os.O_RDWR | os.O_APPEND)
            descriptor = appends if self.random.random() < 0.5 else self.any_descriptor(name)
            file.map = mmap.mmap(descriptor, len(file.data))
            os.close(appends)
        at, length = self.range(name, len(file.map))
        at = min(at, len(file.map) - 1)
        length = min(length, len(file.map) - at)
        if self.random.random() < 0.5:
            file.map[at : at + length] = piece = self.random.randbytes(length)
            self.put(name, at, piece)
        self.compare("map", name, file.map[at : at + length], at, length)
        if self.random.random() < 0.5:
            file.map.flush()
            file.unmap()

    def truncate(self, name):
        size = self.random.randrange(min(FILE_BYTES_MAX, len(self.files[name].data) + 50_000) + 1)
        # A page of a map behind the end is a signal.
        self.files[name].unmap()
        os.ftruncate(self.any_descriptor(name), size)
        data = self.files[name].data
        del data[size:]
        data.extend(bytes(size - len(data)))

    def allocate(self, name):
        data, (at, length) = self.files[name].data, self.range(name)
        mode = self.random.choice([0, KEEP, PUNCH | KEEP, PUNCH | KEEP, ZERO, ZERO | KEEP, COLLAPSE, INSERT])
        if mode in (COLLAPSE, INSERT):
            at, length = at // BLOCK * BLOCK, (length // BLOCK + 1) * BLOCK
            room = at + length < len(data) if mode == COLLAPSE else at < len(data) and len(data) + length < FILE_BYTES_MAX
            if not room:
                return
            self.files[name].unmap()
        if LIBC.fallocate(self.any_descriptor(name), mode, ctypes.c_long(at), ctypes.c_long(length)) != 0:
            if ctypes.get_errno() == errno.EOPNOTSUPP and mode in (COLLAPSE, INSERT):
                self.missing.add(mode)
                return
            raise OSError(ctypes.get_errno(), f"fallocate {mode}")
        if mode == COLLAPSE:
            del data[at : at + length]
            return
        if mode == INSERT:
            data[at:at] = bytes(length)
            return
        end = at + length if not mode & KEEP else min(at + length, len(data))
        data.extend(bytes(max(0, end - len(data))))
        if mode & (PUNCH | ZERO) and end > at:
            data[at:end] = bytes(end - at)

    def copy_range(self, name):
        source = self.random.choice(sorted(self.files))
        data = self.files[source].data
        if source == name or not data:
            return
        start = self.random.choice([0, self.random.randrange(len(data))])
        length, (at, _) = self.random.randrange(1, len(data) - start + 1), self.range(name)
        if at + length > FILE_BYTES_MAX:
            return
        source, file = self.any_descriptor(source), self.any_descriptor(name)
        done = os.copy_file_range(source, file, length, start, at)
        if done == 0:
            raise Wrong(f"copy_file_range to {self.key(name)} copies nothing of {length} bytes")
        self.put(name, at, bytes(data[start : start + done]))

    def sync(self, name):
        if self.files[name].map is not None:
            self.files[name].map.flush()
        self.random.choice([os.fsync, os.fdatasync])(self.any_descriptor(name))

    def forget(self, name):
        """The next read asks the server."""
        os.posix_fadvise(self.any_descriptor(name), 0, 0, os.POSIX_FADV_DONTNEED)

    def reopen(self, name):
        if self.random.random() < 0.5:
            self.files[name].close()
        self.open(name)

    def patch(self, name):
        """Bytes in the middle of a closed file, again and again: what is open is pinned, and reclaim leaves it alone."""
        file = self.files[name]
        file.close()
        for _ in range(self.random.randrange(1, 7)):
            if file.data:
                at = self.random.randrange(len(file.data))
                one = os.open(self.at(name), os.O_RDWR)
                file.data[at : at + 1] = piece = self.random.randbytes(1)
                os.pwrite(one, piece, at)
                os.fsync(one)
                os.close(one)

    def rename(self, name):
        other = self.random.choice(NAMES)
        if other != name:
            os.rename(self.at(name), self.at(other))
            if other in self.files:
                self.nameless(other)
            self.files[other] = self.files.pop(name)

    def unlink(self, name):
        if self.random.random() < 0.3:
            os.unlink(self.at(name))
            self.nameless(name)
            del self.files[name]

    def nameless(self, name):
        """A file that has no name any more keeps its bytes as long as it is open."""
        file = self.files[name]
        for one in file.descriptors:
            os.posix_fadvise(one, 0, 0, os.POSIX_FADV_DONTNEED)
            self.compare("file without a name", name, os.pread(one, FILE_BYTES_MAX * 2, 0))
        file.close()

    def s3_get(self, name):
        self.sync(name)
        self.compare("S3 GET", name, self.s3.get(self.key(name)) or b"")

    def s3_put(self, name):
        """Closed files only: one that is open keeps what it has."""
        self.files[name].close()
        data = self.random.randbytes(self.random.choice(PIECE_BYTES))
        self.s3.ask("PUT", self.key(name), body=data)
        self.files[name].data[:] = data
        self.until_shown(name)

    def s3_copy(self, name):
        """There it expires; and back, or to another file that is closed."""
        self.sync(name)
        short = f"{SHORT}{self.folder}{self.random.randrange(20)}"
        self.s3.ask("PUT", short, more={"x-amz-copy-source": f"/{BUCKET}/{self.key(name)}"})
        if self.random.random() < 0.5:
            other = self.random.choice(sorted(self.files))
            self.files[other].close()
            answer, _ = self.s3.ask("PUT", self.key(other), more={"x-amz-copy-source": f"/{BUCKET}/{short}"}, good=(200, 404))
            if answer.status == 200:
                # It may be another one's copy of the same name by now, but only this process has that name.
                self.files[other].data = bytearray(self.files[name].data)
                self.until_shown(other)

    def until_shown(self, name):
        """An answer of S3 may not have waited for the kernel."""
        deadline = time.monotonic() + LATE_SECONDS
        while True:
            found = read_file(self.at(name))
            if found == self.files[name].data or time.monotonic() > deadline:
                return self.compare("what S3 put", name, found)
            time.sleep(0.02)

    def step(self):
        names = sorted(self.files)
        missing = [name for name in NAMES if name not in self.files]
        if missing and (not names or self.random.random() < 0.1):
            os.close(os.open(self.at(missing[0]), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            self.files[missing[0]] = File()
            return
        calls = [self.read] * 6 + [self.write] * 6 + [self.append, self.direct, self.direct] + [self.mapped] * 3
        calls += [self.truncate] * 2 + [self.allocate] * 3 + [self.copy_range] * 2 + [self.sync] * 2 + [self.forget] * 3
        calls += [self.patch] * 6 + [self.reopen] * 2 + [self.rename, self.unlink, self.s3_get, self.s3_put, self.s3_copy]
        call, name = self.random.choice(calls), self.random.choice(names)
        try:
            call(name)
        except OSError as error:
            raise Wrong(f"{call.__name__} of {self.key(name)}, call {self.done}: {type(error).__name__}: {error}") from error
        except Wrong as wrong:
            raise Wrong(f"{call.__name__}, call {self.done}: {wrong}") from wrong

    def run(self, until):
        os.makedirs(self.path, exist_ok=True)
        while time.time() < until:
            self.step()
            self.done += 1
        self.close_and_compare()

    def close_and_compare(self):
        for name, file in self.files.items():
            self.sync(name)
            file.close()
            self.compare("the whole", name, read_file(self.at(name)))
            self.compare("S3 GET", name, self.s3.get(self.key(name)) or b"")


def work(fsx, until, told):
    wrong = None
    try:
        fsx.run(until)
    except (Wrong, OSError) as error:
        wrong = f"{error}"
    data = {name: bytes(file.data) for name, file in fsx.files.items()}
    told.put((fsx.folder, wrong, fsx.done, fsx.checks, sorted(fsx.missing), data))


def metrics(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.admin}/metrics", timeout=30) as answer:
        return {name: float(value) for name, value in re.findall(r"^margay_(\w+) (\S+)$", answer.read().decode(), re.M)}


def beside(server, processes, chooser, told):
    """Orders at random moments, until all have told how it went."""
    answers = []
    while len(answers) < len(processes):
        if any(process.exitcode for process in processes):
            raise Wrong(f"a worker ends with {[process.exitcode for process in processes]}")
        done = server.compact()
        if done.returncode != 0:
            raise Wrong(f"compact: {done.stdout}{done.stderr}")
        if found := server.sample():
            raise Wrong(f"{found}")
        if server.process.poll() is not None:
            raise Wrong(f"the server ended by itself: {server.said()}")
        time.sleep(chooser.uniform(0, ORDER_PAUSE_SECONDS))
        while not told.empty():
            answers.append(told.get())
    return answers


def one_run(args, server):
    server.start()
    S3(server.port).ask("PUT", "", "lifecycle=", RULES.encode())
    context, until = multiprocessing.get_context("fork"), time.time() + args.seconds
    told = context.Queue()
    each = [Fsx(number, str(server.mount), server.port, args.seed) for number in range(args.workers)]
    processes = [context.Process(target=work, args=(fsx, until, told)) for fsx in each]
    for process in processes:
        process.start()
    try:
        answers = beside(server, processes, random.Random(args.seed), told)
    finally:
        for process in processes:
            process.kill()
    wrong = [one for _, one, *_ in answers if one]
    if wrong:
        raise Wrong("\n".join(wrong))
    last = metrics(server)
    server.end(signal.SIGTERM)
    server.fsck()
    server.start()
    for folder, _, _, _, _, data in answers:
        for name, bytes_of in data.items():
            same(f"{folder}/{name} after a restart", read_file(server.mount / folder / name), bytes_of)
    server.end(signal.SIGTERM)
    server.fsck()
    reclaimed = {name: int(value) for name, value in server.totals.items()}
    moved, removed = (reclaimed.get(f"reclaim_{what}_total", 0) for what in ("moved_bytes", "removed_segments"))
    expired, checked = int(last["expiry_objects_total"]), "check_timestamp_seconds" in last
    if args.seconds >= PROOF_SECONDS and not (moved and removed and expired and checked):
        raise Wrong(f"this shows nothing: moved {moved}, removed {removed}, expired {expired}, checked {checked}")
    calls, checks = sum(one[2] for one in answers), sum(one[3] for one in answers)
    refused = sorted({mode for one in answers for mode in one[4]})
    print(f"evidence: fsx on the mount: {calls} calls, {checks} comparisons, reclaim moved {moved >> 10} KiB and removed {removed} "
          f"segments, {expired} copies expired, modes of fallocate that are not supported: {refused or 'none'}, 0 differences")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--folder", default=None, help="where the directory is made")
    parser.add_argument("--set", action="append", default=[], help="a setting of the server")
    args = parser.parse_args()
    args.full, args.large, args.set = False, False, SETTINGS + args.set
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parents[2] / "target"))
    args.binary = os.environ.get("MARGAY_BIN", target / "release/margay")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="margay-fsx.", dir=args.folder))
    server = churn.Server(args, folder)
    try:
        one_run(args, server)
    except (Wrong, OSError) as error:
        print(f"FAILED fsx (--seed {args.seed}, {folder}): {error}\n{server.said()}", flush=True)
        sys.exit(1)
    finally:
        server.end(signal.SIGKILL)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
