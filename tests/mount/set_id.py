"""Set-id bits on a mount with `suid`, on the real binary: who changes a program does not get its owner's rights.

Every way in which an unprivileged user can change a file that is somebody else's program must take the bits away, for
`stat` and for the kernel that runs it. Nothing here has file capabilities: with them the kernel asks the server anew.
Usage: unshare --mount --propagation private python3 tests/mount/set_id.py [ROUNDS]. Needs root and /dev/fuse; MARGAY_BIN
names the program. ROUNDS is how often running a program races with overwriting it.
"""

import ctypes
import errno
import mmap
import os
import shutil
import stat
import subprocess
import sys
import tempfile

from isolation import LIBC, NOBODY, ROOT, World, as_nobody, check, done, fail, read, write

FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE = 1, 2, 16
# Longer than what is copied byte by byte (`SHARE_BYTES_MIN`).
SHARED_BYTES = 256 << 10
RACE_ROUNDS = 40


def fallocate(file, mode, offset, length):
    if LIBC.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


def opened(path, flags, action):
    file = os.open(path, flags)
    try:
        action(file)
        # The writer himself sees it, too.
        if os.fstat(file).st_mode & 0o4000:
            raise AssertionError("fstat of the writer still shows set-user-id")
    finally:
        os.close(file)


def direct(path):
    with mmap.mmap(-1, 4096) as page:
        opened(path, os.O_WRONLY | os.O_DIRECT, lambda file: os.pwritev(file, [page], 0))


def copied(length, inside=False):
    def copy(path):
        source = path if inside else path + ".source"
        file = os.open(source, os.O_RDONLY)
        try:
            opened(path, os.O_RDWR, lambda to: os.copy_file_range(file, to, length, 0, 2 * length))
        finally:
            os.close(file)
    return copy


def allocated(mode, offset=0, length=8192):
    return lambda path: opened(path, os.O_RDWR, lambda file: fallocate(file, mode, offset, length))


WAYS = {
    "write": lambda path: opened(path, os.O_WRONLY, lambda file: os.write(file, b"x")),
    "append": lambda path: opened(path, os.O_WRONLY | os.O_APPEND, lambda file: os.write(file, b"x")),
    "direct write": direct,
    "write behind the end": lambda path: opened(path, os.O_WRONLY, lambda file: os.pwrite(file, b"x", 5 << 20)),
    "truncate": lambda path: os.truncate(path, 100),
    "truncate to the same size": lambda path: os.truncate(path, os.stat(path).st_size),
    "ftruncate": lambda path: opened(path, os.O_WRONLY, lambda file: os.ftruncate(file, 100)),
    "O_TRUNC": lambda path: opened(path, os.O_WRONLY | os.O_TRUNC, lambda file: None),
    "fallocate": allocated(0, 0, 8 << 20),
    "fallocate of what is there": allocated(0),
    "fallocate that keeps the size": allocated(FALLOC_KEEP_SIZE, 0, 8 << 20),
    "punched hole": allocated(FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE),
    "zeroed range": allocated(FALLOC_ZERO_RANGE),
    "zeroed range that keeps the size": allocated(FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE),
    "short copy_file_range": copied(100),
    "shared copy_file_range": copied(SHARED_BYTES),
    "copy_file_range inside": copied(SHARED_BYTES, inside=True),
}


def program(path, mode=0o4770, content="/bin/true"):
    """Root's program, which the group may write and run."""
    if os.path.lexists(path):
        os.unlink(path)
    shutil.copyfile(content, path)
    os.truncate(path, max(os.path.getsize(path), 2 * SHARED_BYTES))
    os.chown(path, 0, NOBODY.pw_gid)
    os.chmod(path, mode)
    # The kernel has it in its cache from here on.
    check(f"{path} has its bits", stat.S_IMODE(os.stat(path).st_mode) == mode)
    return path


