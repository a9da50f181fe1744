"""What survive.sh asks of a mount: survive.py tree|rows|rows_kept|victim|overwrite|refill|fill|filled|many|names ARGUMENTS."""

import concurrent.futures
import errno
import hashlib
import os
import random
import sqlite3
import sys
import time


def write_file(path, data):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        # A full disk takes the beginning only; the next call says why.
        while data:
            data = data[os.write(file, data):]
        os.fsync(file)
    finally:
        os.close(file)


def tree(root, files, directories):
    """Files of 0.5 to 300 KB, always the same ones."""
    choice = random.Random(7)
    for number in range(int(files)):
        place = number % int(directories)
        folder = os.path.join(root, f"d{place % 32:02}", f"e{place // 32:02}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"file{number:05}"), "wb") as file:
            file.write(choice.randbytes(choice.randint(512, 300 * 1024)))


def rows(database, acknowledged, mode):
    """Commits rows until the mount is gone, and notes each that was acknowledged."""
    base = sqlite3.connect(database)
    base.execute(f"PRAGMA journal_mode={mode}")
    # With a rollback journal, only EXTRA syncs the removal of the journal, which is the commit.
    base.execute("PRAGMA synchronous=" + ("FULL" if mode == "WAL" else "EXTRA"))
    base.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, body TEXT)")
    base.commit()
    number = base.execute("SELECT coalesce(max(id), 0) FROM t").fetchone()[0]
    with open(acknowledged, "a", buffering=1) as notes:
        try:
            while True:
                number += 1
                base.execute("INSERT INTO t VALUES(?, ?)", (number, "x" * (number * 37 % 3000)))
                base.commit()
                notes.write(f"{number}\n")
        except sqlite3.Error:
            pass


def rows_kept(database, acknowledged):
    base = sqlite3.connect(database)
    verdict = base.execute("PRAGMA integrity_check").fetchone()[0]
    have = {row[0] for row in base.execute("SELECT id FROM t")}
    noted = [int(line) for line in open(acknowledged)]
    missing = [number for number in noted if number not in have]
    if verdict != "ok" or missing or not noted:
        sys.exit(f"{database}: {verdict}, {len(missing)} of {len(noted)} acknowledged rows missing: {missing[:5]}")
    print(len(noted))


def victim(folder, kind, begun):
    """Works until the server is killed, from when BEGUN is there; anything but a clear error is a failure."""
    path = os.path.join(folder, "victim-" + kind)
    try:
        write_file(path, bytes(1 << 20))
        open(begun, "w").close()
        file = os.open(path, os.O_RDWR)
        turn = 0
        while True:
            turn += 1
            if kind == "write":
                os.pwrite(file, bytes(65536), turn % 64 * 65536)
            elif kind == "fsync":
                os.pwrite(file, b"z", turn % 9999)
                os.fsync(file)
            elif kind == "read":
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.pread(file, 65536, turn % 16 * 65536)
            elif kind == "list":
                os.listdir(folder)
            elif kind == "create":
                os.close(os.open(f"{path}-{turn % 500}", os.O_WRONLY | os.O_CREAT))
            else:
                os.rename(path, path + "-b")
                os.rename(path + "-b", path)
    except OSError as error:
        if error.errno not in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED):
            sys.exit(f"{kind}: {error}")


def refill(folder):
    """Fills to ENOSPC, reads all, deletes two thirds, and gets 85 % of that back within 60 s.

    Not all of it: a pack is rewritten once less than 70 % of it lives, and the one that is being filled may have 8 MiB dead.
    """
    choice, kept = random.Random(1), {}
    path = lambda number: os.path.join(folder, f"f{number}")

    def check(numbers):
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("3")
        for number in numbers:
            with open(path(number), "rb") as file:
                if hashlib.sha256(file.read()).digest() != kept[number][0]:
                    sys.exit(f"full disk: {path(number)} differs")

    while True:
        data = choice.randbytes(3 << 20 if len(kept) % 2 else 200_000)
        try:
            write_file(path(len(kept)), data)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            break
        kept[len(kept)] = (hashlib.sha256(data).digest(), len(data))
    check(kept)
    cut, freed, begun, back = len(kept) * 2 // 3, 0, time.monotonic(), 0
    for number in range(cut):
        os.unlink(path(number))
        freed += kept[number][1]
    while back < freed * 85 // 100:
        if time.monotonic() - begun > 60:
            sys.exit(f"full disk: {back >> 20} of {freed >> 20} MiB back after 60 s")
        data = choice.randbytes(2 << 20)
        try:
            write_file(os.path.join(folder, f"again{back}"), data)
            back += len(data)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            time.sleep(0.2)
    waited = time.monotonic() - begun
    check(range(cut, len(kept)))
    size = sum(length for _, length in kept.values()) >> 20
    print(f"{size} MiB until ENOSPC, all read, {back >> 20} of {freed >> 20} deleted MiB in use again after {waited:.1f} s")


