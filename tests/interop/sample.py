"""A tree with what a file system can hold, written to a directory and looked for in another one.

Each property of each file is one thing that is right or not: `there`, `kind`, `content`, `target`, `device`, `mode`, `owner`, `time`
(whole seconds), `nanoseconds`, `xattr`.
"""

import dataclasses
import errno
import hashlib
import os
import socket
import stat

MIB = 1 << 20
KINDS = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "link": stat.S_IFLNK, "pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK, "character": stat.S_IFCHR, "block": stat.S_IFBLK}
ODD_NAMES = (
    "with space", "two  spaces ", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé", "日本語", "amp&and=equals", "semi;colon,comma", "hash#tag", "question?mark=1",
    "quote'single", 'quote"double', "back\\slash", "paren(1)[2]{3}", "at@colon:tilde~bang!", "star*dollar$", "-dash", ".hidden", "less<more>", "n" * 255,
)  # fmt: skip
TIME = 1_500_000_000_000_000_000


@dataclasses.dataclass
class Item:
    path: str
    kind: str = "file"
    mode: int = 0o644
    owner: tuple = (0, 0)
    # Nanoseconds since 1970.
    time: int = TIME
    # Of a file its content, of a link its target.
    body: bytes = b""
    device: int = 0
    xattrs: dict = dataclasses.field(default_factory=dict)


def directory(path, mode=0o755, **more):
    return Item(path, "directory", mode, **more)


def content(path, size):
    block = hashlib.sha256(path.encode()).digest() * 32
    return (block * (size // len(block) + 1))[:size]


def items():
    """Directories before what is in them."""
    file = lambda path, size=20, **more: Item(path, body=content(path, size), **more)
    found = [
        file("plain"), file("empty", 0), file("one", 1), file("program", mode=0o755), file("secret", mode=0o600, owner=(1234, 5678)), file("none", mode=0o000),
        file("set-id", mode=0o6755), file("group", mode=0o664, owner=(0, 100)), file("precise", time=TIME + 123_456_789), file("third", time=TIME + 300_000_000),
        file("last-century", time=915_148_800 * 10**9), file("next-century", time=4_102_444_800 * 10**9), file("before-1970", time=-86_400 * 10**9),
        file("large", 17 * MIB + 12345, mode=0o640, time=TIME + 5), file("parts", 41 * MIB + 1),
        file("described", xattrs={"user.colour": b"red", "user.two": b"1 2"}), file("binary", xattrs={"user.bytes": bytes(range(40))}),
        file("percent", xattrs={"user.rate": b"100%"}), file("umlaut", xattrs={"user.title": "ü".encode()}),
        directory("directory"), file("directory/inside"), directory("directory/private", 0o700, owner=(1234, 5678)), file("directory/private/deep", mode=0o600, owner=(1234, 5678)),
        directory("nothing", 0o750), directory("sticky", 0o1777), directory("sticky/nothing", time=TIME + 7, xattrs={"user.colour": b"blue"}),
        directory("beside"), file("beside-dash"), file("beside.dot"), file("beside/inside"), directory("dated", time=TIME + 987_654_321),
        Item("link", "link", 0o777, body=b"plain"), Item("link-down", "link", 0o777, body=b"directory/private/deep", owner=(1234, 5678)),
        Item("link-up", "link", 0o777, body=b"../../nowhere at all"), Item("link-odd", "link", 0o777, body="über/100%, a=b".encode()), Item("link-long", "link", 0o777, body=b"d/" * 200 + b"end"),
        Item("pipe", "pipe", 0o600), Item("socket", "socket", 0o755), Item("character", "character", 0o666, device=os.makedev(1, 3)), Item("block", "block", 0o660, (0, 6), device=os.makedev(7, 200)),
        directory("odd"),
    ]  # fmt: skip
    for name in ODD_NAMES:
        found.append(file(f"odd/{name}"))
    return [*found, directory("odd/with space in it"), file("odd/with space in it/per%cent")]


def make(path, item):
    if item.kind == "directory":
        os.mkdir(path)
    elif item.kind == "link":
        os.symlink(item.body, path)
    elif item.kind == "file":
        with open(path, "xb") as file:
            file.write(item.body)
            file.flush()
            os.fsync(file.fileno())
    elif item.kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            # A path of a socket has 107 bytes.
            here = os.getcwd()
            os.chdir(os.path.dirname(path))
            try:
                bound.bind(os.path.basename(path))
            finally:
                os.chdir(here)
    else:
        os.mknod(path, KINDS[item.kind] | item.mode, item.device)


def write(root, wanted):
    """What was refused: PROPERTY PATH leads to the error."""
    refused = {}

    def attempt(name, item, call):
        try:
            call()
        except OSError as error:
            refused[f"{name} {item.path}"] = errno.errorcode.get(error.errno, str(error))

    path = lambda item: os.path.join(root, item.path)
    for item in wanted:
        attempt("there", item, lambda: make(path(item), item))
    # A directory's time is set when nothing comes into it any more.
    for item in reversed([item for item in wanted if f"there {item.path}" not in refused]):
        if item.kind != "link":
            for name, value in item.xattrs.items():
                attempt("xattr", item, lambda: os.setxattr(path(item), name, value))
        attempt("owner", item, lambda: os.chown(path(item), *item.owner, follow_symlinks=False))
        if item.kind != "link":
            attempt("mode", item, lambda: os.chmod(path(item), item.mode))
        attempt("time", item, lambda: os.utime(path(item), ns=(item.time, item.time), follow_symlinks=False))
    return refused


def same(found, expected):
    return None if found == expected else f"{found!r}, not {expected!r}"[:160]


def content_of(path, item):
    with open(path, "rb") as file:
        body = file.read()
    return None if body == item.body else f"{len(body)} bytes, other than the {len(item.body)}"


def xattrs_of(path, item):
    found = {name: os.getxattr(path, name) for name in os.listxattr(path) if name in item.xattrs}
    return same(found, item.xattrs)


def attempt(check):
    try:
        return check()
    except OSError as error:
        return errno.errorcode[error.errno]


def look(root, item):
    """Yields (PROPERTY, None or what is wrong) of one file."""
    path = os.path.join(root, item.path)
    try:
        found = os.lstat(path)
    except OSError as error:
        yield "there", errno.errorcode[error.errno]
        return
    yield "there", None
    kind = next((name for name, bits in KINDS.items() if bits == stat.S_IFMT(found.st_mode)), "?")
    yield "kind", same(kind, item.kind)
    if item.kind == "file":
        yield "content", attempt(lambda: content_of(path, item))
    if item.kind == "link":
        yield "target", attempt(lambda: same(os.readlink(os.fsencode(path)), item.body))
    if item.xattrs:
        yield "xattr", attempt(lambda: xattrs_of(path, item))
    if item.device:
        yield "device", same(found.st_rdev, item.device)
    if item.kind != "link":
        yield "mode", same(oct(stat.S_IMODE(found.st_mode)), oct(item.mode))
    yield "owner", same((found.st_uid, found.st_gid), item.owner)
    yield "time", same(found.st_mtime_ns // 10**9, item.time // 10**9)
    if item.time % 10**9:
        yield "nanoseconds", same(found.st_mtime_ns % 10**9, item.time % 10**9)
