#!/usr/bin/env python3
"""Directories of the build that lost data (CHANGELOG), before and after its first loss, and what this build makes of them.

    loss.py make OLD FOLDER [--before SECONDS]   FOLDER/before and FOLDER/after: data, and `expected` with a line `MD5 SIZE KEY` a file
    loss.py check NEW FOLDER                     opens copies of both with NEW: nothing more is lost, fsck names each lost file, counters are mended
    loss.py gate OLD NEW [ROUNDS]                both, ROUNDS times (3)

OLD is built from a0fa0d6 or an earlier commit. tests/upgrade/loss/*.tar.gz were packed from `make`; tests/upgrade.rs opens them. `make` and
`check` need root and /dev/fuse. What is in flight when OLD is killed is left out of `expected`.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_port  # noqa: E402

SIZE = 300_000
BUCKET = "kept"
SMALL = ["limits.log_bytes_max=8MiB", "limits.pack_bytes_max=1MiB", "limits.raw_bytes_min=1MiB"]
SOON = ["limits.quarantine_time=1", "limits.check_interval=3600"]
KEYS = {"MARGAY_ACCESS_KEY": "UPGRADEUPGRADEUPGRAD", "MARGAY_SECRET_KEY": "upgrade/secret+upgrade/secret+upgrade12"}
LOSS_SECONDS_MAX = 300
COMPACTIONS = 5


class Server:
    def __init__(self, binary, data, mount, settings):
        self.binary, self.data, self.mount = binary, data, mount
        mount.mkdir(exist_ok=True)
        address = f"127.0.0.1:{free_port()}"
        command = [binary, "serve", "--data", data, "--address", address, "--admin-address", "off", "--mount", f"{BUCKET}={mount}"]
        for setting in settings:
            command += ["--set", setting]
        self.log = data.parent / "log"
        log = open(self.log, "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | KEYS)
        while not os.path.ismount(mount):
            if self.process.poll() is not None:
                raise SystemExit(f"{binary} ends: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(120)
        subprocess.run(["umount", "-l", self.mount], stderr=subprocess.DEVNULL)


class Writer(threading.Thread):
    """Makes files, writes one byte in the middle of others and removes some, each change synced."""

    def __init__(self, number, mount, rng):
        super().__init__()
        self.number, self.mount, self.random = number, mount, rng
        # Bytes that compress, told apart by the name: {name: content}; the name that is being changed.
        self.files, self.busy, self.ended = {}, None, False

    def put(self, name):
        data = (name.encode() + b" ").ljust(16, b".") * (SIZE // 16)
        self.busy = name
        file = os.open(self.mount / name, os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(file, data)
        os.fsync(file)
        os.close(file)
        self.files[name], self.busy = bytearray(data), None

    def overwrite(self, name):
        at = self.random.randrange(SIZE)
        self.busy = name
        file = os.open(self.mount / name, os.O_WRONLY)
        os.pwrite(file, b"!", at)
        os.fsync(file)
        os.close(file)
        self.files[name][at] = ord("!")
        self.busy = None

    def unlink(self, name):
        self.busy = name
        os.unlink(self.mount / name)
        del self.files[name]
        self.busy = None

    def run(self):
        try:
            k = 0
            while not self.ended:
                for name in (f"k{self.number}-{k}", f"x{self.number}", f"y{self.number}"):
                    self.put(name)
                keep = sorted((name for name in self.files if name[0] == "k"), key=lambda name: int(name.split("-")[1]))
                for name in self.random.sample(keep, min(6, len(keep))):
                    self.overwrite(name)
                for name in (f"x{self.number}", f"y{self.number}", *keep[:1] * (len(keep) > 20)):
                    self.unlink(name)
                k += 1
        except OSError:
            # The server was killed, or lost what this writer needs.
            pass


def is_lost(mount, writers):
    """Whether a file that nobody changes just now cannot be read."""
    for writer in writers:
        for name in list(writer.files):
            try:
                (mount / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError:
                return True
    return False


def write_expected(path, writers):
    with open(path, "w") as file:
        for writer in writers:
            for name, data in sorted(writer.files.items()):
                if name != writer.busy:
                    file.write(f"{hashlib.md5(data).hexdigest()} {len(data)} {name}\n")


def make_one(old, folder, before):
    """Runs OLD until it has lost a file, or for `before` seconds; then kills it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = Server(old, folder / "data", folder / "mount", SMALL)
    writers = [Writer(number, folder / "mount", random.Random(f"{time.time()} {number}")) for number in range(3)]
    for writer in writers:
        writer.start()
    end, lost = time.monotonic() + (before or LOSS_SECONDS_MAX), False
    while time.monotonic() < end and not lost:
        lost = is_lost(folder / "mount", writers)
    server.end(signal.SIGKILL)
    for writer in writers:
        writer.ended = True
        writer.join()
    write_expected(folder / "expected", writers)
    (folder / "mount").rmdir()
    return lost


