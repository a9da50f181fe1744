"""What options.sh asks of a mount: options.py await_ready|small_writes|changes|changes_kept|told ARGUMENTS."""

import ctypes
import errno
import mmap
import os
import random
import socket
import sys


def await_ready(path):
    """What systemd does for a unit of type notify."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.settimeout(60)
        message = server.recv(4096)
    if message != b"READY=1":
        sys.exit(f"{message!r} instead of READY=1")


def told(folder, reserve_bytes):
    """What the mount says of itself: room without the server's reserve, and no handles of files that it could not open later."""
    found = os.statvfs(folder)
    reserved = (found.f_bfree - found.f_bavail) * found.f_frsize
    if reserved < int(reserve_bytes) - found.f_frsize:
        sys.exit(f"{reserved} bytes less are available than free: {found}")
    handle = (ctypes.c_uint * 34)(128)
    number = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.name_to_handle_at(-100, os.fsencode(folder), handle, ctypes.byref(number), 0) == 0:
        sys.exit("a handle of a file is given out")
    if ctypes.get_errno() != errno.EOPNOTSUPP:
        sys.exit(f"name_to_handle_at: {os.strerror(ctypes.get_errno())}")


def small_writes(folder, expected):
    """The same bytes by small writes of every kind into FOLDER/small, and at once into EXPECTED."""
    choice = random.Random(11)
    path = os.path.join(folder, "small")
    content = bytearray()
    with open(path, "wb", buffering=0) as first, open(path, "ab", buffering=0) as second:
        for number in range(3000):
            piece = choice.randbytes(choice.randint(1, 40))
            (first if number % 2 else second).write(piece)
            content += piece
            first.seek(0, os.SEEK_END)
    with open(path, "r+b", buffering=0) as file:
        for _ in range(500):
            offset, piece = choice.randrange(len(content)), choice.randbytes(7)
            os.pwrite(file.fileno(), piece, offset)
            content[offset : offset + 7] = piece
        if len(content) != os.fstat(file.fileno()).st_size:
            sys.exit(f"{os.fstat(file.fileno()).st_size} bytes, {len(content)} expected")
        with mmap.mmap(file.fileno(), 0) as view:
            view[1000:1010] = content[1000:1010] = b"memory map"
        file.truncate(len(content) - 3)
        del content[-3:]
    with open(expected, "wb") as file:
        file.write(content)


def changes(folder, done):
    """Changes without any fsync until the mount is gone; DONE notes each that was answered."""
    with open(done, "w", buffering=1) as notes:
        number = 0
        try:
            os.mkdir(folder)
            while True:
                number += 1
                path = os.path.join(folder, str(number))
                with open(path, "w") as file:
                    file.write(f"content {number}")
                notes.write(f"made {number}\n")
                os.rename(path, path + ".moved")
                notes.write(f"moved {number}\n")
                if number % 2:
                    os.unlink(path + ".moved")
                    notes.write(f"removed {number}\n")
        except OSError:
            pass


def changes_kept(folder, done):
    lines = [line.split() for line in open(done)]
    last = {number: what for what, number in lines}
    if len(last) < 2:
        sys.exit("hardly anything was changed")
    for number, what in last.items():
        # The change that was under way may be there or not; at most the newest file is in the middle of one.
        under_way = int(number) == max(map(int, last))
        there = [name for name in (number, number + ".moved") if os.path.exists(os.path.join(folder, name))]
        wanted = {"made": [number], "moved": [number + ".moved"], "removed": []}[what]
        if there != wanted and not under_way:
            sys.exit(f"{number} was {what}, found {there}")
        if under_way and what == "removed" and there:
            sys.exit(f"{number} was removed, found {there}")
        for name in there:
            content = open(os.path.join(folder, name)).read()
            if content != f"content {number}":
                sys.exit(f"{name} holds {content!r}")


if __name__ == "__main__":
    parts = [await_ready, small_writes, changes, changes_kept, told]
    {part.__name__: part for part in parts}[sys.argv[1]](*sys.argv[2:])