def every_way(folder, what):
    source = os.path.join(folder, "program.source")
    write(source, os.urandom(SHARED_BYTES))
    os.chmod(source, 0o644)
    for name, way in WAYS.items():
        for mode, wanted in ((0o4770, 0o770), (0o6770, 0o770), (0o6760, 0o2760)):
            path = program(os.path.join(folder, "program"), mode)
            as_nobody(f"{what}: {name}", lambda: way(path))
            found = stat.S_IMODE(os.stat(path).st_mode)
            if found != wanted:
                fail(f"{what}: {name} of a file of {mode:o} leaves {found:o}")
        done.append(f"{what}: {name}")
    path = program(os.path.join(folder, "program"), 0o6770)
    os.chown(path, -1, -1)
    check(f"{what}: a chown of nothing takes them", stat.S_IMODE(os.stat(path).st_mode) == 0o770)
    for name in ("write", "fallocate", "short copy_file_range"):
        path = program(os.path.join(folder, "program"))
        WAYS_OF_ROOT[name](path)
        check(f"{what}: {name} of root leaves them", stat.S_IMODE(os.stat(path).st_mode) == 0o4770)


# As above, but for what a writer must see.
WAYS_OF_ROOT = {
    "write": lambda path: os.close(written(path, b"x")),
    "fallocate": lambda path: opened_by_root(path, lambda file: os.posix_fallocate(file, 0, 8 << 20)),
    "short copy_file_range": lambda path: opened_by_root(
        path + ".source", lambda source: opened_by_root(path, lambda file: os.copy_file_range(source, file, 100))),
}


def opened_by_root(path, action):
    file = os.open(path, os.O_RDWR)
    try:
        action(file)
    finally:
        os.close(file)


def written(path, content):
    file = os.open(path, os.O_WRONLY)
    os.write(file, content)
    return file


def runs(path):
    """What a program says as another user; nothing when it cannot be run."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            os.dup2(write_end, 1)
            os.execv(path, ["id", "-u"])
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as said:
        text = said.read().decode().strip()
    os.waitpid(child, 0)
    return text


def overwritten_and_run(folder):
    identity = read(shutil.which("id"))
    path = program(os.path.join(folder, "program"), content=shutil.which("id"))
    check("a set-user-id program runs as root", runs(path) == "0")
    as_nobody("a member of the group overwrites it", lambda: os.close(written(path, identity)))
    check("overwritten, it runs as who runs it", runs(path) == str(NOBODY.pw_uid))


def raced(folder, rounds):
    """Somebody overwrites the program between two steps of running it."""
    identity = read(shutil.which("id"))
    path = os.path.join(folder, "program")
    for _ in range(rounds):
        program(path)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(NOBODY.pw_gid)
                os.setuid(NOBODY.pw_uid)
                os.write(open_unless_it_runs(path), identity)
                os._exit(0)
            finally:
                os._exit(1)
        status = None
        while status is None:
            if runs(path) == "0":
                fail("a program that was overwritten ran as root")
            found, ended = os.waitpid(child, os.WNOHANG)
            status = ended if found else None
        check("it was overwritten", status == 0)
        if runs(path) != str(NOBODY.pw_uid):
            fail("a program that was overwritten does not run as who runs it")
    done.append(f"overwritten while it was run, {rounds} times")


def open_unless_it_runs(path):
    while True:
        try:
            return os.open(path, os.O_WRONLY)
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else RACE_ROUNDS
    folder = tempfile.mkdtemp(prefix="margay-set-id.")
    world = World(folder)
    try:
        world.s3("PUT", "/suid", ROOT)
        for options, what in (("suid", "suid"), ("suid,writeback", "suid and writeback"), ("allow_other", "nosuid")):
            mount = world.mount("suid", "mnt", "-o", options)
            os.chmod(mount, 0o777)
            every_way(mount, what)
            if "suid" in options:
                overwritten_and_run(mount)
                raced(mount, rounds)
            world.unmount("mnt")
    finally:
        world.end()
        while os.path.ismount(world.at("mnt")):
            subprocess.run(["umount", "-l", world.at("mnt")], check=True)
        shutil.rmtree(folder)
    print(f"evidence: set-id bits: {len(done)} checks; no way to another's rights by changing a program")


if __name__ == "__main__":
    main()
