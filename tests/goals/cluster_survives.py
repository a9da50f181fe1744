"""What servers on one PostgreSQL must survive, and what takes too long or too much memory for CI:
python3 tests/goals/cluster_survives.py [clock|many ...] [--servers N] [--seconds N]

  clock   three servers with two copies of everything, of which one believes that it is an hour later (libfaketime), under load at all of
          them; then it is killed. Each key is a register; at the end all are read at every server, and `fsck` finds nothing
  many    N servers without disks of their own (100) join one that has a disk, all at once; objects are put by some and read by
          others; then all are killed at once, and the first one goes on
MARGAY_BIN names the program (default: target/release/margay).
"""

import argparse
import datetime
import importlib.util
import os
import signal
import subprocess
import sys
import time
import types

sys.dont_write_bytecode = True
from cluster import World, ask
from postgres import Postgres
from registers import Load
from server import BINARY, finish, goal, sign

BUCKET, WRITERS, FAKETIME = "survives", 3, "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
AHEAD = datetime.timedelta(hours=1)
STARTED_SECONDS_MAX, CONNECTIONS = 180, 2500


def is_clean(world):
    done = subprocess.run([BINARY, "fsck", "--data", world.nodes[0].data, "--metadata", world.postgres.url], capture_output=True, text=True)
    print(done.stdout.strip().splitlines()[-1] if done.stdout else done.stderr)
    return done.returncode == 0


def sign_ahead(hosts):
    """Requests to these hosts are signed an hour later: who has a right clock is refused there, as AWS does it."""
    spec = importlib.util.spec_from_file_location("sign_ahead", sign.__file__)
    late = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(late)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.datetime.now(zone) + AHEAD

    late.datetime = types.SimpleNamespace(datetime=Later, timezone=datetime.timezone)
    right = sign.headers

    def headers(method, host, *more, **named):
        return (late.headers if host in hosts else right)(method, host, *more, **named)

    sign.headers = headers


class Clocks(World):
    """The third server is ahead."""

    def made_folder(self, node):
        if self.made == 2:
            node.server.environment |= {"LD_PRELOAD": FAKETIME, "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            sign_ahead({node.server.host})


def clock(seconds):
    if not os.path.exists(FAKETIME):
        raise SystemExit("apt-get install faketime")
    world = Clocks(BUCKET, 3, 2, 2)
    try:
        load = Load(world.nodes, BUCKET, WRITERS, 1)
        try:
            time.sleep(seconds)
            world.nodes[2].server.kill()
            before = load.done()
            time.sleep(seconds)
            after = load.done()
            world.nodes[2].server.spawn()
            world.nodes[2].wait()
        finally:
            load.end()
        world.until_copied(60)
        wrong = [*load.wrong, *load.internal]
        read = [load.check(node, key) for node in world.nodes for key in load.registers]
        goal(f"{before} writes until the one that is ahead is killed, {after - before} after it", min(before, after - before) > 0)
        goal(f"{len(wrong)} reads that are wrong, or answers of an internal error {wrong[:3]}", not wrong and not load.wrong)
        goal(f"{sum(read)} of {len(read)} keys read at every server", all(read))
        for node in world.nodes:
            node.server.stop()
        goal("fsck finds nothing", is_clean(world))
    finally:
        world.close()


def many(count):
    Postgres.connections = CONNECTIONS
    world, gateways = World(BUCKET, 1, 1, 1, options=lambda number: ("--gateway-only",) if number else ()), []
    try:
        began, first = time.monotonic(), world.nodes[0]
        for _ in range(count):
            gateways.append(world.begin())
        for node in gateways:
            node.wait()
        up, memory = time.monotonic() - began, sum(node.server.memory()[0] for node in gateways) / count
        goal(f"{count} servers answer after {up:.0f} s, with {memory:.0f} MiB of memory each", up < STARTED_SECONDS_MAX)
        for number, node in enumerate(gateways):
            assert ask(node, "PUT", f"/{BUCKET}/k{number}", body=b"%d" % number)[0] == 200, node.name
        read = [ask(gateways[(number * 7 + 3) % count], "GET", f"/{BUCKET}/k{number}") == (200, b"%d" % number) for number in range(count)]
        goal(f"{sum(read)} of {count} objects, each put at one, read at another one", all(read))
        for node in gateways:
            os.kill(node.server.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        assert ask(first, "PUT", f"/{BUCKET}/after", body=b"after")[0] == 200
        print(f"the first one has written {time.monotonic() - killed:.1f} s after all others were killed")
        read = [ask(first, "GET", f"/{BUCKET}/k{number}") == (200, b"%d" % number) for number in range(count)]
        goal(f"{sum(read)} of {count} objects read there", all(read))
    finally:
        for node in gateways:
            if node.server.process.poll() is None:
                node.server.process.kill()
            node.server.process.wait()
        world.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["clock", "many", []], default=["clock", "many"])
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=20)
    wish = parser.parse_args()
    if "clock" in wish.parts:
        clock(wish.seconds)
    if "many" in wish.parts:
        many(wish.servers)
    finish()


main()
