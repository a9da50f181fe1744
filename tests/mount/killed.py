"""kill -9 of a server while its threads are inside the kernel for its own mount: gone in seconds, and served again.

Programs create a file, fsync its directory and remove the file, while S3 puts objects into that directory: the thread
that tells the kernel of them waits for the directory's lock, which an fsync holds that waits for the server. Whoever is
killed in there must be gone within GONE_SECONDS; the programs get errors; the next start mounts again and shows all.

Usage: unshare --mount --propagation private python3 tests/mount/killed.py KILLS [RESULTS]. Needs root and /dev/fuse;
MARGAY_BIN names the program. RESULTS, a file, gets a line for each kill; a run goes on where the last one of the same
program stopped. WAY=server|guard|both|user[,...] says who is killed: the server; the process that guards its mounts, then the
server; both at once, which only the next start can mend; a server without root. By default all in turns.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import isolation
from isolation import MARGAY, NOBODY, ROOT, World, fail

GONE_SECONDS = 5
START_SECONDS = 60
LOOPS, PUTTERS = 3, 3
WAYS = ("server", "server", "server", "guard", "both", "user")
GUARD = b"margay-guard"
# How a process ends that found what it was to find.
YES = 7


VERBOSE = sys.stderr if "VERBOSE" in os.environ else open(os.devnull, "w")


def as_user(user):
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def started(user, work, *arguments):
    """A process that runs `work` until its mount is gone."""
    child = os.fork()
    if child:
        return child
    try:
        as_user(user)
        work(*arguments)
    except Exception as error:
        print(f"{work.__name__}: {error!r}", file=VERBOSE, flush=True)
        os._exit(0)
    os._exit(1)


def sync_directory(folder, number):
    directory = os.open(folder, os.O_RDONLY)
    path = os.path.join(folder, f"f{number}")
    while True:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        os.fsync(directory)
        os.unlink(path)


def put(world, number):
    while True:
        for turn in range(50):
            world.request("PUT", f"/demo/d/o{number}-{turn}", ROOT, b"object")
            world.request("DELETE", f"/demo/d/o{number}-{turn}", ROOT)


class Server(World):
    """One that is killed and started again on the same data."""

    def __init__(self, folder, user):
        self.folder, self.user = folder, user
        self.data, self.mnt = self.at("data"), self.at("mnt")
        self.log = open(self.at("log"), "a")
        self.port = isolation.free_port()

    def start(self):
        """Seconds until it is mounted again."""
        begun = time.monotonic()
        self.server = subprocess.Popen(
            [MARGAY, "serve", "--data", self.data, "--address", f"127.0.0.1:{self.port}", "--admin-address", "off"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=self.environment(ROOT), cwd="/",
            preexec_fn=lambda: as_user(self.user))
        while self.margay("status").returncode:
            if self.server.poll() is not None or time.monotonic() > begun + START_SECONDS:
                fail(f"does not serve again: {self.said()}")
            time.sleep(0.02)
        own = f"uid={self.user},gid={self.user}" if self.user is not None else ""
        made = self.margay("mount", "demo", self.mnt, "--create", "-o", own, timeout=START_SECONDS)
        if made.returncode:
            fail(f"does not mount again: {made.stderr}")
        while not self.shows():
            if self.server.poll() is not None or time.monotonic() > begun + START_SECONDS:
                fail(f"shows not what it should: {self.said()}")
            time.sleep(0.02)
        return time.monotonic() - begun

    def said(self):
        return isolation.read(self.at("log"))[-2000:].decode()

    def shows(self):
        """Asked by a process of its own: this one must not hang."""
        looked = started(self.user, lambda: os._exit(YES if os.path.ismount(self.mnt) and self.whole() else 0))
        for _ in range(1000):
            found, status = os.waitpid(looked, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status) == YES
            if self.server.poll() is not None:
                return False
            time.sleep(0.01)
        return False

    def whole(self):
        try:
            with open(os.path.join(self.mnt, "canary")) as canary:
                return canary.read() == "canary"
        except FileNotFoundError:
            return not os.path.exists(self.at("made"))

    def cut(self, process):
        """As an administrator would, so that the test goes on."""
        with open("/proc/self/mountinfo") as lines:
            device = next(line.split()[2] for line in lines if line.split()[4] == self.mnt)
        folder = tempfile.mkdtemp(prefix="margay-fusectl.")
        subprocess.run(["mount", "-t", "fusectl", "fusectl", folder], check=True)
        with open(os.path.join(folder, device.split(":")[1], "abort"), "w") as abort:
            abort.write("1")
        subprocess.run(["umount", folder], check=True)
        os.rmdir(folder)
        process.wait()

    def guard(self):
        tasks = f"/proc/{self.server.pid}/task"
        for task in os.listdir(tasks):
            # A thread, or a guard that was killed, may go between two looks at it.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"{tasks}/{task}/children") as children:
                for child in children.read().split():
                    if command_of(child) == GUARD:
                        return int(child)
        return None


def command_of(process):
    with open(f"/proc/{process}/cmdline", "rb") as line:
        return line.read().split(b"\0")[0]


def killed(server, way, choice):
    """One kill under load; how long the server was still there, and how long the next start took."""
    loops = [started(server.user, sync_directory, os.path.join(server.mnt, "d"), number) for number in range(LOOPS)]
    putters = [started(None, put, server, number) for number in range(PUTTERS)]
    time.sleep(choice.uniform(0.2, 0.8))
    until(server.guard, "a guard")
    guard = server.guard()
    if way in ("guard", "both"):
        os.kill(guard, signal.SIGKILL)
    if way == "guard":
        until(lambda: server.guard() not in (None, guard), "another guard")
    begun = time.monotonic()
    server.server.kill()
    old = server.server
    if way != "both":
        gone = wait(old, GONE_SECONDS)
        if gone is None:
            server.cut(old)
    again = server.start()
    if way == "both":
        gone = None if wait(old, GONE_SECONDS) is None else time.monotonic() - begun
    for child in putters:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    deadline = time.monotonic() + 30
    for child in loops:
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                return {"gone": gone, "again": again, "hangs": child}
            time.sleep(0.02)
    return {"gone": gone, "again": again}


def until(holds, what):
    deadline = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            fail(f"there is not {what}")
        time.sleep(0.01)


def wait(process, seconds):
    begun = time.monotonic()
    while process.poll() is None:
        if time.monotonic() > begun + seconds:
            return None
        time.sleep(0.01)
    return time.monotonic() - begun


def begin(server):
    user = server.user
    for path in (server.data, server.mnt):
        os.mkdir(path, 0o700)
        if user is not None:
            os.chown(path, user, user)
    server.start()
    made = started(user, lambda: (os.mkdir(os.path.join(server.mnt, "d")), isolation.write(
        os.path.join(server.mnt, "canary"), b"canary"), os._exit(YES)))
    if os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]) != YES:
        fail("cannot write to the mount")
    open(server.at("made"), "w").close()


def end(server):
    server.end()
    while any(line.split()[4] == server.mnt for line in open("/proc/self/mountinfo")):
        subprocess.run(["umount", "-l", server.mnt], check=True)


def allow_users():
    """Everybody may open the device and, as on a machine with systemd, each user cut his own connections."""
    subprocess.run(["mount", "-t", "fusectl", "fusectl", "/sys/fs/fuse/connections"], check=False, capture_output=True)
    device = tempfile.mktemp(prefix="margay-fuse-device.")
    os.mknod(device, 0o20666, os.makedev(10, 229))
    os.chmod(device, 0o666)
    subprocess.run(["mount", "--bind", device, "/dev/fuse"], check=True)
    return device


def main():
    kills = int(sys.argv[1])
    results = sys.argv[2] if len(sys.argv) > 2 else None
    ways = os.environ["WAY"].split(",") if "WAY" in os.environ else list(WAYS)
    if "user" in ways and not shutil.which("fusermount3"):
        print("skipped: kills of a server of another user, because there is no fusermount3 (package fuse3), without which he mounts nothing")
        ways = [way for way in ways if way != "user"] or ["server"]
    program = hashlib.sha256(isolation.read(MARGAY)).hexdigest()[:16]
    have = []
    if results and os.path.exists(results):
        have = [line for line in map(json.loads, open(results)) if line["program"] == program]
    folder = tempfile.mkdtemp(prefix="margay-killed.")
    os.chmod(folder, 0o755)
    device = allow_users() if "user" in ways else None
    servers = {}
    try:
        for number in range(len(have), kills):
            way = ways[number % len(ways)]
            user = NOBODY.pw_uid if way == "user" else None
            if user not in servers:
                place = os.path.join(folder, str(user))
                os.mkdir(place)
                os.chmod(place, 0o755)
                servers[user] = Server(place, user)
                begin(servers[user])
            line = {"kill": number, "way": way, "program": program} | killed(servers[user], way, random.Random(number))
            have.append(line)
            if results:
                with open(results, "a") as file:
                    file.write(json.dumps(line) + "\n")
    finally:
        for server in servers.values():
            end(server)
        if device:
            subprocess.run(["umount", "-l", "/dev/fuse"], check=True)
            os.unlink(device)
        shutil.rmtree(folder)
    bad = [line for line in have if line["gone"] is None or "hangs" in line]
    if bad:
        fail(f"{len(bad)} of {len(have)} kills left something that hangs: {bad[:5]}")
    longest = max((line["gone"] for line in have if line["way"] != "both" and line["gone"] is not None), default=0)
    print(f"evidence: killed beside fsync of directories: {len(have)} kills, none hung, "
          f"gone after {longest:.1f} s at most, mounted again each time")


if __name__ == "__main__":
    main()
