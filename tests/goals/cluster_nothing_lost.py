"""Nothing is lost by servers that share a volume: python3 tests/goals/cluster_nothing_lost.py [--rounds N] [--servers N] [--copies N]
[--write N] [--cells kill,stop,slow,end,all,database,disk,cut,full] [--seed N]

Some `margay serve` on one PostgreSQL, with copies of all data at several of them. Writers put and remove objects at any server; each key has
one writer, and each content says its key and number. Readers ask any server. Meanwhile, in turns:
  kill      a server is killed and started again
  stop      a server is stopped (SIGSTOP) for 1 to 12 seconds
  slow      a server runs for 50 ms of each 250 ms, for ten seconds
  cut       a server reaches nobody, and nobody reaches it, for 1 to 15 seconds (it is in a network namespace; needs root)
  full      the disk of a server has no room for some seconds (a file system in a file; needs root)
  end       a server ends in order and starts again
  all       all servers are killed at once and started again
  database  PostgreSQL is killed and started again
  disk      a server is killed and its disk is lost; it is detached, and a new one takes its place
With a cell of patroni_cells.py (primary, host, lost, hang, frozen, patroni, standby, standbys, etcd, etcds) PostgreSQL is one with standbys, Patroni
and etcd, as `margay cluster init` sets it up; kill, stop, slow, end and all may stand beside them.
A read must give the last acknowledged content of its key, or one whose outcome nobody knows; a listing must show what was acknowledged
before it. No answer may be 500. At the end every key is read at every server, and each server alone is asked for all that it has a copy of.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

from cluster import Network, World
from patroni import missing
from patroni_cells import CELLS, HostTurns
from registers import Load
from server import finish, goal

BUCKET, DISK_BYTES = "cluster", 8 << 30


class Turns(World):
    def __init__(self, arguments):
        self.arguments, self.chance = arguments, random.Random(arguments.seed)
        self.cells = arguments.cells.split(",")
        network = Network() if "cut" in self.cells else None
        super().__init__(BUCKET, arguments.servers, arguments.copies, arguments.write, network=network)

    def made_folder(self, node):
        if "full" in self.cells:
            subprocess.run(["truncate", "-s", str(DISK_BYTES), node.data + ".disk"], check=True)
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", node.data + ".disk"], check=True)
            subprocess.run(["mount", "-o", "loop", node.data + ".disk", node.data], check=True)
            os.rmdir(os.path.join(node.data, "lost+found"))
            os.chmod(node.data, 0o700)

    def lost_folder(self, node):
        self.unmount(node)
        super().lost_folder(node)

    def unmount(self, node):
        if os.path.ismount(node.data):
            subprocess.run(["umount", node.data], check=True)
            os.remove(node.data + ".disk")

    def close(self):
        super().close()
        for node in self.nodes:
            self.unmount(node)

    def turn(self, cell, load):
        one_turn(self, cell)

    def tell(self):
        """Of how long things took."""


class HaTurns(HostTurns):
    def turn(self, cell, load):
        if not super().turn(cell, load):
            one_turn(self, cell)


def one_turn(world, cell):
    node = world.chance.choice(world.nodes)
    if cell == "kill":
        node.server.kill()
        time.sleep(world.chance.uniform(0, 3))
        node.server.spawn()
        node.wait()
    elif cell == "stop":
        os.kill(node.server.process.pid, signal.SIGSTOP)
        time.sleep(world.chance.uniform(1, 12))
        os.kill(node.server.process.pid, signal.SIGCONT)
        node.wait()
    elif cell == "slow":
        for _ in range(40):
            os.kill(node.server.process.pid, signal.SIGSTOP)
            time.sleep(0.2)
            os.kill(node.server.process.pid, signal.SIGCONT)
            time.sleep(0.05)
    elif cell == "cut":
        world.network.cut(node, True)
        time.sleep(world.chance.uniform(1, 15))
        world.network.cut(node, False)
        node.wait()
    elif cell == "full":
        fill, end = os.path.join(node.data, "fill"), 0
        with open(fill, "wb") as file:
            for size in (1 << 26, 1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), end, size)
                        end += size
        time.sleep(world.chance.uniform(2, 10))
        os.remove(fill)
        node.wait()
    elif cell == "end":
        node.server.stop()
        node.server.spawn()
        node.wait()
    elif cell == "all":
        for one in world.nodes:
            one.server.kill()
        for one in world.nodes:
            one.server.spawn()
        for one in world.nodes:
            one.wait()
    elif cell == "database":
        world.postgres.kill()
        time.sleep(world.chance.uniform(0, 2))
        world.postgres.start()
        for one in world.nodes:
            one.wait()
    elif cell == "disk":
        # Else two of the copies of a segment may be lost at once.
        if not world.until_copied(120):
            raise SystemExit("copies are missing after two minutes: " + world.cluster("status").stdout)
        world.lose_disk(world.nodes.index(node))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--write", type=int, default=2)
    parser.add_argument("--writers", type=int, default=6)
    parser.add_argument("--cells", default="kill,stop,end,all,database,disk")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if set(CELLS).intersection(arguments.cells.split(",")):
        if why := missing():
            raise SystemExit(why)
        folder = tempfile.mkdtemp(prefix="cluster-")
        os.chmod(folder, 0o755)
        world = HaTurns(arguments, BUCKET, random.Random(arguments.seed), folder)
    else:
        world = Turns(arguments)
    done = {}
    try:
        load = Load(world.nodes, BUCKET, arguments.writers, arguments.seed)
        try:
            turns(world, load, done)
        finally:
            load.end()
    except BaseException:
        world.close()
        raise
    report(world, load, done)


def turns(world, load, done):
    for number in range(world.arguments.rounds):
        cell = world.cells[number % len(world.cells)]
        load.longest = 0.0
        time.sleep(world.chance.uniform(0.5, 2))
        world.turn(cell, load)
        done[cell] = done.get(cell, 0) + 1
        print(f"{number + 1:4} {cell:9} longest gap of one writer {load.longest:5.1f} s, wrong {len(load.wrong)}", flush=True)
        if load.wrong:
            break


def report(world, load, done):
    print("answers:", dict(sorted(load.counts.items())))
    copied = world.until_copied(120)
    answered = [load.check(node, key) for node in world.nodes for key in load.registers]
    status = world.status()
    for wrong in load.wrong[:10]:
        print("WRONG", wrong)
    goal(f"{done} with 0 reads or listings that were wrong; {len(load.wrong)}", not load.wrong)
    for internal in load.internal[:10]:
        print("500", internal)
    goal(f"{len(load.internal)} answers of an internal error", not load.internal)
    goal(f"every key is read at every server in the end: {sum(answered)} of {len(answered)}", all(answered))
    goal(f"every segment has its copies: {status['segments_with_too_few_copies']} of {status['segments']} have not", copied)
    world.tell()
    world.close()
    if not load.wrong and not load.internal and all(answered) and copied:
        shutil.rmtree(world.folder)
    else:
        print("left:", world.folder)
    finish()


main()
