"""Metadata that answers after a millisecond: python3 tests/goals/far_metadata.py [--rounds N] [--only rates|stall]

A server whose metadata is in its own process and one whose metadata answers 1 ms later (`trial.metadata_round_trip`), in turns. The
goals: 64 clients reach 80 % of 64,000 GETs a second, or of what the first server reaches; 16 threads on a mount, each in a
directory of its own, create at 80 % of 8,000 a second, or of the first server's rate. Then 1000 requests wait 5 s for the
metadata, twice, and /health of their server and a GET of another server are to answer within 20 ms meanwhile. The start of a
server whose metadata answers after 5 s takes minutes: its calls come one after another.
"""

import argparse
import http.client
import json
import os
import select
import shutil
import tempfile
import time

import server as goals
from server import Server, goal, median, permille

GET = ["--mix", "get=100", "--size", "1k", "--keys", "2000", "--connections", "64", "--seconds", "5", "--warmup-seconds", "1"]
CREATORS, FILES = 16, 1500
WAITING, STALL_SECONDS, STALL_ROUNDS = 1000, 5, 2
ANSWER_MS_MAX = 20


def gets(server):
    return server.bench("load", *GET)["operations"][0]["requests_per_second"]


def creates(server, mount):
    """Files per second made by threads that each have a directory: the median of the three times that dirops makes them."""
    report = server.command("bench", "dirops", "--json", "--rounds", "1", "--clients", str(CREATORS), "--files", str(FILES), "--dir", mount)
    output, _ = report.communicate()
    if report.returncode:
        raise SystemExit("files could not be made")
    return median(next(row["rounds"] for row in json.loads(output)["rows"] if row["phase"] == "create"))


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
                found["create"][one].append(creates(servers[one], mounts[one]))
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
    near, far = (Server(os.path.join(folder, name)) for name in ["near", "far"])
    try:
        for server in [near, far]:
            server.start()
            if [server.request("PUT", "/stall")[0], server.request("PUT", "/stall/key")[0]] != [200, 200]:
                raise SystemExit("no object to ask for")
        far.stop()
        far.options = ("--set", f"trial.metadata_round_trip={STALL_SECONDS * 1_000_000}")
        began = time.monotonic()
        far.spawn()
        # The answer to the first request finds the path to the object, and later ones need one call.
        far.until_answer("GET", "/stall/key")
        print(f"the first answer took {time.monotonic() - began:.0f} s", flush=True)
        waiting = [far.connect() for _ in range(WAITING)]
        # What the machine gives while nobody waits, to judge a longest time by.
        alone, times, answered = probe(far, near), {}, 0
        for _ in range(STALL_ROUNDS):
            for stream in waiting:
                stream.sendall(far.head("GET", "/stall/key"))
            # All of them wait from here on: what is measured are answers, not the arrival of a thousand requests.
            for what, found in probe(far, near).items():
                times.setdefault(what, []).extend(found)
            early = sum(bool(select.select([stream], [], [], 0)[0]) for stream in waiting)
            answered += sum(one_answer(stream) for stream in waiting)
            print(f"{early} were answered before they had waited; threads of the server: {threads(far)}", flush=True)
        print(f"{answered} of {STALL_ROUNDS * WAITING} were answered")
        for what, found in times.items():
            print(f"{what} while nobody waits: longest {max(alone[what]):.1f} ms of {len(alone[what])}")
            figures = f"median {median(found):.1f} ms, 99 % {permille(found, 990):.1f} ms, longest {max(found):.1f} ms of {len(found)}"
            goal(f"{what} while {WAITING} wait: {figures}", max(found) <= ANSWER_MS_MAX and answered == STALL_ROUNDS * WAITING)
    finally:
        near.stop()
        if far.process:
            far.kill()
        shutil.rmtree(folder)


def probe(far, near):
    """Milliseconds of answers that do not wait for the metadata of `far`, for most of a stall."""
    times = {"/health": [], "GET of another server": []}
    end = time.monotonic() + 0.8 * STALL_SECONDS
    while time.monotonic() < end:
        times["/health"].append(health(far))
        times["GET of another server"].append(milliseconds(lambda: near.request("GET", "/stall/key")))
        time.sleep(0.02)
    return times


def milliseconds(call):
    began = time.monotonic()
    call()
    return 1000 * (time.monotonic() - began)


def health(server):
    """Milliseconds of one /health on a new connection."""

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=30)
        connection.request("GET", "/health")
        connection.getresponse().read()
        connection.close()

    return milliseconds(ask)


def one_answer(stream):
    """Whether the next answer on `stream` is a 200, read to its end."""
    response = http.client.HTTPResponse(stream)
    response.begin()
    response.read()
    return response.status == 200


def threads(server):
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["rates", "stall"])
    arguments = parser.parse_args()
    if arguments.only != "stall":
        compare(arguments.rounds)
    if arguments.only != "rates":
        stall()
    goals.finish()
