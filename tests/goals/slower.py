"""What got slower since the committed figures: python3 tests/goals/slower.py [--write] [--rounds N] [FILE]

FILE (docs/benchmarks/floors.json) holds, for each figure of a short run, how it compared with a floor that was measured in the same minute:
directories with the same work in a directory of the disk or of memory, S3 requests with a bare hyper server. Ratios travel from one
hour to the next and mostly from one machine to the next; rates do not. Each figure has as many ratios as there were rounds.
A figure is slower when its median now is under 0.85 of the median then and the ratios of both runs, put in one order, lie so far apart as chance
would put them once in 200 times (Mann and Whitney's test). There are many figures and noisy minutes last longer than a round, so what looks slower
is measured again, and only counts when it does so twice. Ends with 4 when something is slower; about three minutes, and more to look again.
--write measures and replaces FILE. `make bench-check` builds what is needed and runs this.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

import server as goals
from server import BINARY, ROOT, Server, median

TOLERANCE = 0.85
# How seldom chance alone may put two series so far apart.
CHANCE = 0.005
ROUNDS_WRITTEN, ROUNDS = 9, 6
# Suite, its options, and whether the floor is in memory: work that waits for no disk is steadier there.
DIRECTORIES = [
    ("dirops", ["--files", "4000", "--clients", "1"], True),
    ("mdtest", ["--branch", "4", "--items", "8", "--depth", "3"], True),
    ("small", ["--files", "1000"], False),
    ("stream", ["--size", "256m"], False),
]
LOADS = [
    ("get 1 KiB", ["--mix", "get=100", "--size", "1k", "--keys", "2000"]),
    ("put 1-4 KiB", ["--mix", "put=100", "--size", "1k-4k"]),
    ("list 1000", ["--mix", "list=100", "--size", "16", "--keys", "2000", "--connections", "8"]),
    ("get 1 MiB", ["--mix", "get=100", "--size", "1m", "--keys", "64", "--connections", "8"]),
]
LOAD_SECONDS = "2"
# Not beside the program: that may be the one of `make dist`.
BARE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "bare_server"
LESS_IS_BETTER = ("s", "ms")


def is_wanted(name, only):
    return only is None or any(figure.split(": ")[0] == name for figure in only)


def directories(mount, folder, rounds, only):
    """Ratios of the mount to the floor, more is better: {figure: [one of each round]}."""
    found = {}
    for suite, options, in_memory in DIRECTORIES:
        if not is_wanted(suite, only):
            continue
        above = "/dev/shm" if in_memory and os.access("/dev/shm", os.W_OK) else folder
        with tempfile.TemporaryDirectory(prefix="margay-floor.", dir=above) as floor:
            command = [BINARY, "bench", suite, "--dir", floor, "--dir", mount, "--rounds", str(rounds), "--json", *options]
            rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["rows"]
        floors = {row["phase"]: row["rounds"] for row in rows[::2]}
        for row in rows[1::2]:
            pairs = zip(row["rounds"], floors[row["phase"]])
            less = row["unit"] in LESS_IS_BETTER
            found[f"{suite}: {row['phase']}"] = [of / value if less else value / of for value, of in pairs]
        print(f"  {suite}", file=sys.stderr)
    return found


def rate(endpoint, options):
    environment = os.environ | {"MARGAY_ACCESS_KEY": goals.ACCESS, "MARGAY_SECRET_KEY": goals.SECRET}
    command = [BINARY, "bench", "load", "--endpoint", endpoint, "--seconds", LOAD_SECONDS, "--warmup-seconds", "0", "--json"]
    done = subprocess.run([*command, *options], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["operations"][0]["requests_per_second"]


def requests(server, rounds, only):
    """Ratios of the server to a bare one, which answers every GET with as many bytes."""
    found = {}
    for name, options in LOADS:
        if not is_wanted(name, only):
            continue
        size = {"1k": 1 << 10, "1m": 1 << 20}.get(options[options.index("--size") + 1], 0)
        port = goals.free_port()
        bare = subprocess.Popen([str(BARE), f"127.0.0.1:{port}", str(size)], stdout=subprocess.PIPE)
        try:
            bare.stdout.readline()
            for _ in range(rounds):
                floor = rate(f"http://127.0.0.1:{port}", options)
                found.setdefault(name, []).append(rate(f"http://{server.host}", options) / floor)
        finally:
            bare.kill()
            bare.wait()
        print(f"  {name}", file=sys.stderr)
    return found


def measure(rounds, only=None):
    """Ratios of all figures, or of those of the suites that have one of `only`."""
    folder = tempfile.mkdtemp(prefix="margay-floors.")
    mount = os.path.join(folder, "mount")
    os.mkdir(mount)
    server = Server(os.path.join(folder, "data"), "--mount", f"floors={mount}")
    try:
        server.start()
        is_mounted = server.appears(mount)
        found = requests(server, rounds, only)
        if is_mounted:
            found |= directories(mount, folder, rounds, only)
        else:
            print("nothing can be mounted here: directories are left out", file=sys.stderr)
        return found
    finally:
        server.stop()
        shutil.rmtree(folder)


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    processor = next((line.split(": ")[1] for line in lines if line.startswith("model name")), platform.machine())
    version = subprocess.run([BINARY, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    return {"processor": processor, "cores": os.cpu_count(), "kernel": platform.release(), "version": version}


def spread(ratios):
    return f"{median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"


def is_below(now, then):
    """Whether chance would seldom put the one series so far below the other."""
    below = sum((a < b) + (a == b) / 2 for a in now for b in then)
    pairs = len(now) * len(then)
    deviation = math.sqrt(pairs * (len(now) + len(then) + 1) / 12)
    # A half is the usual correction when the normal distribution stands for whole numbers.
    return statistics.NormalDist().cdf((pairs / 2 - below + 0.5) / deviation) < CHANCE


def is_slower(now, then):
    return median(now) < TOLERANCE * median(then) and is_below(now, then)


def compare(then, now):
    """Prints every figure; gives the names of those that look slower."""
    slower = []
    print(f"{'figure':32} {'then, of the floor':28} {'now':28}")
    for name, before in then.items():
        after = now.get(name)
        if after is None:
            print(f"{name:32} {spread(before):28} not measured")
            continue
        bad = is_slower(after, before)
        print(f"{name:32} {spread(before):28} {spread(after):28} {'slower' if bad else ''}".rstrip())
        if bad:
            slower.append(name)
    return slower


def confirmed(then, suspects, rounds):
    """Those of the suspects that are slower in a second measurement, too."""
    print(f"again: {', '.join(suspects)}")
    now = measure(rounds, suspects)
    for name in suspects:
        print(f"{name:32} {spread(then[name]):28} {spread(now[name])}")
    return [name for name in suspects if is_slower(now[name], then[name])]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=ROOT / "docs/benchmarks/floors.json")
    asked = parser.parse_args()
    if not asked.write and not asked.file.exists():
        raise SystemExit(f"no {asked.file} yet: `make bench-check ARGS=--write` on a quiet machine makes it")
    rounds = asked.rounds or (ROUNDS_WRITTEN if asked.write else ROUNDS)
    now = measure(rounds)
    if asked.write:
        today = datetime.date.today().isoformat()
        figures = {name: [round(ratio, 5) for ratio in ratios] for name, ratios in now.items()}
        asked.file.parent.mkdir(parents=True, exist_ok=True)
        asked.file.write_text(json.dumps({"date": today, "machine": machine(), "figures": figures}, indent=1) + "\n")
        print(asked.file)
        return
    then = json.loads(asked.file.read_text())
    print(f"against {asked.file}, {then['date']}, {then['machine']['version']}")
    slower = compare(then["figures"], now)
    if slower:
        slower = confirmed(then["figures"], slower, rounds)
    print(f"slower: {', '.join(slower)}" if slower else "nothing is slower")
    sys.exit(4 if slower else 0)


main()
