"""A cluster on this machine, to try: `make cluster` starts PostgreSQL and three servers with copies of all data at three and mounts, and
tells what to do with them; it ends with Ctrl-C, and nothing is left. `make cluster-kill`, beside it, kills one of the servers and shows
what the others answer meanwhile; `make cluster` starts it again.
"""

import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "goals"))
sys.dont_write_bytecode = True
from cluster import World  # noqa: E402
from server import ACCESS, BINARY, SECRET, sign  # noqa: E402

FOLDER, BUCKET, SERVERS, REST_SECONDS, SHOWN_SECONDS = "/tmp/margay-cluster", "demo", 3, 8, 6
PLACES = os.path.join(FOLDER, "places.json")


def serve():
    if os.path.exists(FOLDER):
        raise SystemExit(f"there is a cluster in {FOLDER}, or what is left of one: end it, or remove the folder")
    os.makedirs(FOLDER, mode=0o755)
    world = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        print("starting PostgreSQL and three servers...", flush=True)
        world = World(BUCKET, SERVERS, 3, 2, FOLDER, mount_options)
        tell(world)
        keep(world)
    except KeyboardInterrupt:
        print("\nending")
    finally:
        end(world)


def mount_options(number):
    point = os.path.join(FOLDER, f"mount{number + 1}")
    os.mkdir(point)
    return ("--mount", f"{BUCKET}={point}") if os.path.exists("/dev/fuse") else ()


def tell(world):
    tell_places(world)
    one, two = world.nodes[0].server, world.nodes[1].server
    print("\nthree servers of one volume, each object on the disks of three, two of them before a write is answered\n")
    for number, node in enumerate(world.nodes, 1):
        print(f"  server {number}   http://{node.server.host}   mounted at {FOLDER}/mount{number}   log {node.data}.log")
    print(f"""
  export AWS_ACCESS_KEY_ID={ACCESS} AWS_SECRET_ACCESS_KEY={SECRET} AWS_REGION=us-east-1
  aws --endpoint-url http://{one.host} s3 cp /etc/hostname s3://{BUCKET}/name    # put at server 1
  aws --endpoint-url http://{two.host} s3 ls s3://{BUCKET}                       # shown by server 2
  cat {FOLDER}/mount3/name                                    # read through server 3
  {BINARY} cluster status --metadata '{world.postgres.url}'
  make cluster-kill                                                   # kill one of them, and see

Ctrl-C ends it and removes everything.""", flush=True)


def keep(world):
    """Starts again what was killed, after a while."""
    while True:
        for number, node in enumerate(world.nodes, 1):
            if node.server.process.poll() is not None:
                print(f"server {number} has ended; it starts again in {REST_SECONDS} s", flush=True)
                time.sleep(REST_SECONDS)
                unmount(number)
                node.server.spawn()
                node.wait()
                print(f"server {number} is back", flush=True)
                tell_places(world)
        time.sleep(0.5)


def tell_places(world):
    with open(PLACES, "w") as file:
        json.dump([(node.server.port, node.server.process.pid) for node in world.nodes], file)


def unmount(number):
    subprocess.run(["umount", "-l", f"{FOLDER}/mount{number}"], check=False, stderr=subprocess.DEVNULL)


def end(world):
    if world:
        for node in world.nodes:
            node.server.stop()
        world.postgres.stop()
    for number in range(1, SERVERS + 1):
        unmount(number)
    shutil.rmtree(FOLDER, ignore_errors=True)


def kill():
    if not os.path.exists(PLACES):
        raise SystemExit("no cluster runs here: make cluster")
    with open(PLACES) as file:
        places = json.load(file)
    victim = random.randrange(len(places))
    others = [port for number, (port, _) in enumerate(places) if number != victim]
    print(f"before: {ask_for(others, 2)}")
    print(f"killing server {victim + 1}")
    os.kill(places[victim][1], signal.SIGKILL)
    print(f"after:  {ask_for(others, SHOWN_SECONDS)}")


def ask_for(ports, seconds):
    """Puts and reads small objects at these servers, in turns, for so long."""
    counts, longest, wrong, end_at = 0, 0.0, 0, time.monotonic() + seconds
    while time.monotonic() < end_at:
        body, began = f"object {counts}".encode(), time.monotonic()
        for method, port in (("PUT", ports[counts % 2]), ("GET", ports[(counts + 1) % 2])):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            path, host = f"/{BUCKET}/kill/{counts % 100}", f"127.0.0.1:{port}"
            sent = body if method == "PUT" else b""
            connection.request(method, path, sent, sign.headers(method, host, path, "", ACCESS, SECRET))
            answer = connection.getresponse()
            found = answer.read()
            wrong += answer.status != 200 or (method == "GET" and found != body)
            connection.close()
        longest, counts = max(longest, time.monotonic() - began), counts + 1
    return f"{counts} objects put at one server and read at the other, {wrong} failed or wrong, the slowest took {longest:.2f} s"


if __name__ == "__main__":
    {"serve": serve, "kill": kill}[sys.argv[1]]()
