"""Nothing is lost on the way to a far bucket: python3 tests/goals/far_nothing_lost.py [--kills N] [--offline-minutes N] [--writers N] [--seed N] [--store HOST:PORT]

The store is one margay server, or with --store another program, behind a network that can be broken (broken_network.py). Writers create, replace, overwrite, append, rename,
remove and sync files and directories of a far mount, and keep a manifest of what was acknowledged (manifest.py). The goals:
  kills     the mount's process is killed at random moments; in turns the server too, or all connections are cut. After each kill the bucket
            alone has everything that was acknowledged, and the mount shows a state that the writer had. At the end all is read again by S3 and
            by a mount with an empty cache: nothing lost, nothing torn
  offline   the network is gone under load: refused for half of the time, silent for the other half. The mount goes on with what is in its
            cache (no call fails or takes over CALL_SECONDS_MAX), what is not fails within UNKNOWN_SECONDS_MAX, an fsync within
            FSYNC_SECONDS_MAX; when the network is back everything arrives within ARRIVAL_SECONDS_MAX without any action
"""

import argparse
import http.client
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse

import server as goals
import sign
from broken_network import Network
from far_writer import CALL_SECONDS_MAX, Writer
from server import ACCESS, SECRET, Server, free_port, goal

BUCKET, MOUNT_SECONDS = "far", 60
UNKNOWN_SECONDS_MAX, FSYNC_SECONDS_MAX, ARRIVAL_SECONDS_MAX = 65, 75, 180
HIDDEN = (".margay-tmp/", ".margay/")


class Bucket:
    """What a third client sees, straight at the server."""

    def __init__(self, server, keys):
        self.server, self.keys, self.connection = server, keys, None

    def ask(self, method, path, query="", body=b""):
        for last in [False, True]:
            try:
                self.connection = self.connection or http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
                target = path + ("?" + query if query else "")
                access, secret, region = self.keys.values()
                headers = sign.headers(method, self.server.host, path, query, access, secret, region)
                self.connection.request(method, target, body, headers)
                answer = self.connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException):
                self.connection = None
                if last:
                    raise

    def all_keys(self):
        found, after = [], ""
        while True:
            more = "&start-after=" + urllib.parse.quote(after, safe="") if after else ""
            status, page = self.ask("GET", f"/{BUCKET}", "list-type=2" + more)
            if status != 200:
                raise SystemExit(f"a listing was answered {status}")
            keys = [key.decode() for key in re.findall(rb"<Key>([^<]*)</Key>", page)]
            found += keys
            if b"<IsTruncated>true" not in page:
                return found
            after = keys[-1]

    def tree(self):
        """All files of the bucket."""
        keys = [key for key in self.all_keys() if not key.endswith("/") and not key.startswith(HIDDEN)]
        answers = {key: self.ask("GET", f"/{BUCKET}/{key}") for key in keys}
        return {key: body for key, (status, body) in answers.items() if status == 200}


class Foreign:
    """A store of another program, which nobody here starts or kills."""

    def __init__(self, host):
        self.host, self.port = host, int(host.rsplit(":", 1)[1])

    def start(self):
        return self

    def kill(self):
        pass

    def stop(self):
        pass


class World:
    """A server, a network, a mount, and its writers."""

    def __init__(self, folder, options):
        self.folder, self.count = folder, 0
        keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
        if options.store:
            keys = {name: os.environ.get(name, value) for name, value in keys.items()}
            self.server = Foreign(options.store)
        else:
            self.server = Server(self.path("data")).start()
        self.bucket = Bucket(self.server, keys)
        self.bucket.ask("PUT", f"/{BUCKET}")
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self.network = Network(f"127.0.0.1:{port}", self.server.host)
        self.environment = os.environ | keys | {"XDG_STATE_HOME": self.path("state")}
        self.where, self.process = self.path("mount"), None
        os.mkdir(self.where)
        self.mount()
        self.writers = [Writer(self.where, number, options.seed, options.pause, options.large) for number in range(options.writers)]

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self, where, cache):
        command = [goals.BINARY, "mount", f"s3://{BUCKET}", where, "--endpoint", self.endpoint, "--cache", cache, "--foreground"]
        with open(cache + ".log", "ab") as log:
            process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + MOUNT_SECONDS
        while not is_mounted(where):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"no mount ({process.poll()}); see {cache}.log")
            time.sleep(0.02)
        return process

    def mount(self):
        self.process = self.start(self.where, self.path("cache"))

    def kill_mount(self):
        self.process.kill()
        self.process.wait()

    def unmount(self, where, process):
        subprocess.run(["umount", where], check=True)
        if process.wait():
            raise SystemExit(f"the mount at {where} ended with {process.returncode}")

    def parked(self):
        for writer in self.writers:
            writer.park()

    def go_on(self):
        for writer in self.writers:
            writer.go_on()

    def judge(self, is_at_rest=False):
        """What is wrong in the bucket; an answer on its way may need a moment, so a second look counts."""
        for pause in [1, 0]:
            tree = self.bucket.tree()
            wrong = [text for writer in self.writers for text in writer.judge_bucket(tree, is_at_rest)]
            if not wrong:
                return []
            time.sleep(pause)
        return wrong

    def end(self):
        for writer in self.writers:
            writer.end()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        subprocess.run(["umount", "-l", self.where], check=False, stderr=subprocess.DEVNULL)
        self.network.end()
        self.server.stop()


