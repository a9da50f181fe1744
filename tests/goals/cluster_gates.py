"""Figures of servers that share a volume: python3 tests/goals/cluster_gates.py [failover|stale|mount|takeover|repair ...] [--servers N]
[--copies N] [--write N] [--puts N] [--mib N] [--rounds N] [--takeovers N]

  failover  8 clients put objects of 4 KiB at two servers, while a third one, which has copies, is killed (no failed PUT, a gap of at
            most 1 s; p99 at the others), and PostgreSQL is killed and started again (10 s)
  stale     each object that one server took is read at another one at once: none may be old
  mount     how long after the answer to a PUT a mount at another server shows the object (p99 at most 100 ms)
  takeover  how long after kill -9 of the server whose mount writes another server's mount writes there (15 s)
  repair    the disk of a server is lost; how fast its copies are made again, beside `cp` of as many bytes (half its speed), and p99 of
            small PUTs meanwhile (twice that before)
One PostgreSQL that syncs, all on this machine. The gates G6, G8 and G9 are those of issue 16.
"""

import argparse
import http.client
import os
import shutil
import subprocess
import threading
import time

from cluster import ANSWER_SECONDS, World, ask
from server import ACCESS, BINARY, SECRET, finish, goal, median, permille, sign

BUCKET, BODY = "gates", os.urandom(4096)


