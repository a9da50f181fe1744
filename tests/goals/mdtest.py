"""`margay bench mdtest` beside the real mdtest, on a margay mount and on ext4.

MDTEST=/path/to/mdtest python3 tests/goals/mdtest.py [ROUNDS]

MDTEST names a build of vitalif/mdtest, whose phases end with the fsync of a directory. Goal: each row's median within
10 % of the real one's. Both run in turns, once on each place in every round. ext4 is an image made anew for each
run: a used one gives its directories other places, and its rows spread twentyfold.
Needs root, /dev/fuse and a loop device.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

from server import BINARY, finish, goal, median, serving

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
MDTEST = os.environ.get("MDTEST")
TREE = {"-b": "6", "-I": "8", "-z": "4"}
IMAGE_BYTES = 4 << 30
ROW = re.compile(r"\s+((?:Directory|File|Tree) \w+)\s+([\d.]+)")


def real(folder):
    """Runs mdtest; gives {row: per second}."""
    below = folder / "real"
    below.mkdir()
    options = [word for pair in TREE.items() for word in pair]
    run = subprocess.run([MDTEST, "-d", str(below), *options], stdout=subprocess.PIPE, text=True, check=True)
    below.rmdir()
    found = (ROW.match(line) for line in run.stdout.splitlines())
    return {row[1].lower(): float(row[2]) for row in found if row}


def own(folder):
    """Runs ours; gives {row: per second}."""
    options = ["--branch", TREE["-b"], "--items", TREE["-I"], "--depth", TREE["-z"], "--rounds", "1", "--json"]
    command = [BINARY, "bench", "mdtest", "--dir", str(folder), *options]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return {row["phase"]: row["median"] for row in json.loads(run.stdout)["rows"]}


def on_new_ext4(above, program):
    """What the program finds on an empty ext4."""
    image, folder = above / "image", above / "ext4"
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    # Nothing is left for the kernel to initialise while the program runs.
    made = ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image)]
    subprocess.run(made, check=True)
    folder.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        return program(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()
        image.unlink()


def main():
    if not MDTEST:
        raise SystemExit("MDTEST is not set: it names a build of vitalif/mdtest")
    found = {}

    def keep(place, who, rates):
        for row, rate in rates.items():
            found.setdefault((place, row), {}).setdefault(who, []).append(rate)

    with serving() as server:
        above = pathlib.Path(server.data).parent
        mount = above / "mnt"
        mount.mkdir()
        if server.command("mount", "goals", str(mount), "--create", "--data", server.data).wait():
            raise SystemExit("cannot mount")
        try:
            for _ in range(ROUNDS):
                for program in (real, own):
                    keep("mount", program.__name__, program(mount))
                    keep("ext4", program.__name__, on_new_ext4(above, program))
        finally:
            subprocess.run(["umount", str(mount)], check=True)
    for (place, row), rates in found.items():
        theirs, ours = median(rates["real"]), median(rates["own"])
        spread = ", ".join(f"{min(rates[who]):.0f}-{max(rates[who]):.0f}" for who in ("real", "own"))
        text = f"{place}, {row}: real {theirs:.0f}, own {ours:.0f} per second, ratio {ours / theirs:.2f} ({spread})"
        goal(text, 0.9 <= ours / theirs <= 1.1)
    finish()


main()
