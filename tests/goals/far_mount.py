"""A mount of a far bucket: python3 tests/goals/far_mount.py [--round-trip MS] [--rounds N] [--rival PROGRAM] [--only NAME,...]

The store is one margay server behind a proxy that adds the round trip (example late_proxy of margay-bench, built first). The goals:
  tree      cp -r of 6400 files of 4 KiB with fsync of the directory, then rm -r with fsync: at most 3.3 s and 1.8 s, and a third of the
            rival's; without fsync within 1.5 of a mount in the server's process. The rival is TigrisFS (`tigrisfs -f --endpoint URL BUCKET DIR`)
  listing   ls -l of 1000 files: cold at most 250 ms, after a remount 30 ms; a renamed directory of 1000 files is in the bucket within 1 s
  fsync     of a new file of 4 KiB: median at most the round trip + 4 ms; 64 threads at least 3000/s
  stream    1 GiB written with fsync, and read cold, at 80 % of what 16 raw requests at once reach (curl); the first byte of a file that was never
            read at most the round trip + 3 ms
One thing after the other, each rival in turn, medians. Limits hold for 10 ms.
"""

import argparse
import json
import concurrent.futures
import os
import shutil
import subprocess
import tempfile
import time

import server as goals
from server import ACCESS, ROOT, SECRET, Server, free_port, goal, median

DIRECTORIES, FILES = 64, 100
GIB, PARTS = 1 << 30, 16