def is_mounted(path):
    try:
        # Never answered from the kernel's cache. While a dead mount goes, the directory below it answers.
        os.statvfs(path)
        return os.path.ismount(path)
    except OSError:
        return False


class Faults:
    """What was found, told as it is found."""

    def __init__(self):
        self.found = []

    def add(self, when, wrong):
        for text in wrong:
            print(f"WRONG {when}: {text}", flush=True)
            self.found.append(text)

    def count(self, word):
        return sum(text.startswith(word) for text in self.found)


def kills(world, options, faults):
    generator, slowest = random.Random(options.seed), 0
    for writer in world.writers:
        writer.begin()
    for number in range(options.kills):
        time.sleep(generator.uniform(0.05, options.kill_seconds))
        turn = ["mount", "server", "network"][number % 3]
        if turn == "server":
            world.server.kill()
            time.sleep(generator.uniform(0, 1))
            world.server.start()
            time.sleep(generator.uniform(0, 1))
        elif turn == "network":
            world.network.order("cut")
            time.sleep(generator.uniform(0, 0.5))
            world.network.order("cut")
        world.kill_mount()
        world.parked()
        when = f"kill {number + 1} ({turn})"
        faults.add(when + ", in the bucket", world.judge())
        began = time.monotonic()
        world.mount()
        slowest = max(slowest, time.monotonic() - began)
        for writer in world.writers:
            faults.add(when + ", in the mount", writer.adopt())
        world.go_on()
        if (number + 1) % 20 == 0:
            done = sum(writer.calls for writer in world.writers)
            acknowledged = sum(writer.manifest.acknowledged for writer in world.writers)
            print(f"{number + 1} kills, {done} changes, {acknowledged} acknowledgements, {len(faults.found)} wrong", flush=True)
    settle(world, faults, "after the kills")
    print(f"the slowest mount after a kill took {slowest:.1f} s")
    acknowledged = sum(writer.manifest.acknowledged for writer in world.writers)
    goal(f"{options.kills} kills of the mount, {acknowledged} acknowledgements: {faults.count('LOST')} lost, {faults.count('TORN')} torn, "
         f"{len(faults.found)} wrong in all (0 of each)", not faults.found)