def overwrite(folder):
    """Writes over one open file again and again, in pieces, several times as much as the disk has room for."""
    length, total, threads = 96 << 20, 3 << 30, 2
    pool = random.Random(0).randbytes(8 << 20)
    path, model = os.path.join(folder, "overwritten"), bytearray(length)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    os.ftruncate(file, length)

    def write(number):
        choice, left, part = random.Random(number), total // threads, length // threads
        while left > 0:
            begin = choice.randrange(4 << 20)
            data = pool[begin : begin + choice.randrange(1, 4 << 20)]
            at = number * part + choice.randrange(part - len(data))
            done = 0
            while done < len(data):
                done += os.pwrite(file, data[done:], at + done)
            model[at : at + len(data)] = data
            left -= len(data)

    with concurrent.futures.ThreadPoolExecutor(threads) as workers:
        list(workers.map(write, range(threads)))
    os.fsync(file)
    os.close(file)
    with open(path, "rb") as whole:
        if whole.read() != model:
            sys.exit("overwrite: the bytes differ")
    os.unlink(path)
    print(f"{total >> 20} MiB written over {length >> 20} MiB of one open file")


def fill(folder, manifest):
    """Files of 1 MB until ENOSPC; MANIFEST says what is in them."""
    choice = random.Random(3)
    with open(manifest, "w") as notes:
        for number in range(1 << 20):
            data = choice.randbytes(1_000_000)
            try:
                write_file(os.path.join(folder, str(number)), data)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
            notes.write(f"{number} {hashlib.sha256(data).hexdigest()}\n")


def filled(folder, manifest):
    count = 0
    for name, digest in (line.split() for line in open(manifest)):
        with open(os.path.join(folder, name), "rb") as file:
            if hashlib.sha256(file.read()).hexdigest() != digest:
                sys.exit(f"full disk: {name} differs after a start")
        count += 1
    print(count)


def many(folder, count, others):
    """Holds many open files at once beside the others, half of them without a name."""
    files = []
    for number in range(int(count)):
        file = os.open(os.path.join(folder, str(number)), os.O_RDWR | os.O_CREAT)
        os.write(file, b"%d" % number)
        files.append(file)
    open(folder + ".ready", "w").close()
    above = os.path.dirname(folder)
    while sum(name.endswith(".ready") for name in os.listdir(above)) < int(others):
        time.sleep(0.05)
    for number in range(0, len(files), 2):
        os.unlink(os.path.join(folder, str(number)))
    for number, file in enumerate(files):
        if os.pread(file, 20, 0) != b"%d" % number:
            sys.exit(f"open file {number} differs")
    open(folder + ".done", "w").close()


def names(folder):
    """Names that are no UTF-8, and of 255 bytes, come back as they were given."""
    folder = os.fsencode(folder)
    wanted = [b"\xff\xfe", b"caf\xe9", b"a\x80b", b"n" * 255, "ü".encode() * 127, b"\xe9" * 255, b" ", b"a\nb", b"\x01"]
    for name in wanted:
        write_file(os.path.join(folder, name), name)
    if sorted(os.listdir(folder)) != sorted(wanted):
        sys.exit(f"names: {os.listdir(folder)}")
    for name in wanted:
        with open(os.path.join(folder, name), "rb") as file:
            if file.read() != name:
                sys.exit(f"names: {name} differs")
    try:
        write_file(os.path.join(folder, b"n" * 256), b"")
        sys.exit("names: 256 bytes were taken")
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    print(len(wanted))


if __name__ == "__main__":
    steps = [tree, rows, rows_kept, victim, overwrite, refill, fill, filled, many, names]
    {step.__name__: step for step in steps}[sys.argv[1]](*sys.argv[2:])