class Client:
    """One connection to a server; a broken one is made again."""

    def __init__(self, node):
        self.node, self.connection = node, None

    def ask(self, method, path, body=b"", query="", more=()):
        """Status and content; 0: no answer. `more`: headers that nobody signs."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.node.server.port, timeout=ANSWER_SECONDS)
            headers = sign.headers(method, self.node.server.host, path, query, ACCESS, SECRET) | dict(more)
            self.connection.request(method, path + ("?" + query if query else ""), body, headers)
            answer = self.connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.connection = None
            return 0, b""


class Putters:
    """Clients that put small objects: when each was answered, how long it took, and what failed."""

    def __init__(self, nodes, count=8):
        self.over, self.lock, self.done, self.failed = threading.Event(), threading.Lock(), [], []
        self.threads = [threading.Thread(target=self.run, args=(nodes[at % len(nodes)], at)) for at in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, node, at):
        client, number = Client(node), 0
        while not self.over.is_set():
            began, number = time.monotonic(), number + 1
            status, _ = client.ask("PUT", f"/{BUCKET}/p{at}/{number % 500}", BODY)
            ended = time.monotonic()
            with self.lock:
                if status == 200:
                    self.done.append((ended, ended - began, at))
                else:
                    self.failed.append((ended, status))
            if status != 200:
                time.sleep(0.02)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def times(self, start, end):
        with self.lock:
            return [took for ended, took, _ in self.done if start <= ended < end] or [float("inf")]

    def gap(self, start, end):
        """Longest time in which one client was not answered."""
        longest = 0.0
        with self.lock:
            for client in range(len(self.threads)):
                moments = [start, *(ended for ended, _, at in self.done if at == client and start <= ended < end), end]
                longest = max(longest, *(later - earlier for earlier, later in zip(moments, moments[1:])))
        return longest

    def failures(self, start, end):
        with self.lock:
            return sum(start <= ended < end for ended, _ in self.failed)


def failover(world, arguments):
    putters = Putters(world.nodes[:-1])
    time.sleep(3)
    gaps, failures, ratios, again = [], [], [], []
    for _ in range(arguments.rounds):
        began = time.monotonic()
        time.sleep(4)
        killed = time.monotonic()
        world.nodes[-1].server.kill()
        time.sleep(4)
        ended = time.monotonic()
        gaps.append(putters.gap(killed - 0.5, ended))
        failures.append(putters.failures(killed, ended))
        # The first second is the gap.
        ratios.append(permille(putters.times(killed + 1, ended), 990) / permille(putters.times(began, killed), 990))
        world.nodes[-1].server.spawn()
        world.nodes[-1].wait()
        time.sleep(2)
    for _ in range(arguments.rounds):
        world.postgres.kill()
        killed = time.monotonic()
        world.postgres.start()
        started = time.monotonic()
        while not any(began > killed + 0.1 for began in began_since(putters, killed)) and time.monotonic() < killed + 60:
            time.sleep(0.02)
        again.append((min(began_since(putters, killed), default=float("inf")) - killed, started - killed))
        time.sleep(3)
    putters.end()
    goal(f"a server with copies killed: {max(failures)} failed PUTs", max(failures) == 0)
    goal(f"... longest gap of a client {max(gaps):.2f} s (1), each {[round(gap, 2) for gap in gaps]}", max(gaps) <= 1)
    goal(f"... p99 at the others {median(ratios):.2f} of that before (1.2)", median(ratios) <= 1.2)
    text = ", ".join(f"{first:.1f} s ({start:.1f} of them its start)" for first, start in again)
    goal(f"PostgreSQL killed: first PUT after {text} (10)", max(first for first, _ in again) <= 10)


def began_since(putters, moment):
    """When PUTs were answered that began after a moment."""
    with putters.lock:
        return [ended for ended, took, _ in putters.done if ended - took > moment]


def stale(world, arguments):
    wrong, lock = [], threading.Lock()

    def run(at):
        one, two = Client(world.nodes[0]), Client(world.nodes[1])
        for number in range(arguments.puts // 8):
            path, body = f"/{BUCKET}/s{at}/{number % 50}", f"{at} {number}".encode()
            put, _ = one.ask("PUT", path, body)
            status, found = two.ask("GET", path)
            if put != 200 or status != 200 or found != body:
                with lock:
                    wrong.append((put, status, found, body))

    began = time.monotonic()
    threads = [threading.Thread(target=run, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = arguments.puts / (time.monotonic() - began)
    goal(f"{arguments.puts} objects put at one server and read at another: {len(wrong)} old or failed {wrong[:3]}, {rate:.0f}/s", not wrong)


def mount(world, arguments):
    point, client, took = os.path.join(world.folder, "m1"), Client(world.nodes[0]), []
    for number in range(arguments.samples):
        body = f"{number:06}".encode()
        assert client.ask("PUT", f"/{BUCKET}/seen/{number % 20}", body)[0] == 200
        began = time.monotonic()
        while read(os.path.join(point, "seen", str(number % 20))) != body and time.monotonic() < began + 5:
            time.sleep(0.001)
        took.append((time.monotonic() - began) * 1000)
    half, most = median(took), permille(took, 990)
    goal(f"a mount elsewhere shows an object after p50 {half:.1f} ms, p99 {most:.1f} ms (100), {len(took)} times", most <= 100)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def takeover(world, arguments):
    """Two servers in turns: who is killed comes back before the next round, and is the one that takes over then."""
    took, points = [], [os.path.join(world.folder, f"t{number}") for number in range(2)]
    for point in points:
        os.makedirs(point, exist_ok=True)
    assert order("mount", BUCKET, points[0], "--create", node=world.nodes[0]).returncode == 0
    for number in range(arguments.takeovers):
        old, new = number % 2, (number + 1) % 2
        with open(os.path.join(points[old], "of"), "w") as file:
            file.write(str(number))
            file.flush()
            os.fsync(file.fileno())
        world.nodes[old].server.kill()
        killed = time.monotonic()
        while not is_written(world.nodes[new], points[new], number) and time.monotonic() < killed + 60:
            time.sleep(0.1)
        took.append(time.monotonic() - killed)
        subprocess.run(["umount", "-l", points[old]], check=False, stderr=subprocess.DEVNULL)
        world.nodes[old].server.spawn()
        world.nodes[old].wait()
    for point in points:
        subprocess.run(["umount", "-l", point], check=False, stderr=subprocess.DEVNULL)
    goal(f"a mount of a killed server writes at another one after {median(took):.1f} s, at most {max(took):.1f} s (15), {len(took)} times", max(took) <= 15)


def order(*words, node):
    return subprocess.run([BINARY, *words, "--data", node.data], capture_output=True, text=True)


def is_written(node, point, number):
    """Mounts, unless it is mounted already, and writes a file durably."""
    if not os.path.ismount(point) and order("mount", BUCKET, point, "--create", node=node).returncode != 0:
        return False
    try:
        with open(os.path.join(point, f"new{number}"), "w") as file:
            file.write("written")
            file.flush()
            os.fsync(file.fileno())
        return True
    except OSError:
        return False


def repair(world, arguments):
    body, client = os.urandom(8 << 20), Client(world.nodes[0])
    for number in range(arguments.mib // 8):
        assert client.ask("PUT", f"/{BUCKET}/large/{number}", body)[0] == 200
    assert world.until_copied(300)
    putters = Putters(world.nodes[:-1], 4)
    time.sleep(5)
    node, before = world.nodes[-1], time.monotonic()
    size = sum(entry.stat().st_size for entry in os.scandir(os.path.join(node.data, "segments")))
    began = time.monotonic()
    shutil.copytree(os.path.join(node.data, "segments"), os.path.join(world.folder, "copy"))
    subprocess.run(["sync", "-f", world.folder], check=True)
    copied = time.monotonic() - began
    floor = permille(putters.times(began, began + copied), 990) / permille(putters.times(before - 5, before), 990)
    shutil.rmtree(os.path.join(world.folder, "copy"))
    world.lose_disk(len(world.nodes) - 1)
    began = time.monotonic()
    is_whole = world.until_copied(1200)
    took, now = time.monotonic() - began, time.monotonic()
    ratio = permille(putters.times(began, now), 990) / permille(putters.times(before - 5, before), 990)
    putters.end()
    speed = copied / took
    goal(f"a lost disk of {size >> 20} MiB has its copies again after {took:.1f} s, cp takes {copied:.1f} s: {speed:.2f} (0.5)", is_whole and speed >= 0.5)
    goal(f"... p99 of small PUTs meanwhile {ratio:.2f} of that before (2), beside cp {floor:.2f}", ratio <= 2)


PARTS = {"failover": failover, "stale": stale, "mount": mount, "takeover": takeover, "repair": repair}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    for name, default in [("servers", 3), ("copies", 3), ("write", 2), ("puts", 20_000), ("mib", 1024), ("rounds", 3), ("takeovers", 10), ("samples", 500)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()

    def options(number):
        point = os.path.join(world_folder, f"m{number}")
        os.makedirs(point, exist_ok=True)
        return ("--mount", f"{BUCKET}={point}") if "mount" in arguments.parts and number == 1 else ()

    world_folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"cluster-{os.getpid()}")
    os.mkdir(world_folder, 0o755)
    world = World(BUCKET, arguments.servers, arguments.copies, arguments.write, world_folder, options)
    try:
        for part in arguments.parts:
            print(f"{part}:", flush=True)
            PARTS[part](world, arguments)
    finally:
        world.close()
        subprocess.run(["umount", "-l", os.path.join(world_folder, "m1")], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(world_folder, ignore_errors=True)
    finish()


if __name__ == "__main__":
    main()
