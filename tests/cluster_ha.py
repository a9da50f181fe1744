"""A cluster that outlives its primary: python3 tests/cluster_ha.py

Three hosts, each with etcd, Patroni, PostgreSQL and a server, as `margay cluster init` sets them up, under load. The primary's PostgreSQL is
killed, then `margay cluster failover` moves it once more. Each key is a register, and at the end all are read at every server. MARGAY_BIN names the
program.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "goals"))
sys.dont_write_bytecode = True
from patroni import Hosts, missing, patroni_version, postgres_version  # noqa: E402
from registers import Load  # noqa: E402
from server import BINARY  # noqa: E402

BUCKET, WRITERS, AGAIN_SECONDS, READ_SECONDS, REST_SECONDS = "cluster", 3, 300, 120, 2


def written_since(load, before):
    """Until some writes are acknowledged that were not when things broke."""
    end = time.monotonic() + AGAIN_SECONDS
    while load.done() < before + 2 * WRITERS:
        if time.monotonic() > end:
            raise SystemExit(f"nothing is written for {AGAIN_SECONDS} s")
        time.sleep(0.05)


def answered(load, node, key):
    """Whether a key is read at a server, which may be busy for a while."""
    end = time.monotonic() + READ_SECONDS
    while not load.check(node, key):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def main():
    if why := missing():
        print(f"skipped: cluster-ha, because {why}")
        return
    began = time.monotonic()
    folder = tempfile.mkdtemp(prefix="ha-")
    os.chmod(folder, 0o755)
    world = Hosts(BUCKET, 3, 2, 2, folder)
    try:
        up = time.monotonic() - began
        print(f"three hosts are up after {up:.0f} s")
        load = Load(world.nodes, BUCKET, WRITERS, 1)
        try:
            time.sleep(REST_SECONDS)
            world.until("the cluster is whole", world.is_whole)
            primary = world.until("there is one primary", world.primary)
            primary.kill("postgres")
            # What was under way may be answered still: one write of each writer.
            killed = time.monotonic()
            written_since(load, load.done())
            again = time.monotonic() - killed
            print(f"the primary {primary.name} was killed: writes are answered again after {again:.1f} s")
            world.until("the cluster is whole again", world.is_whole)
            urls = ",".join(f"{host.address}:8008" for host in world.hosts)

            def is_moved():
                # Refused until Patroni itself knows which standby has all commits, a moment after PostgreSQL does.
                done = subprocess.run([BINARY, "cluster", "failover", "--patroni", urls], capture_output=True, text=True)
                print(done.stdout, done.stderr, sep="")
                return done.returncode == 0

            world.until("the primary is moved", is_moved)
            written_since(load, load.done())
        finally:
            load.end()
        wrong = [*load.wrong, *load.internal]
        for one in wrong[:10]:
            print("WRONG", one)
        read = [answered(load, node, key) for node in world.nodes for key in load.registers]
        assert not wrong and not load.wrong and all(read), f"{len(wrong)} wrong, {sum(read)} of {len(read)} read"
        print(
            f"evidence: PostgreSQL {postgres_version()} with Patroni {patroni_version()} and etcd, three hosts as cluster init sets them up (in {up:.0f} s): "
            f"the primary killed (writes again after {again:.1f} s) and moved by cluster failover, {load.done()} writes, 0 lost, 0 stale"
        )
    finally:
        world.close()
    shutil.rmtree(folder)


main()
