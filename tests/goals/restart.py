"""From exec to the first signed GET after kill -9 with a full log: python3 tests/goals/restart.py [ENTRIES] [ROUNDS]

Goal: under 2 s with 10 million entries. Fills a directory with ENTRIES objects of 100 bytes by S3 (10 minutes for 10
million; GOALS_DATA names a directory to keep and reuse), watches for a while how much log there is at most while
objects are written (a file being folded and the one in use), then in each round writes on until it is nearly that much
again, kills the server, and times exec to the first 200. Every other start finds nothing in the page cache.
"""

import os
import sys
import time

from server import Server, evict, finish, goal, median, serving

ENTRIES = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 6
# limits.log_bytes_max is 120 MiB: a file being written and one being folded.
LOG_FILE_BYTES = 60 << 20
LOG_FULL = 0.95
WATCH_SECONDS = 20
OBJECT = "/restart/object"


def writing(server):
    """Begins a load of small PUTs; it is killed, so its bucket stays."""
    return server.command("bench", "load", "--endpoint", f"http://{server.host}", "--mix", "put=100", "--size", "100",
                          "--connections", "64", "--seconds", "3600")


def entries(server):
    """Every PUT of a load is one commit; so are a few other things, hence the 1 % on top."""
    return server.metrics()["margay_log_commits_total"] / 1.01


def write_until(server, done):
    load = writing(server)
    try:
        while not done(server.metrics()):
            if load.poll() is not None:
                raise SystemExit("the load ended by itself")
            time.sleep(0.02)
    finally:
        load.kill()


def log_bytes(metrics):
    """Bytes that a start would have to replay."""
    return metrics["margay_log_bytes"] + LOG_FILE_BYTES * (metrics["margay_overlay_sealed_rows"] > 0)


def log_bytes_max(server):
    """The most that there is of it under this load."""
    seen, ends = [], time.monotonic() + WATCH_SECONDS

    def watch(metrics):
        seen.append(log_bytes(metrics))
        return time.monotonic() > ends

    write_until(server, watch)
    return max(seen)


def until_folded(metrics):
    return metrics["margay_overlay_sealed_rows"] == 0 and metrics["margay_log_bytes"] < LOG_FILE_BYTES // 2


def one_round(server, full_bytes, cold):
    """Fills the log, kills, starts; gives seconds to the first answer."""
    full = {}

    def fill_and_kill(metrics):
        if log_bytes(metrics) >= LOG_FULL * full_bytes:
            server.process.kill()
            full.update(metrics)
        return bool(full)

    # What the last round left is folded first: each round ends with a log of its own.
    write_until(server, until_folded)
    write_until(server, fill_and_kill)
    server.process.wait()
    if cold:
        evict(server.data)
    began = time.monotonic()
    server.spawn()
    seconds = server.until_answer("GET", OBJECT) - began
    rows = full["margay_overlay_rows"] + full["margay_overlay_sealed_rows"]
    print(f"{'cold' if cold else 'warm'}: {seconds:.2f} s; killed with {log_bytes(full) / 1e6:.0f} MB of log, {rows:.0f} "
          f"rows in memory, {entries(server):.0f} entries", flush=True)
    return seconds


def measure(server):
    server.request("PUT", "/restart")
    server.request("PUT", OBJECT, b"here")
    if entries(server) < ENTRIES:
        write_until(server, lambda metrics: metrics["margay_log_commits_total"] >= 1.01 * ENTRIES)
    full_bytes = log_bytes_max(server)
    times = [one_round(server, full_bytes, cold) for _ in range(ROUNDS // 2) for cold in (False, True)]
    goal(f"kill -9 with a full log and {entries(server):.0f} entries: first signed GET after {median(times):.2f} s, "
         f"at most {max(times):.2f} s (under 2)", max(times) < 2)


if "GOALS_DATA" in os.environ:
    server = Server(os.environ["GOALS_DATA"]).start()
    try:
        measure(server)
    finally:
        server.stop()
else:
    with serving() as server:
        measure(server)
finish()
