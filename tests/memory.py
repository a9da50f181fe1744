#!/usr/bin/env python3
"""The functions of packaging/musl/memory.c, compared with Python at every length, distance and overlap that takes another path.

    tests/memory.py        compiles them with CC (default: cc) and calls them; needs nothing else

tests/dist.py runs it as its part `memory`.
"""

import ctypes
import os
import pathlib
import random
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "packaging/musl/memory.c"
FLAGS = ["-O2", "-ffreestanding", "-fno-builtin", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
# Around each limit of the code, and what is between them.
SHORT = range(0, 200)
LONG = [255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 4111, 5000]
# Bytes that must stay as they are, on both sides.
MARGIN = 32


def load(folder):
    library = os.path.join(folder, "memory.so")
    # gcc makes calls of memcpy from loops that look like it, unless it is told not to; clang does not know the word.
    compiler = os.environ.get("CC", "cc")
    is_clang = "clang" in subprocess.run([compiler, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    words = [] if is_clang else ["-fno-tree-loop-distribute-patterns"]
    subprocess.run([compiler, *FLAGS, *words, SOURCE, "-o", library], check=True)
    found = ctypes.CDLL(library)
    found.memmove.restype = found.memcpy.restype = ctypes.c_void_p
    return found


def sign(number):
    return (number > 0) - (number < 0)


def moves(function, ranges, is_overlapping):
    """Each length from and to each of some places of one buffer."""
    checks = 0
    for length in ranges:
        size = 2 * length + 4 * MARGIN
        start = random.randbytes(size)
        apart = length + MARGIN
        near = [0, 1, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, length // 2, length - 1, length]
        distances = [step for step in near if 0 <= step <= length] if is_overlapping else [apart]
        for distance in distances:
            for shift in range(0, 16, 3 if length > 64 else 5):
                for source, target in ((shift + MARGIN, shift + MARGIN + distance), (shift + MARGIN + distance, shift + MARGIN)):
                    buffer = ctypes.create_string_buffer(start, size)
                    at = ctypes.addressof(buffer)
                    told = function(ctypes.c_void_p(at + target), ctypes.c_void_p(at + source), ctypes.c_size_t(length))
                    wanted = start[:target] + start[source : source + length] + start[target + length :]
                    assert buffer.raw == wanted, f"{length} bytes from {source} to {target}"
                    assert told == at + target
                    checks += 1
    return checks


def fills(function, ranges):
    checks = 0
    for length in ranges:
        for shift in range(16):
            for value in (0, 0x5A, 0x1FF, -1):
                start = random.randbytes(length + 4 * MARGIN)
                buffer = ctypes.create_string_buffer(start, len(start))
                at = MARGIN + shift
                function(ctypes.c_void_p(ctypes.addressof(buffer) + at), ctypes.c_int(value), ctypes.c_size_t(length))
                assert buffer.raw == start[:at] + bytes([value & 255]) * length + start[at + length :], f"{length} bytes at {at}"
                checks += 1
    return checks


def compares(function, ranges, is_ordered):
    checks = 0

    def both(left, right):
        got = function(left, right, ctypes.c_size_t(len(left)))
        wanted = (left > right) - (left < right)
        assert (sign(got) if is_ordered else bool(got)) == (wanted if is_ordered else bool(wanted)), (left, right, got)

    for length in ranges:
        left = random.randbytes(length)
        both(left, bytes(left))
        # A byte that differs, at each place; what follows it says the opposite.
        for place in range(length) if length < 80 else random.sample(range(length), 40):
            for byte in (0, 0x7F, 0x80, 0xFF):
                right = left[:place] + bytes([byte]) + bytes(255 - each for each in left[place + 1 :])
                both(left, right)
                both(right, left)
                checks += 2
    return checks


def check_all():
    """The number of checks; an AssertionError says what is wrong."""
    random.seed(20)
    every = [*SHORT, *LONG]
    with tempfile.TemporaryDirectory(prefix="margay-memory.") as folder:
        found = load(folder)
        checks = moves(found.memmove, every, True) + compares(found.memcmp, every, True) + compares(found.bcmp, every, False)
        # aarch64 has those of musl.
        if os.uname().machine == "x86_64":
            checks += moves(found.memcpy, every, False) + fills(found.memset, every)
    return checks


if __name__ == "__main__":
    try:
        print(f"memory: {check_all()} checks passed")
    except AssertionError as error:
        sys.exit(f"memory: FAILED, {error}")
