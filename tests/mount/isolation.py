"""No way from one mount to what it does not show, on the real binary.

A mount shows one bucket (or a directory of one) to users of this machine. Here `lair` belongs to the attacker, who has
an S3 key and a user of the machine; `vault` is somebody else's bucket, mounted beside it. Each attack tries to read or
change the vault, the data directory or the machine from the lair. Usage: unshare --mount --propagation private
python3 tests/mount/isolation.py. Needs root and /dev/fuse; MARGAY_BIN names the program.
"""

import ctypes
import datetime
import errno
import hashlib
import hmac
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from ports import free_port  # noqa: E402

MARGAY = os.environ["MARGAY_BIN"]
NOBODY = pwd.getpwnam("nobody")
GOLD = b"gold of the vault"
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_EMPTY_PATH, RENAME_EXCHANGE = -100, 0x1000, 2
HANDLE_BYTES_MAX = 128
# File handles of FUSE: the number of the node in two halves, then its generation.
FUSE_HANDLE = struct.Struct("=IiIII")
FUSE_HANDLE_KIND = 0x81

done = []


def fail(text):
    sys.exit(f"FAILED: isolation: {text}")


def check(what, holds):
    if not holds:
        fail(what)
    done.append(what)


def refused(what, numbers, call, *arguments):
    """The call fails with one of these error numbers."""
    try:
        call(*arguments)
    except OSError as error:
        check(f"{what}: {errno.errorcode.get(error.errno)}", error.errno in numbers)
        return
    fail(f"{what}: not refused")


