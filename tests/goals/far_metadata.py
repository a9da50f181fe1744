"""Metadata that answers after a millisecond: python3 tests/goals/far_metadata.py [--rounds N]

A server whose metadata is in its own process and one whose metadata answers 1 ms later (`trial.metadata_round_trip`), in turns. The
goals: 64 clients reach 80 % of 64,000 GETs a second, or of what the first server reaches; 16 threads on a mount, each in a
directory of its own, create at 80 % of 8,000 a second, or of the first server's rate. Then 1000 requests wait five times
1 s for the metadata (a start makes 45 calls, one after another), and /health is to answer within 20 ms meanwhile.
"""

import argparse
import concurrent.futures
import http.client
import os
import pathlib
import shutil
import socket
import tempfile
import time

import server as goals
from server import Server, goal, median, permille

GET = ["--mix", "get=100", "--size", "1k", "--keys", "2000", "--connections", "64", "--seconds", "5", "--warmup-seconds", "1"]
CREATORS, FILES = 16, 1500
WAITING, STALL_SECONDS, STALL_ROUNDS = 1000, 1, 5


def gets(server):
    return server.bench("load", *GET)["operations"][0]["requests_per_second"]


def creates(mount, round_number):
    """Files per second made by threads that each have a directory."""
    folders = [pathlib.Path(mount) / f"r{round_number}d{number}" for number in range(CREATORS)]
    for folder in folders:
        folder.mkdir()

    def work(folder):
        for number in range(FILES):
            os.close(os.open(folder / f"f{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(work, folders))
    return CREATORS * FILES / (time.monotonic() - began)


def compare(rounds):
    folder = tempfile.mkdtemp(prefix="margay-far.")
    servers, mounts = [], []
    try:
        for name, options in [("near", []), ("far", ["--set", "trial.metadata_round_trip=1000"])]:
            mount = os.path.join(folder, f"{name}.mount")
            os.mkdir(mount)
            server = Server(os.path.join(folder, name), *options, "--mount", f"creates={mount}")
            server.start()
            servers.append(server)
            mounts.append(mount)
            if not server.appears(mount):
                raise SystemExit(f"no mount; see {server.data}.log")
        found = {"GET": ([], []), "create": ([], [])}
        for number in range(rounds):
            for one in [0, 1] if number % 2 == 0 else [1, 0]:
                found["GET"][one].append(gets(servers[one]))
                found["create"][one].append(creates(mounts[one], number))
                print(f"{'near' if one == 0 else 'far '}  GET {found['GET'][one][-1]:9.0f}/s  create {found['create'][one][-1]:8.0f}/s", flush=True)
        for figure, most in [("GET", 64_000), ("create", 8_000)]:
            near, far = (median(values) for values in found[figure])
            wanted = 0.8 * min(near, most)
            goal(f"{figure}: {far:.0f}/s of {near:.0f}/s in the process itself; wanted {wanted:.0f}/s", far >= wanted)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder)


def stall():
    folder = tempfile.mkdtemp(prefix="margay-far.")
    server = Server(os.path.join(folder, "data"), "--set", f"trial.metadata_round_trip={STALL_SECONDS * 1_000_000}")
    try:
        server.spawn()
        while not listens(server.port):
            time.sleep(0.2)
        for method, path in [("PUT", "/b"), ("PUT", "/b/k")]:
            while server.request(method, path)[0] not in (200, 409):
                pass
        waiting = [server.connect() for _ in range(WAITING)]
        times, answered = [], 0
        for _ in range(STALL_ROUNDS):
            for stream in waiting:
                stream.sendall(server.head("GET", "/b/k"))
            end = time.monotonic() + 0.8 * STALL_SECONDS
            while time.monotonic() < end:
                times.append(health(server))
                time.sleep(0.02)
            answered += sum(one_answer(stream) for stream in waiting)
        print(f"{answered} of {STALL_ROUNDS * WAITING} were answered; threads of the server: {threads(server)}")
        goal(f"/health while {WAITING} wait: median {median(times):.1f} ms, 99 % {permille(times, 990):.1f} ms, longest {max(times):.1f} ms of {len(times)}", max(times) <= 20 and answered == STALL_ROUNDS * WAITING)
    finally:
        server.kill()
        shutil.rmtree(folder)


def health(server):
    """Milliseconds of one /health on a new connection."""
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=30)
    connection.request("GET", "/health")
    connection.getresponse().read()
    connection.close()
    return 1000 * (time.monotonic() - began)


def one_answer(stream):
    """Whether the next answer on `stream` is a 200, read to its end."""
    response = http.client.HTTPResponse(stream)
    response.begin()
    response.read()
    return response.status == 200


def threads(server):
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    compare(parser.parse_args().rounds)
    stall()
    goals.finish()