def seconds(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def sync(path):
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


class Far:
    """A server, a proxy before it, and mounts of its bucket."""

    def __init__(self, folder, round_trip):
        self.folder, self.round_trip, self.count = folder, round_trip, 0
        self.near = self.path("near")
        os.mkdir(self.near)
        self.server = Server(self.path("data"), "--mount", f"near={self.near}").start()
        if not self.server.appears(self.near):
            raise SystemExit(f"no mount; see {self.server.data}.log")
        late = free_port()
        self.endpoint = f"http://127.0.0.1:{late}"
        program = os.path.join(os.path.dirname(goals.BINARY), "examples", "late_proxy")
        self.proxy = subprocess.Popen([program, f"127.0.0.1:{late}", self.server.host, str(round_trip)])
        self.environment = os.environ | {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}

    def path(self, name):
        return os.path.join(self.folder, name)

    def bucket(self):
        self.count += 1
        name = f"far{self.count}"
        if self.server.request("PUT", f"/{name}")[0] != 200:
            raise SystemExit("no bucket")
        return name

    def mount(self, bucket, rival=None, cache=None):
        """A mount of the bucket; `rival` is a program like TigrisFS."""
        self.count += 1
        where = self.path(f"mount{self.count}")
        os.mkdir(where)
        cache = cache or self.path(f"cache{self.count}")
        own = [goals.BINARY, "mount", f"s3://{bucket}", where, "--endpoint", self.endpoint, "--cache", cache, "--foreground"]
        command = [rival, "-f", "--endpoint", self.endpoint, bucket, where] if rival else own
        with open(where + ".log", "wb") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        if not self.server.appears(where):
            raise SystemExit(f"no mount; see {where}.log")
        return where, process, cache

    def unmount(self, where, process):
        subprocess.run(["umount", where], check=True)
        process.wait()

    def end(self):
        self.proxy.kill()
        self.proxy.wait()
        self.server.stop()


def tree(far, options):
    source = far.path("source")
    for directory in range(DIRECTORIES):
        os.makedirs(f"{source}/d{directory:02}")
        for file in range(FILES):
            with open(f"{source}/d{directory:02}/f{file:03}", "wb") as out:
                out.write(os.urandom(4096))
    found = {}
    rivals = [("margay", None)] + ([("rival", options.rival)] if options.rival else [])
    for number in range(options.rounds):
        for name, rival in rivals if number % 2 == 0 else rivals[::-1]:
            where, process, _ = far.mount(far.bucket(), rival)
            # A rival's fsync of a directory is whole at the top only.
            target = f"{where}/tree"
            copied = seconds(lambda: run("cp", "-r", source, target))
            synced = copied + seconds(lambda: sync(where))
            removed = seconds(lambda: run("rm", "-r", target))
            gone = removed + seconds(lambda: sync(where))
            far.unmount(where, process)
            found.setdefault(name, []).append((copied, synced, removed, gone))
        target = f"{far.near}/tree{number}"
        near = seconds(lambda: run("cp", "-r", source, target)), seconds(lambda: run("rm", "-r", target))
        found.setdefault("near", []).append((near[0], near[0], near[1], near[1]))
        for name, rounds in found.items():
            print(f"{name:7}" + "  ".join(f"{value:6.2f} s" for value in rounds[-1]), flush=True)
    median_of = {name: [median([one[at] for one in rounds]) for at in range(4)] for name, rounds in found.items()}
    own, near = median_of["margay"], median_of["near"]
    goal(f"cp -r and fsync: {own[1]:.2f} s (at most 3.3)", own[1] <= 3.3)
    goal(f"rm -r and fsync: {own[3]:.2f} s (at most 1.8)", own[3] <= 1.8)
    goal(f"cp -r without fsync: {own[0]:.2f} s, {own[0] / near[0]:.2f} of the near mount (at most 1.5)", own[0] <= 1.5 * near[0])
    goal(f"rm -r without fsync: {own[2]:.2f} s, {own[2] / near[2]:.2f} of the near mount (at most 1.5)", own[2] <= 1.5 * near[2])
    if "rival" in median_of:
        rival = median_of["rival"]
        goal(f"cp -r and fsync of the rival: {rival[1]:.2f} s, {own[1] / rival[1]:.2f} (at most a third)", 3 * own[1] <= rival[1])
        goal(f"rm -r and fsync of the rival: {rival[3]:.2f} s, {own[3] / rival[3]:.2f} (at most a third)", 3 * own[3] <= rival[3])


def listing(far, options):
    cold, again, renamed = [], [], []
    for _ in range(options.rounds):
        bucket = far.bucket()
        where, process, _ = far.mount(bucket)
        os.mkdir(f"{where}/many")
        for number in range(1000):
            with open(f"{where}/many/f{number}", "wb") as out:
                out.write(b"content")
        far.unmount(where, process)
        where, process, cache = far.mount(bucket)
        os.listdir(where)
        cold.append(1000 * seconds(lambda: run("ls", "-l", f"{where}/many")))
        far.unmount(where, process)
        where, process, _ = far.mount(bucket, cache=cache)
        os.listdir(where)
        again.append(1000 * seconds(lambda: run("ls", "-l", f"{where}/many")))
        os.rename(f"{where}/many", f"{where}/moved")
        renamed.append(seconds(lambda: sync(where)))
        far.unmount(where, process)
    goal(f"ls -l of 1000 files, cold: {median(cold):.0f} ms (at most 250)", median(cold) <= 250)
    goal(f"ls -l of 1000 files after a remount: {median(again):.0f} ms (at most 30)", median(again) <= 30)
    goal(f"a renamed directory of 1000 files is there after {median(renamed):.2f} s (at most 1)", median(renamed) <= 1)


def fsync(far, options):
    where, process, _ = far.mount(far.bucket())

    def one(name):
        with open(f"{where}/{name}", "wb") as out:
            out.write(b"x" * 4096)
            out.flush()
            os.fsync(out.fileno())

    times = [1000 * seconds(lambda number=number: one(f"one{number}")) for number in range(200)]
    limit = options.round_trip + 4
    goal(f"fsync of a new file: median {median(times):.1f} ms (at most {limit:.0f})", median(times) <= limit)
    report = [goals.BINARY, "bench", "dirops", "--json", "--rounds", "1", "--clients", "64", "--files", "200", "--fsync-each", "4096", "--dir", where]
    rows = json.loads(subprocess.run(report, check=True, capture_output=True).stdout)["rows"]
    rate = median(next(row["rounds"] for row in rows if row["phase"] == "create with fsync"))
    goal(f"fsync of new files by 64 threads: {rate:.0f}/s (at least 3000)", rate >= 3000)
    far.unmount(where, process)


def raw(far, *arguments):
    signed = ["curl", "-sSf", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{ACCESS}:{SECRET}"]
    subprocess.run([*signed, *arguments], check=True, stdout=subprocess.DEVNULL)


def at_once(work):
    with concurrent.futures.ThreadPoolExecutor(PARTS) as pool:
        return seconds(lambda: list(pool.map(work, range(PARTS))))


def stream(far, options):
    bucket, size = far.bucket(), GIB // PARTS
    part = far.path("part")
    with open(part, "wb") as out:
        out.write(os.urandom(size))
    written, read, first, raw_written, raw_read = [], [], [], [], []
    url = f"{far.endpoint}/{bucket}"
    for number in range(options.rounds):
        raw_written.append(at_once(lambda at: raw(far, "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-T", part, f"{url}/raw{number}-{at}")))
        raw_read.append(at_once(lambda at: raw(far, "-o", "/dev/null", f"{url}/raw{number}-{at}")))
        where, process, _ = far.mount(bucket)
        written.append(seconds(lambda: write_gib(part, f"{where}/big{number}")))
        for at in range(20):
            with open(f"{where}/first{number}-{at}", "wb") as out:
                out.write(b"x" * 100_000)
        far.unmount(where, process)
        where, process, _ = far.mount(bucket)
        os.listdir(where)
        read.append(seconds(lambda: run("dd", f"if={where}/big{number}", "of=/dev/null", "bs=1M", "status=none")))
        for at in range(20):
            first.append(1000 * seconds(lambda at=at: read_first(f"{where}/first{number}-{at}")))
        far.unmount(where, process)
        print(f"write {written[-1]:.2f} s (raw {raw_written[-1]:.2f}), read {read[-1]:.2f} s (raw {raw_read[-1]:.2f})", flush=True)
    goal(f"1 GiB with fsync: {median(written):.2f} s, raw {median(raw_written):.2f} s", 0.8 * median(written) <= median(raw_written))
    goal(f"1 GiB read cold: {median(read):.2f} s, raw {median(raw_read):.2f} s", 0.8 * median(read) <= median(raw_read))
    limit = options.round_trip + 3
    goal(f"first byte of a cold file: median {median(first):.1f} ms (at most {limit:.0f})", median(first) <= limit)


def write_gib(part, target):
    with open(part, "rb") as source, open(target, "wb", buffering=0) as out:
        for _ in range(PARTS):
            source.seek(0)
            while block := source.read(1 << 20):
                out.write(block)
        os.fsync(out.fileno())


def read_first(path):
    with open(path, "rb", buffering=0) as file:
        file.read(4096)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trip", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rival", help="a program that mounts as TigrisFS does")
    parser.add_argument("--only", default="tree,listing,fsync,stream")
    options = parser.parse_args()
    os.environ.pop("AWS_CA_BUNDLE", None)
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "margay-bench", "--example", "late_proxy"], cwd=ROOT, check=True)
    folder = tempfile.mkdtemp(prefix="margay-goals.")
    far = Far(folder, options.round_trip)
    try:
        for name in options.only.split(","):
            {"tree": tree, "listing": listing, "fsync": fsync, "stream": stream}[name](far, options)
    finally:
        far.end()
        shutil.rmtree(folder)
    goals.finish()


if __name__ == "__main__":
    main()