def settle(world, faults, when):
    """Everything is synced, and read again by S3 and by a mount with an empty cache."""
    world.parked()
    for writer in world.writers:
        faults.add(when, writer.take_errors())
    handle = os.open(world.where, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    faults.add(f"{when}, by S3", world.judge(is_at_rest=True))
    world.count += 1
    where, cache = world.path(f"empty{world.count}"), world.path(f"empty-cache{world.count}")
    os.mkdir(where)
    process = world.start(where, cache)
    for writer in world.writers:
        faults.add(f"{when}, through an empty cache", writer.judge_mount(where))
    odd = [key for key in world.bucket.all_keys() if ".conflict-" in key or key.startswith(HIDDEN)]
    faults.add(when, [f"ODD {key}" for key in odd])
    world.unmount(where, process)


class Asker(threading.Thread):
    """Does something that needs the bucket again and again while there is none."""

    def __init__(self, what, call):
        super().__init__(daemon=True)
        self.what, self.call, self.seconds, self.answered, self.ended = what, call, [], 0, threading.Event()

    def run(self):
        while not self.ended.is_set():
            began = time.monotonic()
            try:
                self.call()
                self.answered += 1
            except OSError:
                pass
            self.seconds.append(time.monotonic() - began)
            self.ended.wait(60)


def sync_one(path):
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(handle, b"x")
        os.fsync(handle)
    finally:
        os.close(handle)


def read_all(path):
    with open(path, "rb", buffering=0) as file:
        file.read(1 << 20)


def offline(world, options, faults):
    for name in ["listed/file", "never/file"]:
        world.bucket.ask("PUT", f"/{BUCKET}/unknown/{name}", body=b"content" * 1000)
    time.sleep(4)
    os.listdir(f"{world.where}/unknown")
    os.listdir(f"{world.where}/unknown/listed")
    for writer in world.writers:
        writer.begin()
    time.sleep(5)
    half = options.offline_minutes * 30
    askers = [
        Asker("a read of bytes that are not here", lambda: read_all(f"{world.where}/unknown/listed/file")),
        Asker("a look into a directory that was never listed", lambda: os.listdir(f"{world.where}/unknown/never")),
    ]
    syncer = Asker("an fsync", lambda: sync_one(f"{world.where}/synced"))
    for writer in world.writers:
        writer.offline = True
    for way in ["refuse", "hole"]:
        world.network.order(way)
        print(f"the network is gone ({way})", flush=True)
        if way == "refuse":
            for asker in [*askers, syncer]:
                asker.start()
        end = time.monotonic() + half
        while time.monotonic() < end:
            time.sleep(min(60, max(0, end - time.monotonic())))
            if world.process.poll() is not None:
                raise SystemExit("the mount's process ended")
            print(f"{sum(writer.calls for writer in world.writers)} changes, slowest {max(writer.slowest for writer in world.writers):.2f} s, "
                  f"memory {memory(world.process.pid)} MiB, {status(world)}", flush=True)
    for asker in [*askers, syncer]:
        asker.ended.set()
    print(f"the network is back; {len(world.bucket.all_keys())} keys in the bucket", flush=True)
    world.network.order("pass")
    began = time.monotonic()
    world.parked()
    while (wrong := world.judge(is_at_rest=True)) and time.monotonic() - began < ARRIVAL_SECONDS_MAX:
        time.sleep(0.5)
    arrived = time.monotonic() - began
    faults.add("after the network came back", wrong)
    goal(f"the network was gone for {options.offline_minutes:g} min: everything arrived {arrived:.1f} s after it came back (at most {ARRIVAL_SECONDS_MAX})", not wrong)
    slowest = max(writer.slowest for writer in world.writers)
    calls = sum(writer.calls for writer in world.writers)
    errors = [error for writer in world.writers for error in writer.take_errors()]
    faults.add("while it was gone", errors)
    goal(f"{calls} changes meanwhile, {len(errors)} failed, the slowest call took {slowest:.2f} s (at most {CALL_SECONDS_MAX})", not errors and slowest <= CALL_SECONDS_MAX)
    for asker, limit in [*((asker, UNKNOWN_SECONDS_MAX) for asker in askers), (syncer, FSYNC_SECONDS_MAX)]:
        longest = max(asker.seconds, default=0)
        goal(f"{asker.what} without a network: {len(asker.seconds)} times, the longest {longest:.1f} s (at most {limit})", longest <= limit)
    settle(world, faults, "after the time without a network")
    goal(f"after the time without a network: {faults.count('LOST')} lost, {faults.count('TORN')} torn, {len(faults.found)} wrong in all", not faults.found)


def memory(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def status(world):
    command = [goals.BINARY, "status", "--cache", world.path("cache")]
    answer = subprocess.run(command, env=world.environment, capture_output=True, text=True, check=False)
    return " / ".join(answer.stdout.strip().splitlines()[:2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kill-seconds", type=float, default=2, help="longest time between a mount and its kill")
    parser.add_argument("--offline-minutes", type=float, default=0)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--pause", type=float, help="seconds between two changes of a writer (0; with --offline-minutes 1: what was written is kept in memory)")
    parser.add_argument("--large", type=int, default=24, help="MiB of the largest files")
    parser.add_argument("--store", metavar="127.0.0.1:PORT",
                        help=f"a store that runs already and is not killed, with an empty bucket {BUCKET} or none; keys and region as AWS_...")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    if options.pause is None:
        options.pause = 1 if options.offline_minutes else 0
    os.environ.pop("AWS_CA_BUNDLE", None)
    print(f"seed {options.seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="margay-goals.")
    world, faults = World(folder, options), Faults()
    try:
        if options.kills:
            kills(world, options, faults)
        if options.offline_minutes:
            offline(world, options, faults)
    finally:
        world.end()
    if goals.MISSED:
        print(f"what is there is kept in {folder}")
    else:
        shutil.rmtree(folder)
    goals.finish()


if __name__ == "__main__":
    main()
