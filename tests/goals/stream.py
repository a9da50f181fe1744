"""1 GB written and read through a mount, beside the file system that the data is on.

python3 tests/goals/stream.py [ROUNDS] [MEBIBYTES]

Goals: write with fsync, read cold, read warm each at least 80 % of the file system below. Each round does every row on both,
in turn; figures are medians. Cold: neither the kernel's pages of the mount nor those of the data directory. Warm:
the second read in a row. Needs root and /dev/fuse.
"""

import os
import subprocess
import sys
import time

from server import evict, finish, goal, median, serving

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SIZE = (int(sys.argv[2]) if len(sys.argv) > 2 else 954) << 20
PIECE = os.urandom(1 << 20)
ROWS = ["write with fsync", "read cold", "read warm"]


def write(path):
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for _ in range(SIZE >> 20):
        os.write(file, PIECE)
    os.fsync(file)
    os.close(file)


def read(path):
    file, buffer = os.open(path, os.O_RDONLY), bytearray(1 << 20)
    while os.readv(file, [buffer]):
        pass
    os.close(file)


def timed(work, path):
    """MB/s."""
    began = time.monotonic()
    work(path)
    return SIZE / (time.monotonic() - began) / 1e6


def main():
    found = {(row, where): [] for row in ROWS for where in ("below", "mount")}
    with serving() as server:
        above = os.path.dirname(server.data)
        places = {"below": os.path.join(above, "below"), "mount": os.path.join(above, "mnt")}
        for folder in places.values():
            os.mkdir(folder)
        mounting = server.command("mount", "goals", places["mount"], "--create", "--data", server.data)
        if mounting.wait():
            raise SystemExit("cannot mount")
        try:
            for _ in range(ROUNDS):
                for where, folder in places.items():
                    path = os.path.join(folder, "file")
                    found["write with fsync", where].append(timed(write, path))
                    evict(folder)
                    evict(server.data)
                    found["read cold", where].append(timed(read, path))
                    found["read warm", where].append(timed(read, path))
                    os.unlink(path)
        finally:
            subprocess.run(["umount", places["mount"]], check=True)
    for row in ROWS:
        below, mount = found[row, "below"], found[row, "mount"]
        print(f"{row}: below {[round(rate) for rate in below]}, mount {[round(rate) for rate in mount]} MB/s")
        share = 100 * median(mount) / median(below)
        goal(f"{row}: {median(mount):.0f} of {median(below):.0f} MB/s, {share:.0f} % (goal 80)", share >= 80)
    finish()


main()
