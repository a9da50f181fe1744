"""Two builds of margay in turns: python3 tests/goals/turns.py OLD NEW [--rounds N] [--results FILE]

OLD and NEW are programs. A server of each runs on a directory and a mount of its own, and each figure is measured of one, then of the other, the
first of a round being the second of the next; the load comes from NEW for both. So a noisy minute falls on both, and what is told is the median of
the rounds' ratios. Ends with 4 when a figure of GOALS has a ratio under 0.95. FILE gets every rate of every round. About a minute a round.
Below them stand the processor times of both servers, for each request and for a whole run of dirops: other work on the machine changes these less.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import server as goals
from server import Server, goal, median

GOAL = 0.95
SECONDS = "3"
LOADS = [
    ("GET 1 KiB", ["--mix", "get=100", "--size", "1k", "--keys", "2000"]),
    ("PUT 1 KiB", ["--mix", "put=100", "--size", "1k"]),
    ("list 1000", ["--mix", "list=100", "--size", "16", "--keys", "2000", "--connections", "8"]),
]
DIROPS = ["--files", "4000", "--clients", "1"]
# Figures of a mount that have the goal; others are told.
GOALS = [name for name, _ in LOADS] + ["dirops: create", "dirops: stat"]


def rate(generator, server, options):
    environment = os.environ | {"MARGAY_ACCESS_KEY": goals.ACCESS, "MARGAY_SECRET_KEY": goals.SECRET}
    command = [generator, "bench", "load", "--endpoint", f"http://{server.host}", "--seconds", SECONDS, "--warmup-seconds", "0", "--json"]
    before = processor(server)
    done = subprocess.run([*command, *options], env=environment, stdout=subprocess.PIPE, check=True)
    per_second = json.loads(done.stdout)["operations"][0]["requests_per_second"]
    return per_second, (processor(server) - before) / (per_second * float(SECONDS)) * 1e6


def processor(server):
    """Seconds that the server's threads have run, in user and kernel mode."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def directories(generator, mounts):
    """One round of dirops on both mounts: {phase: rates in the order of the mounts}."""
    command = [generator, "bench", "dirops", "--json", "--rounds", "1", *DIROPS]
    for mount in mounts:
        command += ["--dir", mount]
    rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["rows"]
    found = {}
    for row in rows:
        value = 1 / row["rounds"][0] if row["unit"] in ("s", "ms") else row["rounds"][0]
        found.setdefault(f"dirops: {row['phase']}", []).append(value)
    return found


def measure(servers, mounts, generator, rounds):
    """{figure: [(rate of OLD, rate of NEW) of each round]}, and the same of processor times."""
    found, times = {}, {}
    for number in range(rounds):
        order = [0, 1] if number % 2 == 0 else [1, 0]
        for name, options in LOADS:
            pair, used = [0.0, 0.0], [0.0, 0.0]
            for one in order:
                pair[one], used[one] = rate(generator, servers[one], options)
            found.setdefault(name, []).append(pair)
            times.setdefault(f"{name}, us", []).append(used)
        before = [processor(server) for server in servers]
        for name, rates in directories(generator, [mounts[one] for one in order]).items():
            found.setdefault(name, []).append([rates[order.index(0)], rates[order.index(1)]])
        times.setdefault("dirops, s", []).append([processor(server) - was for server, was in zip(servers, before, strict=True)])
        print(f"  round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found, times


def report(found, times):
    print(f"{'figure':32} {'OLD':>12} {'NEW':>12}  ratio of NEW to OLD: median (least-greatest)")
    for name, pairs in found.items():
        ratios = [new / old for old, new in pairs]
        old, new = (median([pair[one] for pair in pairs]) for one in (0, 1))
        print(f"{name:32} {old:12.1f} {new:12.1f}  {median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})")
    print(f"{'processor time of the server':32} {'OLD':>12} {'NEW':>12}  NEW / OLD")
    for name, pairs in times.items():
        old, new = (median([pair[one] for pair in pairs]) for one in (0, 1))
        print(f"{name:32} {old:12.2f} {new:12.2f}  {new / old:.3f}")
    for name in GOALS:
        if name in found:
            ratio = median([new / old for old, new in found[name]])
            goal(f"{name}: {ratio:.3f} of OLD, at least {GOAL}", ratio >= GOAL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results", type=pathlib.Path)
    asked = parser.parse_args()
    programs = [str(asked.old.resolve()), str(asked.new.resolve())]
    folder = tempfile.mkdtemp(prefix="margay-turns.")
    servers, mounts = [], []
    try:
        for number, program in enumerate(programs):
            mounts.append(os.path.join(folder, f"mount{number}"))
            os.mkdir(mounts[-1])
            server = Server(os.path.join(folder, f"data{number}"), "--mount", f"turns={mounts[-1]}", binary=program)
            servers.append(server)
            server.start()
            if not server.appears(mounts[-1]):
                raise SystemExit(f"{program} mounted nothing; this needs /dev/fuse")
        found, times = measure(servers, mounts, programs[1], asked.rounds)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder)
    if asked.results:
        asked.results.write_text(json.dumps({"programs": programs, "rounds": found, "processor": times}, indent=1) + "\n")
    report(found, times)
    goals.finish()


main()
