"""What N objects cost in PostgreSQL: python3 tests/goals/sizing_postgres.py [OBJECTS,...] [SIZE]

The second table of docs/sizing.md: one server on one PostgreSQL with its default settings, filled by S3 with OBJECTS (default
10000,100000) of SIZE bytes (4096). Bytes are exact; they are told after a vacuum and a checkpoint, and for each object that came since
the line before.
"""

import json
import subprocess
import sys
import time

from cluster import World

COUNTS = [int(count) for count in (sys.argv[1] if len(sys.argv) > 1 else "10000,100000").split(",")]
SIZE = sys.argv[2] if len(sys.argv) > 2 else "4096"


def sql(world, text):
    done = subprocess.run(["psql", world.postgres.url, "-Atc", text], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def fill(server, count):
    """Until so many objects were put since the server began."""
    load = server.command("bench", "load", "--endpoint", f"http://{server.host}", "--mix", "put=100", "--size", SIZE,
                          "--connections", "64", "--seconds", "7200")
    try:
        while server.metrics().get('margay_requests_total{operation="PutObject",status="200"}', 0) < count:
            if load.poll() is not None:
                raise SystemExit("the load ended by itself")
            time.sleep(0.05)
    finally:
        # Killed, so that it does not remove its bucket.
        load.kill()
        load.wait()


def objects(world):
    done = world.nodes[0].server.command("du", "--data", world.nodes[0].data, "--json")
    return sum(int(bucket["objects"]) for bucket in json.loads(done.communicate()[0])["buckets"])


def look(world):
    """Objects, bytes of the database, bytes of its log so far."""
    log = float(sql(world, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))
    sql(world, "VACUUM")
    sql(world, "CHECKPOINT")
    return objects(world), float(sql(world, "SELECT pg_database_size(current_database())")), log


world = World("sizing", servers=1, copies=1, write=1)
try:
    print("objects | database, MiB | of each object, bytes | log of each object, bytes | memory of the server at most, MiB", flush=True)
    before = look(world)
    for count in COUNTS:
        fill(world.nodes[0].server, count)
        now = look(world)
        more, database, log = (new - old for new, old in zip(now, before))
        memory = world.nodes[0].server.memory()[1]
        print(f"| {now[0]:,} | {now[1] / 2**20:.0f} | {database / more:.0f} | {log / more:.0f} | {memory:.0f} |", flush=True)
        before = now
finally:
    world.close()
