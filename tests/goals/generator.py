"""The load generator against a server that does nothing: python3 tests/goals/generator.py [ROUNDS] [SECONDS]

Goal: 50,000 GETs of 1 KiB per second from one thread on one processor, with a bare hyper server on another: as an open loop of
that rate, nothing left unsent, and no second under 99 % of it. Beside it, as the most that it can do, a closed loop; and both with
signatures, which cost the client more than the rest of a request.
`cargo build --release -p margay-bench --example bare_server` makes the server; needs two processors and `taskset`.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import server as goals
from server import BINARY, finish, goal, median

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SECONDS = sys.argv[2] if len(sys.argv) > 2 else "5"
RATE = 50_000
LOAD = ["bench", "load", "--mix", "get=100", "--size", "1k", "--connections", "64", "--threads", "1", "--keys", "1000"]
BARE = pathlib.Path(BINARY).parent / "examples" / "bare_server"
SERVER_CORE, LOAD_CORE = sorted(os.sched_getaffinity(0))[:2]


@contextlib.contextmanager
def bare_server():
    port = goals.free_port()
    process = subprocess.Popen(
        ["taskset", "-c", str(SERVER_CORE), str(BARE), f"127.0.0.1:{port}", "1024"], stdout=subprocess.PIPE
    )
    try:
        # It says when it answers.
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def load(endpoint, *options):
    environment = os.environ | {"MARGAY_ACCESS_KEY": goals.ACCESS, "MARGAY_SECRET_KEY": goals.SECRET}
    command = ["taskset", "-c", str(LOAD_CORE), BINARY, *LOAD, "--endpoint", endpoint, "--seconds", SECONDS, "--json"]
    done = subprocess.run([*command, *options], env=environment, stdout=subprocess.PIPE, check=False)
    # An open loop that could not keep its rate ends with 4, and its report says by how much.
    if done.returncode not in (0, 4):
        raise SystemExit(f"the load ended with {done.returncode}")
    return json.loads(done.stdout)


def measure(endpoint, name, *options):
    """The median of a closed loop's rates, the slowest second of each open loop, and what those left undone."""
    most, slowest, unsent = [], [], 0
    for _ in range(ROUNDS):
        closed = load(endpoint, *options)["operations"][0]
        most.append(closed["requests_per_second"])
        opened = load(endpoint, "--rate", str(RATE), *options)
        row, windows = opened["operations"][0], opened["timelines"][0]["windows"]
        slowest.append(min(window["requests_per_second"] for window in windows))
        unsent += opened["unsent"] + sum(failure["count"] for failure in opened["failures"])
        print(f"{name}: closed loop {closed['requests_per_second']:.0f}/s, p50 {closed['p50_ms']:.3f} ms; open loop "
              f"{row['requests_per_second']:.0f}/s, slowest second {slowest[-1]:.0f}, p50 {row['p50_ms']:.3f} ms, "
              f"p99 {row['p99_ms']:.3f} ms", flush=True)
        time.sleep(0.2)
    return median(most), slowest, unsent


with bare_server() as endpoint:
    most, slowest, unsent = measure(endpoint, "plain", "--anonymous")
    signed, _, _ = measure(endpoint, "signed")
    goal(f"open loop of {RATE}/s: slowest seconds {', '.join(f'{rate:.0f}' for rate in slowest)}, {unsent} unsent or failed; "
         f"closed loop {most:.0f}/s, signed {signed:.0f}/s", unsent == 0 and median(slowest) >= 0.99 * RATE)
finish()