def make(old, folder, before):
    while make_one(old, folder / "before", before):
        before *= 0.7
    if not make_one(old, folder / "after", None):
        raise SystemExit(f"{old} lost nothing in {LOSS_SECONDS_MAX} s")


def run(new, data, *words):
    command = [new, words[0], "--data", data, *words[1:]]
    for setting in SMALL if words[0] == "fsck" else []:
        command += ["--set", setting]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | KEYS)


def findings(done):
    if done.returncode not in (0, 4):
        raise SystemExit(f"fsck ends with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["shown"]


def named_lost(done):
    """Names of files that fsck calls lost."""
    texts = (one["what"] for one in findings(done) if one["kind"] == "MissingData")
    return {text.split(": ")[0].removeprefix(f"{BUCKET}/") for text in texts}


def wrong_ones(mount, expected):
    """Files that cannot be read; one that reads as something else ends the check."""
    lost = set()
    for name, md5 in expected.items():
        try:
            data = (mount / name).read_bytes()
        except FileNotFoundError:
            raise SystemExit(f"BROKEN: {name} is not there") from None
        except OSError:
            lost.add(name)
            continue
        if hashlib.md5(data).hexdigest() != md5:
            raise SystemExit(f"BROKEN: {name} has other bytes")
    return lost


def check(new, folder):
    expected = dict(reversed(line.split(" ")[::2]) for line in (folder / "expected").read_text().splitlines())
    work = pathlib.Path(tempfile.mkdtemp(prefix="margay-loss."))
    data, mount = work / "data", work / "mount"
    shutil.copytree(folder / "data", data, ignore=shutil.ignore_patterns("control"))
    named = named_lost(run(new, data, "fsck", "--json", "--show", "10000"))
    server = Server(new, data, mount, SMALL + SOON)
    first = wrong_ones(mount, expected)
    # New writes and reclaim go on beside what the old build left.
    writers = [Writer(number + 10, mount, random.Random(number)) for number in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(COMPACTIONS):
        time.sleep(1.5)
        run(new, data, "compact", "--json")
    for writer in writers:
        writer.ended = True
        writer.join()
    second = wrong_ones(mount, expected)
    for writer in writers:
        second |= wrong_ones(mount, {name: hashlib.md5(bytes_).hexdigest() for name, bytes_ in writer.files.items()})
    server.end(signal.SIGTERM)
    busy = named - expected.keys()
    if first != second or first != named - busy:
        raise SystemExit(f"BROKEN: lost at first {sorted(first)}, at last {sorted(second)}, named by fsck {sorted(named)}")
    repaired = findings(run(new, data, "fsck", "--json", "--repair", "--show", "10000"))
    server = Server(new, data, mount, SMALL + SOON)
    for name in named:
        (mount / name).unlink(missing_ok=True)
    server.end(signal.SIGTERM)
    left = findings(run(new, data, "fsck", "--json", "--repair", "--show", "10000"))
    last = run(new, data, "fsck", "--json")
    if last.returncode != 0:
        raise SystemExit(f"BROKEN: after --repair and removal of what was lost fsck finds {last.stdout}")
    shutil.rmtree(work)
    print(f"{folder.name}: {len(expected)} files, {len(first)} lost, all named by fsck, no more lost by {COMPACTIONS} compactions beside new "
          f"writes; {len(repaired)} findings at the repair, {len(left)} after removal of the lost, 0 at last", flush=True)


def main(what, *words):
    if what == "make":
        make(words[0], pathlib.Path(words[1]), float(words[3]) if len(words) > 2 else 4)
    elif what == "check":
        for one in ("before", "after"):
            check(words[0], pathlib.Path(words[1]) / one)
    elif what == "gate":
        for _ in range(int(words[2]) if len(words) > 2 else 3):
            with tempfile.TemporaryDirectory(prefix="margay-loss.") as folder:
                make(words[0], pathlib.Path(folder), 4)
                for one in ("before", "after"):
                    check(words[1], pathlib.Path(folder) / one)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
