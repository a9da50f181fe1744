"""What N objects cost: disk, memory, a start, a scrub, an fsck: python3 tests/goals/sizing.py [OBJECTS,...] [SIZE]

The figures of docs/sizing.md. Fills one volume by S3 with OBJECTS (default 10000,100000,1000000) of SIZE bytes (4096), and prints a line
of the page's tables at each of these counts. Bytes and rows are exact; seconds are wall time and, behind a slash, processor time of
the program, which another load on the machine changes little.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

from server import BINARY, serving

COUNTS = [int(count) for count in (sys.argv[1] if len(sys.argv) > 1 else "10000,100000,1000000").split(",")]
SIZE = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
# A load brings buckets and keys of its own beside objects; the count is read from the server.
SLACK = 1.001


def disk_bytes(folder):
    """What the files below a folder occupy."""
    return sum(path.lstat().st_blocks * 512 for path in pathlib.Path(folder).rglob("*"))


def fill(server, count):
    load = server.command("bench", "load", "--endpoint", f"http://{server.host}", "--mix", "put=100", "--size", str(SIZE),
                          "--connections", "64", "--seconds", "7200")
    try:
        while server.metrics()["margay_log_commits_total"] < SLACK * count:
            if load.poll() is not None:
                raise SystemExit("the load ended by itself")
            time.sleep(0.02)
    finally:
        # Killed, so that it does not remove its bucket.
        load.kill()
        load.wait()


def processor_seconds(server):
    return server.metrics()["process_cpu_seconds_total"]


def started(server):
    """Wall and processor time of a start to the first signed answer."""
    began = time.monotonic()
    server.spawn()
    wall = server.until_answer("GET", "/") - began
    return f"{wall:.2f} / {processor_seconds(server):.2f}"


def command(server, *words):
    done = subprocess.run([BINARY, *words, "--data", server.data, "--json"], env=server.environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def scrubbed(server):
    began, before = time.monotonic(), processor_seconds(server)
    command(server, "scrub")
    return f"{time.monotonic() - began:.1f} / {processor_seconds(server) - before:.1f}"


def checked(server):
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command(server, "fsck")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{time.monotonic() - began:.1f} / {used:.1f}"


def row(server, count):
    fill(server, count)
    loaded = server.memory()
    server.kill()
    replayed = started(server)
    objects = sum(int(bucket["objects"]) for bucket in json.loads(command(server, "du"))["buckets"])
    server.stop()
    disk = disk_bytes(server.data)
    start = started(server)
    metrics = server.metrics()
    payload = sum(value for name, value in metrics.items() if name.startswith("margay_segment_used_bytes"))
    tree = metrics["margay_tree_file_bytes"]
    idle = server.memory()[0]
    scrub = scrubbed(server)
    busy = server.memory()[1]
    server.stop()
    fsck = checked(server)
    server.start()
    print(f"| {objects:,} | {disk / 2**20:.0f} | {payload / objects:.0f} | {tree / objects:.0f} | {loaded[1]:.0f} | {idle:.0f} | {busy:.0f} | "
          f"{start} | {replayed} | {scrub} | {fsck} |", flush=True)


with serving() as server:
    print(f"objects of {SIZE} bytes | disk, MiB | payload, bytes each | tree, bytes each | memory at most while filling, MiB | after a start | after a scrub | "
          "start, s | start after kill -9 | scrub | fsck", flush=True)
    for count in COUNTS:
        row(server, count)
print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