def as_nobody(what, attack):
    """Runs the attack as another user of this machine, without any capability; it fails the test by an exception."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            attack()
            os._exit(0)
        except BaseException as error:
            print(f"{what}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        fail(what)
    done.append(what)


def denied(call, *arguments, numbers=(errno.EACCES, errno.EPERM)):
    try:
        call(*arguments)
    except OSError as error:
        if error.errno in numbers:
            return
        raise
    raise AssertionError(f"{call.__name__}{arguments} was not denied")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


class World:
    def __init__(self, folder):
        self.folder = folder
        self.data = self.at("data")
        self.log = open(self.at("log"), "w")
        os.chmod(folder, 0o755)
        # As an administrator may have made it; what the server puts into it is private all the same.
        os.mkdir(self.data, 0o755)
        self.port = free_port()
        self.server = subprocess.Popen(
            [MARGAY, "serve", "--data", self.data, "--address", f"127.0.0.1:{self.port}", "--admin-address", "off"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=self.environment(ROOT))
        for _ in range(2400):
            if self.margay("status").returncode == 0:
                return
            time.sleep(0.05)
        fail("no server")

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def environment(self, keys):
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MARGAY_", "AWS_"))}
        return plain | {"MARGAY_ACCESS_KEY": keys[0], "MARGAY_SECRET_KEY": keys[1]}

    def margay(self, *arguments, **more):
        return subprocess.run([MARGAY, *arguments, "--data", self.data], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=self.environment(ROOT), **more)

    def ask(self, *arguments):
        output = self.margay(*arguments)
        if output.returncode:
            fail(f"margay {' '.join(arguments)}: {output.stderr}")
        return output.stdout

    def mount(self, what, name, *options):
        self.ask("mount", what, self.at(name), "--create", *options)
        return self.at(name)

    def unmount(self, name):
        self.ask("unmount", self.at(name))

    def request(self, method, path, keys, body=b"", headers=()):
        """An S3 request, signed with Version 4 by `keys`; its status and body."""
        host = f"127.0.0.1:{self.port}"
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path, _, query = path.partition("?")
        digest = hashlib.sha256(body).hexdigest()
        signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now} | dict(headers)
        names = sorted(signed)
        query = "&".join(sorted(part if "=" in part else part + "=" for part in query.split("&") if part))
        lines = [method, path, query, *(f"{name}:{signed[name]}" for name in names), "", ";".join(names), digest]
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()])
        key = b"AWS4" + keys[1].encode()
        for part in (*scope.split("/"), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signed["authorization"] = (f"AWS4-HMAC-SHA256 Credential={keys[0]}/{scope}, "
                                   f"SignedHeaders={';'.join(names)}, Signature={key.hex()}")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.putrequest(method, path + ("?" + query if query else ""), skip_host=True, skip_accept_encoding=True)
        for name, value in {**signed, "content-length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def s3(self, method, path, keys, body=b"", headers=()):
        status, answer = self.request(method, path, keys, body, headers)
        if status >= 300:
            fail(f"{method} {path}: {status} {answer[:300]}")
        return answer

    def end(self):
        if self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            try:
                self.server.wait(30)
            except subprocess.TimeoutExpired:
                self.server.kill()
        self.log.close()


ROOT = ("ISOLATIONROOT", "isolation/secret+isolation/secret")


def keys_of(world, user):
    made = json.loads(world.ask("user", "create", user, "--account", "--json"))
    return made["access_key"], made["secret_key"]


def contents(folder):
    """Every file below it by its path: what is in it."""
    found = {}
    for path, _, names in os.walk(os.fsencode(folder)):
        for name in names:
            found[os.path.join(path, name)] = read(os.path.join(path, name))
    return found


def names_that_climb(world, mallory, lair):
    """Keys that look like ways out are names in the bucket like any other."""
    keys = ["..", ".", "../vault/key", "/vault/key", "a/../../vault/key", "a/./b", "%40%7B..%7D/vault/key",
            "//vault/key", "..%00/key", "%2E%2E/x"]
    for number, key in enumerate(keys):
        world.s3("PUT", f"/lair/{key}", mallory, b"climb %d" % number)
    found = contents(lair)
    mine = {content for content in found.values() if content.startswith(b"climb ")}
    check("every key that looks like a way out is a file in the mount", len(mine) == len(keys))
    check("and none shows the vault", GOLD not in found.values())
    above = os.stat(os.path.join(lair, ".."))
    check("`..` of a mount is the directory that it is mounted in",
          (above.st_dev, above.st_ino) == (os.stat(world.folder).st_dev, os.stat(world.folder).st_ino))
    check("an escaped `..` is a directory of the bucket", read(os.path.join(lair, "@{..}/vault/key")).startswith(b"climb "))
    for path in [b"@{..", b"@{../vault}", b"@{...}", b"@{x2e}@{x2e}", b"@{~0000000000000001}"]:
        refused(f"the escape {path}", (errno.EINVAL, errno.ENOENT), os.stat, os.path.join(os.fsencode(lair), path))
    # As a view of the mount that is there, and as a mount of its own.
    for way in ("view", "mount"):
        for what, there in [("../vault", False), ("..", False), ("/", False), (".", False), ("@{..}/vault", False),
                            ("lair/@{..}/vault", True), ("lair/../vault", True), ("lair/a/../../vault", True), ("lair/", True)]:
            made = world.margay("mount", what, world.at("climbed"))
            check(f"a {way} of {what!r}: there is {'one' if there else 'none'}", (made.returncode == 0) == there)
            if there:
                check(f"a {way} of {what!r} shows the lair", not GOLD in contents(world.at("climbed")).values())
                world.unmount("climbed")
        if way == "view":
            world.unmount("lair")
    world.mount("lair", "lair")


def kinds_through_s3(world, mallory, lair):
    """What S3 stores is a regular file without special rights, whatever its headers claim."""
    for kind in ["symlink", "char", "fifo"]:
        path = f"/lair/claims-{kind}"
        headers = {"x-amz-meta-margay-kind": kind, "x-amz-meta-margay-device": "1:1", "x-amz-meta-mode": "35309",
                   "x-amz-meta-uid": "0"}
        world.request("PUT", path, mallory, os.fsencode(world.at("vault/key")), headers)
        place = world.at("lair", path.rpartition("/")[2])
        if os.path.lexists(place):
            found = os.lstat(place)
            check(f"an object that claims to be a {kind} is a plain file",
                  stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o644)


def links(world, mallory, lair, vault):
    """Symbolic links lead whoever may go there; S3 never follows one, and neither does the server."""
    os.symlink("../vault/key", os.path.join(lair, "to-key"))
    os.symlink(world.at("vault"), os.path.join(lair, "to-vault"))
    os.symlink(world.at("data"), os.path.join(lair, "to-data"))
    check("S3 gives a link's target, not what is there", world.s3("GET", "/lair/to-key", mallory) == b"../vault/key")
    status, _ = world.request("GET", "/lair/to-vault/key", mallory)
    check("S3 finds nothing behind a link", status == 404)
    world.s3("PUT", "/lair/to-vault/key", mallory, b"beside")
    check("S3 writes nothing through a link", read(os.path.join(vault, "key")) == GOLD)
    world.s3("DELETE", "/lair/to-vault/key", mallory)
    check("S3 removes nothing through a link", read(os.path.join(vault, "key")) == GOLD)
    # The administrator is asked for a second view of a directory that is a link by now.
    os.mkdir(os.path.join(lair, "under"))
    for what in ["lair/to-vault", "lair/to-data", "lair/under/../../vault", "lair/to-vault/.."]:
        made = world.margay("mount", what, world.at("view"))
        check(f"a view of {what!r} is refused", made.returncode != 0 and not os.path.ismount(world.at("view")))
    subprocess.run(["mount", "--bind", world.data, os.path.join(lair, "under")], check=True)
    try:
        made = world.margay("mount", "lair/under", world.at("view"))
        check("a view does not show what is mounted inside", made.returncode != 0)
    finally:
        subprocess.run(["umount", os.path.join(lair, "under")], check=True)


def between(world, lair, vault):
    """Names and bytes of two mounts, and of a mount and a view of it, do not mix."""
    os.mkdir(os.path.join(lair, "inner"))
    write(os.path.join(lair, "inner", "file"), b"lair inner")
    view = world.mount("lair/inner", "view", "-o", "ro")
    line = next(line.split() for line in open("/proc/self/mountinfo") if f" {view} " in line)
    check("a read-only view keeps nosuid and nodev", {"ro", "nosuid", "nodev"} <= set(line[5].split(",")))
    refused("writing in a read-only view", [errno.EROFS], write, os.path.join(view, "file"), b"x")
    refused("leaving a view by `..`", [errno.ENOENT], os.stat, os.path.join(view, "..", "inner"))
    pairs = [(os.path.join(lair, "stone"), os.path.join(vault, "stone")),
             (os.path.join(vault, "key"), os.path.join(lair, "key")),
             (os.path.join(lair, "stone"), os.path.join(view, "stone")),
             (os.path.join(view, "file"), os.path.join(lair, "file"))]
    for one, other in pairs:
        numbers = (errno.EXDEV, errno.EROFS)
        refused(f"renaming {one} to {other}", numbers, os.rename, one, other)
        refused(f"linking {one} to {other}", numbers, os.link, one, other)
        refused(f"exchanging {one} with {other}", (*numbers, errno.ENOENT), exchange, one, other)
    with open(os.path.join(vault, "key"), "rb") as gold, open(os.path.join(lair, "taken"), "w+b") as mine:
        try:
            count = os.copy_file_range(gold.fileno(), mine.fileno(), 100)
        except OSError as error:
            check("copying a range between mounts", error.errno == errno.EXDEV)
        else:
            # The kernel may copy by itself: what arrives is what the caller could read anyway.
            check("copying a range between mounts", os.pread(mine.fileno(), 100, 0) == GOLD[:count])
    os.unlink(os.path.join(lair, "taken"))
    # A directory that is moved away under a process stays what it was, and leads nowhere new.
    os.makedirs(os.path.join(lair, "inner", "deep", "er"))
    os.mkdir(os.path.join(lair, "outside"))
    write(os.path.join(lair, "outside", "secret"), b"not in the view")
    inside = os.open(os.path.join(view, "deep"), os.O_PATH | os.O_DIRECTORY)
    os.rename(os.path.join(lair, "inner", "deep"), os.path.join(lair, "outside", "deep"))
    for path in ["../secret", "../../outside/secret", "er/../../secret"]:
        refused(f"{path} from a directory that was moved out of a view", [errno.ENOENT], stat_at, inside, path)
    os.close(inside)
    world.unmount("view")


def stat_at(folder, path):
    os.stat(path, dir_fd=folder)


def exchange(one, other):
    if LIBC.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


def handle_of(path):
    handle = ctypes.create_string_buffer(struct.pack("=Ii", HANDLE_BYTES_MAX, 0) + bytes(HANDLE_BYTES_MAX))
    mount = ctypes.c_int()
    if LIBC.name_to_handle_at(AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    length, = struct.unpack_from("=I", handle.raw)
    return handle.raw[: 8 + length]


def by_handle(mount, handle, flags=os.O_RDONLY):
    """Opens a file of the mount by its handle; root only."""
    folder = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    try:
        file = LIBC.open_by_handle_at(folder, ctypes.create_string_buffer(handle, len(handle)), flags)
        if file < 0:
            raise OSError(ctypes.get_errno(), "open_by_handle_at")
        return file
    finally:
        os.close(folder)


def handles(world, lair, vault):
    """A mount gives no file handles where the kernel lets it refuse them; else one is good for the mount that gave it."""
    try:
        key = handle_of(os.path.join(vault, "key"))
    except OSError as error:
        check("a mount gives no file handles", error.errno == errno.EOPNOTSUPP)
        return
    file = by_handle(vault, key)
    check("a handle opens its file", os.read(file, 100) == GOLD)
    os.close(file)
    refused("a handle of the vault in the lair", [errno.ESTALE], by_handle, lair, key)
    kinds = {handle[:8] for handle in (key, handle_of(vault))}
    opened = 0
    for number in range(2000):
        for header in kinds | {struct.pack("=Ii", 12, FUSE_HANDLE_KIND)}:
            try:
                file = by_handle(lair, header + struct.pack("=III", 0, number, 0))
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.EINVAL, errno.ENXIO, errno.ELOOP, errno.EACCES):
                    raise
                continue
            opened += 1
            if os.fstat(file).st_dev != os.stat(lair).st_dev:
                fail("a forged handle leaves its mount")
            if stat.S_ISREG(os.fstat(file).st_mode) and os.read(file, 100) == GOLD:
                fail("a forged handle opens the vault")
            os.close(file)
    check(f"6000 forged handles in the lair open the lair only ({opened} did)", opened > 0)
    as_nobody("another user opens nothing by a handle", lambda: denied(by_handle, vault, key))
    # After the vault is gone, the lair is mounted in its place: old handles mean nothing there.
    world.unmount("lair")
    world.unmount("vault")
    world.mount("lair", "vault")
    refused("a handle of an earlier mount at this place", [errno.ESTALE], by_handle, vault, key)
    world.unmount("vault")
    world.mount("vault", "vault", "-o", "umask=077")
    world.mount("lair", "lair")


def other_users(world, lair, vault):
    """Another user of this machine has the rights of POSIX and no more; the control socket is closed to him."""
    write(os.path.join(lair, "private"), b"private")
    os.chmod(os.path.join(lair, "private"), 0o600)
    os.setxattr(os.path.join(lair, "private"), "user.note", b"private too")
    os.setxattr(os.path.join(lair, "stone"), "trusted.note", b"for root")

    def in_the_lair():
        private = os.path.join(lair, "private")
        denied(read, private)
        denied(os.getxattr, private, "user.note")
        denied(os.setxattr, private, "user.note", b"x")
        denied(os.chmod, private, 0o777)
        denied(os.chown, private, os.getuid(), -1)
        denied(os.truncate, private, 0)
        denied(os.unlink, private)
        denied(os.rename, private, private + "2")
        denied(os.utime, private, (0, 0))
        denied(os.link, private, os.path.join(lair, "mine"))
        denied(write, os.path.join(lair, "new"), b"")
        denied(os.setxattr, os.path.join(lair, "stone"), "system.posix_acl_access", b"\2\0\0\0")
        denied(os.setxattr, os.path.join(lair, "stone"), "trusted.note", b"x")
        denied(os.getxattr, os.path.join(lair, "stone"), "trusted.note", numbers=[errno.ENODATA])
        assert not any(name.startswith("trusted.") for name in os.listxattr(os.path.join(lair, "stone")))

    def in_the_vault():
        denied(os.listdir, vault)
        denied(read, os.path.join(vault, "key"))
        denied(os.stat, os.path.join(vault, "key"))
        denied(write, os.path.join(vault, "key"), b"lead")

    def in_the_data_directory():
        for path, folders, files in os.walk(world.data):
            for name in folders:
                denied(os.listdir, os.path.join(path, name))
            for name in files:
                place = os.path.join(path, name)
                if not stat.S_ISSOCK(os.lstat(place).st_mode):
                    denied(os.open, place, os.O_RDONLY)
                    denied(os.open, place, os.O_WRONLY)
        denied(write, os.path.join(world.data, "new"), b"")
        with socket.socket(socket.AF_UNIX) as stream:
            denied(stream.connect, os.path.join(world.data, "control"))

    def commands():
        for command in [("mount", "vault", "/tmp/mine"), ("unmount", vault), ("mounts",), ("status",),
                        ("user", "create", "spy"), ("key", "create", "victim"), ("bucket", "list"), ("fsck",)]:
            output = world.margay(*command)
            assert output.returncode, f"{command} by another user: {output.stdout}"
            assert GOLD.decode() not in output.stdout and "secret" not in output.stdout
        for command in ("fusermount3", "umount"):
            if shutil.which(command):
                call = [command, *(["-u"] if command == "fusermount3" else []), vault]
                assert subprocess.run(call, capture_output=True).returncode, f"{command} by another user"
        denied(os.listdir, f"/proc/{world.server.pid}/fd")

    as_nobody("the lair gives another user what its rights say", in_the_lair)
    as_nobody("the vault, mounted with umask=077, gives another user nothing", in_the_vault)
    as_nobody("the data directory gives another user nothing", in_the_data_directory)
    as_nobody("no command of margay works on another user's data", commands)
    check("the vault is still mounted", os.path.ismount(vault))
    world.unmount("vault")
    world.mount("vault", "vault", "-o", "noallow_other")
    as_nobody("with noallow_other not even the mount's root is shown", lambda: denied(os.stat, os.path.join(vault, ".")))
    world.unmount("vault")
    world.mount("vault", "vault", "-o", "umask=077")


def special_rights(world, mallory):
    """Who may write an object must not get the rights of a program that was there before."""
    lair = world.mount("lair", "lair", "-o", "suid")
    capability = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)

    def program(name):
        path = os.path.join(lair, name)
        write(path, b"#!/bin/true\n")
        os.setxattr(path, "security.capability", capability)
        os.chmod(path, 0o6777)
        return path

    def plain(what, path):
        check(f"{what} takes the set-id bits away", stat.S_IMODE(os.stat(path).st_mode) & 0o6000 == 0)
        check(f"{what} takes the capabilities away", "security.capability" not in os.listxattr(path))

    path = program("put")
    world.s3("PUT", "/lair/put", mallory, b"#!/bin/sh\n")
    plain("a PUT", path)
    path = program("append")
    world.s3("PUT", "/lair/append", mallory, b"id\n", {"x-amz-write-offset-bytes": "12"})
    plain("an append", path)
    path = program("copy")
    world.s3("PUT", "/lair/copy", mallory, headers={"x-amz-copy-source": "/lair/stone"})
    plain("a copy", path)
    path = program("write")
    as_nobody("another user writes to a program", lambda: write_at(path, os.O_WRONLY))
    plain("a write by another user", path)
    path = program("empty")
    as_nobody("another user empties a program", lambda: write_at(path, os.O_WRONLY | os.O_TRUNC))
    plain("emptying by another user", path)
    path = program("truncate")
    as_nobody("another user cuts a program", lambda: os.truncate(path, 3))
    plain("cutting by another user", path)
    world.unmount("lair")
    world.mount("lair", "lair")


def write_at(path, flags):
    file = os.open(path, flags)
    os.write(file, b"#!/bin/sh")
    os.close(file)


def attack(world):
    victim, mallory = keys_of(world, "victim"), keys_of(world, "mallory")
    world.s3("PUT", "/vault", victim)
    world.s3("PUT", "/lair", mallory)
    world.s3("PUT", "/vault/key", victim, GOLD)
    world.s3("PUT", "/lair/stone", mallory, b"lair stone")
    status, _ = world.request("GET", "/vault/key", mallory)
    check("the attacker's key does not open the vault", status == 403)
    vault, lair = world.mount("vault", "vault", "-o", "umask=077"), world.mount("lair", "lair")
    # Whoever may write to the lair's mount is a user like any other there.
    names_that_climb(world, mallory, lair)
    world.s3("DELETE", "/lair/.", mallory)
    kinds_through_s3(world, mallory, lair)
    links(world, mallory, lair, vault)
    between(world, lair, vault)
    handles(world, lair, vault)
    other_users(world, lair, vault)
    world.unmount("lair")
    special_rights(world, mallory)
    check("the vault is as it was", contents(vault) == {os.fsencode(os.path.join(vault, "key")): GOLD})
    world.unmount("lair")
    world.unmount("vault")


def main():
    folder = tempfile.mkdtemp(prefix="margay-isolation.")
    world = World(folder)
    try:
        attack(world)
    finally:
        world.end()
        for name in ("view", "climbed", "lair", "vault"):
            while os.path.ismount(world.at(name)):
                subprocess.run(["umount", "-l", world.at(name)], check=True)
        shutil.rmtree(folder)
    print(f"evidence: isolation of mounts: {len(done)} checks, no way from one to another or to the data directory")


if __name__ == "__main__":
    main()
