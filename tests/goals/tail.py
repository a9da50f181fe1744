"""Tail latency of small PUT and GET beside checkpoints, reclaim and scrub: python3 tests/goals/tail.py [SECONDS] [RATE]

Goal: p99.9 at most 50 ms, maximum at most 200 ms beyond the slowest fdatasync of the disk. RATE requests (3000) become
due each second, half GET, the rest PUT and DELETE, 1-4 KiB on 64 connections; latency counts from when a request was
due. Meanwhile `margay scrub` runs again and again, `margay compact` (which begins with a checkpoint) every 5 s, and a
probe times an fdatasync of 4 KiB every 10 ms.
"""

import os
import sys
import threading

from server import SyncProbe, finish, goal, permille, serving

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
RATE = sys.argv[2] if len(sys.argv) > 2 else "3000"
LOAD = ["load", "--mix", "get=50,put=30,delete=20", "--size", "1k-4k", "--keys", "100000", "--connections", "64",
        "--seconds", str(SECONDS), "--rate", RATE, "--verify"]


def again_and_again(server, name, pause_seconds, ended, counts):
    while not ended.wait(pause_seconds):
        process = server.command(name, "--data", server.data, "--json")
        said, _ = process.communicate()
        if process.returncode:
            print(said.decode())
            goal(f"margay {name} ended with {process.returncode}", False)
            return
        counts[name] = counts.get(name, 0) + 1


with serving() as server:
    ended, counts = threading.Event(), {}
    works = [threading.Thread(target=again_and_again, args=(server, name, pause_seconds, ended, counts))
             for name, pause_seconds in (("scrub", 0), ("compact", 5))]
    for work in works:
        work.start()
    with SyncProbe(os.path.dirname(server.data)) as probe:
        report = server.bench(*LOAD)
    ended.set()
    for work in works:
        work.join()
    metrics = server.metrics()
    slowest_sync = max(probe.times)
    print(f"{SECONDS} s: {counts['scrub']} scrubs, {counts['compact']} compactions, "
          f"{metrics['margay_checkpoints_total']:.0f} checkpoints, {metrics['margay_reclaim_passes_total']:.0f} passes of "
          f"reclaim; fdatasync p50 {permille(probe.times, 500):.2f} ms, p99.9 {permille(probe.times, 999):.1f} ms, "
          f"max {slowest_sync:.1f} ms")
    for row in report["operations"]:
        name, p999, slowest = row["operation"], row["p999_ms"], row["max_ms"]
        line = (f"{name}: {row['requests_per_second']:.0f}/s, p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.1f} ms, "
                f"p99.9 {p999:.1f} ms, max {slowest:.1f} ms")
        if name in ("put", "get"):
            goal(f"{line} (at most 50 and {200 + slowest_sync:.0f})", p999 <= 50 and slowest <= 200 + slowest_sync)
        else:
            print(line)
finish()
