#!/usr/bin/env python3
"""One machine, two disks, copies on both: a disk is pulled under load, replaced and filled, then the other one, then a disk
of metadata. Goals: no request and no call of the mount fails, nothing acknowledged is lost, and a kill in between changes
neither. Disks are ext4 in files on loop devices, pulled by the file system's own shutdown (every call gives EIO from then on).
Needs root, mkfs.ext4 and loop devices. SECONDS of load between two events: first argument, default 5."""

import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

import server
from server import Server, finish, goal

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 5
DISK_MIB = int(os.environ.get("DISK_MIB", "3072"))
SIZES = [200, 4 << 10, 70 << 10, 700 << 10, 3 << 20]
LARGE = 17 << 20  # in a segment of its own
# Beyond this the load goes on with small ones: a full disk is not what is tried here.
WRITTEN_MAX = (DISK_MIB << 20) // 3
WRITERS, FILES = 3, 2
EXT4_SHUTDOWN = 0x8004587D


class Disk:
    """A file system of its own."""

    def __init__(self, folder, name):
        self.image, self.path = folder / f"{name}.img", folder / name
        self.path.mkdir()
        self.mount()

    def mount(self):
        with open(self.image, "wb") as image:
            image.truncate(DISK_MIB << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m0", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.path], check=True)

    def pull(self):
        handle = os.open(self.path, os.O_RDONLY)
        fcntl.ioctl(handle, EXT4_SHUTDOWN, struct.pack("I", 2))
        os.close(handle)

    def unmount(self):
        subprocess.run(["umount", "-l", self.path], check=False, stderr=subprocess.DEVNULL)

    def replace(self):
        self.unmount()
        self.image.unlink()
        self.mount()


class Node(Server):
    """Its log is on no disk that is pulled."""

    def __init__(self, log, *arguments):
        super().__init__(*arguments)
        self.log = log

    def spawn(self):
        command = [self.binary, "serve", "--data", self.data, "--address", self.host]
        command += ["--admin-address", f"127.0.0.1:{self.admin_port}", *self.options]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


def content(key, size):
    return random.Random(key).randbytes(size)


class Load:
    """PUT, GET and files of a mount; what was acknowledged is remembered."""

    def __init__(self, node, mount):
        self.node, self.mount = node, mount
        self.known, self.errors, self.requests, self.lock = {}, [], 0, threading.Lock()
        self.paused, self.ended = threading.Event(), threading.Event()
        self.busy = self.written = 0
        names = [(self.objects, n) for n in range(WRITERS)] + [(self.files, n) for n in range(FILES if mount else 0)]
        self.threads = [threading.Thread(target=self.run, args=name, daemon=True) for name in names]
        for thread in self.threads:
            thread.start()

    def run(self, work, number):
        dice, count = random.Random(number), 0
        while not self.ended.is_set():
            if self.paused.is_set():
                time.sleep(0.01)
                continue
            with self.lock:
                self.busy += 1
            count += 1
            try:
                work(f"{number}-{count}", dice)
            except Exception as error:  # noqa: BLE001
                self.error(f"{work.__name__}: {error!r}")
            with self.lock:
                self.busy -= 1

    def error(self, text):
        with self.lock:
            self.errors.append(f"{time.monotonic():.1f} {text}")

    def note(self, key, size):
        with self.lock:
            self.requests += 1
            if size is not None:
                self.known[key] = size
                self.written += size

    def size(self, dice):
        if self.written > WRITTEN_MAX:
            return dice.choice(SIZES[:2])
        return LARGE if dice.random() < 0.03 else dice.choice(SIZES)

    def objects(self, name, dice):
        size = self.size(dice)
        status, text = self.node.request("PUT", f"/bucket/o{name}", content(f"o{name}", size))
        if status != 200:
            self.error(f"PUT {status} {text[:200]}")
            return
        self.note(f"o{name}", size)
        with self.lock:
            key = dice.choice(list(self.known))
            size = self.known[key]
        self.get(key, size)

    def get(self, key, size):
        status, found = self.node.request("GET", f"/bucket/{key}")
        self.note(key, None)
        if status != 200 or found != content(key, size):
            self.error(f"GET {key} of {size} bytes: {status}, {len(found)} bytes {found[:120] if status != 200 else b''}")
            return False
        return True

    def files(self, name, dice):
        size = self.size(dice)
        path = self.mount / f"f{name}"
        with open(path, "wb") as file:
            file.write(content(f"f{name}", size))
            file.flush()
            os.fsync(file.fileno())
        self.note(f"f{name}", size)
        if hashlib.md5(path.read_bytes()).digest() != hashlib.md5(content(f"f{name}", size)).digest():
            self.error(f"{path} is wrong")

    def pause(self):
        self.paused.set()
        while self.busy:
            time.sleep(0.01)

    def check(self):
        """Reads everything that was acknowledged; gives how much is wrong."""
        with self.lock:
            known = list(self.known.items())
        return sum(not self.get(key, size) for key, size in known), len(known)


def command(node, *arguments):
    done = subprocess.run([server.BINARY, *arguments], capture_output=True, text=True, env=node.environment)
    if done.returncode:
        raise SystemExit(f"margay {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def disks(node):
    return json.loads(command(node, "status", "--data", node.data, "--json"))["storage"]["disks"]


def until(what, seconds, holds):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def is_whole(node):
    found = disks(node)
    return found["short_files"] == 0 and all("why" not in disk for disk in found["of"].values())


def round_of(node, load, disk):
    before = len(load.errors)
    disk.pull()
    print(f"pulled {disk.path.name}", flush=True)
    time.sleep(SECONDS)
    until("the disk is out", 30, lambda: "why" in disks(node)["of"][str(disk.path)])
    print("   ", disks(node)["of"][str(disk.path)]["why"], flush=True)
    disk.replace()
    command(node, "disk", "add", str(disk.path), "--data", node.data)
    begun, shown = time.monotonic(), set()
    while not is_whole(node):
        filling = disks(node)["filling"]
        if filling != "none" and filling["files_left"] not in shown and len(shown) < 3:
            shown.add(filling["files_left"])
            print("    filling:", filling, flush=True)
        if time.monotonic() - begun > 600:
            raise SystemExit(f"not filled: {json.dumps(disks(node), indent=1)}")
        time.sleep(0.2)
    print(f"    replaced, filled in {time.monotonic() - begun:.1f} s", flush=True)
    goal(f"{disk.path.name} pulled, replaced, filled: {len(load.errors) - before} errors (0)", len(load.errors) == before)
    for error in load.errors[before : before + 3]:
        print("   ", error, flush=True)


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="margay-goals."))
    made = [Disk(folder, name) for name in ("data", "mirror", "d1", "d2")]
    data, mirror, d1, d2 = made
    mount = folder / "mount"
    mount.mkdir()
    options = ["--disk", str(d1.path), "--disk", str(d2.path), "--copies", "2"]
    options += ["--mirror-metadata", str(mirror.path / "v"), "--mount", f"bucket={mount}"]
    node = Node(folder / "log", data.path / "v", *options)
    try:
        node.start()
        node.request("PUT", "/bucket")
        load = Load(node, mount if node.appears(mount) else None)
        until("all copies are made", 60, lambda: is_whole(node))
        time.sleep(SECONDS)
        for disk in (d1, d2, d1):
            round_of(node, load, disk)
        load.pause()
        node.kill()
        subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
        node.start()
        wrong, count = load.check()
        goal(f"killed and started: {wrong} of {count} acknowledged are lost or wrong (0)", wrong == 0)
        until("all copies are made", 120, lambda: is_whole(node))
        node.appears(mount)
        load.paused.clear()
        time.sleep(SECONDS)
        before = len(load.errors)
        mirror.pull()
        time.sleep(SECONDS)
        mirror.replace()
        command(node, "disk", "add", str(mirror.path / "v"), "--data", node.data)
        until("the mirror is filled", 120, lambda: is_whole(node))
        goal(f"the mirror of metadata pulled, replaced, filled: {len(load.errors) - before} errors (0)", len(load.errors) == before)
        before = len(load.errors)
        data.pull()
        time.sleep(SECONDS)
        goal(f"the data directory pulled: {len(load.errors) - before} errors (0)", len(load.errors) == before)
        for error in load.errors[before : before + 3]:
            print("   ", error, flush=True)
        load.pause()
        load.ended.set()
        wrong, count = load.check()
        goal(f"without it: {wrong} of {count} acknowledged are lost or wrong (0)", wrong == 0)
        node.kill()
        subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
        data.unmount()
        alone = Node(folder / "log-alone", mirror.path / "v")
        load.node = alone
        try:
            alone.start()
            wrong, count = load.check()
            goal(f"opened from the mirror: {wrong} of {count} acknowledged are lost or wrong (0)", wrong == 0)
            d2.pull()
            wrong, count = load.check()
            goal(f"and with one disk only: {wrong} of {count} are lost or wrong (0)", wrong == 0)
        finally:
            alone.stop()
        print(f"{load.requests} requests and files, {count} acknowledged, {len(load.errors)} errors in all")
    finally:
        node.stop()
        for path in (mount, *(disk.path for disk in made)):
            subprocess.run(["umount", "-l", path], check=False, stderr=subprocess.DEVNULL)
        if os.environ.get("KEEP") is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(folder)
    finish()


main()
