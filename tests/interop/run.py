#!/usr/bin/env python3
"""What a far mount writes, read by other programs, and the other way round: run.py [PROGRAM...]

Programs: s3fs, rclone-copy, rclone-mount, goofys, tigrisfs, aws; all of them unless some are named. s3fs, rclone and aws are found by
PATH; TIGRISFS and GOOFYS name programs that were built elsewhere. One that is missing is skipped, with the reason. A server of
its own is started; MARGAY_BIN names the program (default: target/release/margay). Needs root and /dev/fuse.

Each property of each file of a sample is compared (sample.py). What a program cannot hold by itself is listed beside it, with the
reason (differences.py); any other difference fails the run, and so does a listed one that there is not.
"""

import fnmatch
import os
import pathlib
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

import differences
import programs
import sample

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_port  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ALL = {
    "margay": programs.Margay, "s3fs": programs.S3fs, "rclone-copy": programs.RcloneCopy, "rclone-mount": programs.RcloneMount,
    "goofys": programs.Goofys, "tigrisfs": programs.TigrisFs, "aws": programs.Aws,
}  # fmt: skip


class World:
    """A server and a folder."""

    def __init__(self, binary):
        self.binary, self.folder = binary, tempfile.mkdtemp(prefix="margay-interop.", dir="/var/tmp")
        self.port = free_port()
        self.endpoint, self.keys = f"http://127.0.0.1:{self.port}", ("INTEROPINTEROPINTERO", secrets.token_hex(20))
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MARGAY_", "AWS_"))}
        self.variables = plain | {
            "AWS_ACCESS_KEY_ID": self.keys[0], "AWS_SECRET_ACCESS_KEY": self.keys[1], "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        self.data = pathlib.Path(self.folder, "data")
        command = [binary, "serve", "--data", self.data, "--address", f"127.0.0.1:{self.port}", "--admin-address", "off"]
        keys = {"MARGAY_ACCESS_KEY": self.keys[0], "MARGAY_SECRET_KEY": self.keys[1]}
        with open(pathlib.Path(self.folder, "server.log"), "wb") as log:
            self.server = subprocess.Popen(command, env=plain | keys, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        status = [binary, "status", "--data", self.data]
        for _ in range(600):
            if subprocess.run(status, capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        raise SystemExit("the server did not start")

    def make_bucket(self, name):
        command = [self.binary, "client", "--endpoint", self.endpoint, "mb", f"s3://{name}"]
        subprocess.run(command, env=self.variables, check=True, capture_output=True)

    def end(self):
        self.server.terminate()
        self.server.wait(60)
        if os.environ.get("INTEROP_KEEP"):
            print(f"kept {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


class Table:
    """What was right, what is known not to be, and what is neither."""

    def __init__(self):
        self.rows, self.wrong, self.cannot = [], 0, []

    def compare(self, title, root, wanted, known, refused=None):
        right, total, missing = 0, 0, {}
        used = set()
        for item in wanted:
            for name, wrong in sample.look(root, item):
                total += 1
                if wrong is None:
                    right += 1
                    continue
                what = f"{name} {item.path}"
                pattern = next((one for one in known if fnmatch.fnmatchcase(what, one)), None)
                if pattern is None:
                    self.wrong += 1
                    why = f" ({refused[what]} when it was set)" if refused and what in refused else ""
                    print(f"{title}: {what}: {wrong}{why}")
                    continue
                used.add(pattern)
                missing[pattern] = missing.get(pattern, 0) + 1
        for pattern in (one for one in known.keys() - used if not known[one].startswith("sometimes: ")):
            self.wrong += 1
            print(f"{title}: no difference any more, remove it from the list: {pattern}")
        self.rows.append((title, right, total, sum(missing.values())))
        reasons = {}
        for pattern, count in sorted(missing.items()):
            reasons.setdefault(known[pattern], []).append(f"{pattern} ({count})" if "*" in pattern else pattern)
        self.cannot += [f"{title}: {why}: {', '.join(patterns)}" for why, patterns in reasons.items()]

    def show(self):
        print()
        print("\n".join([*self.cannot, ""]))
        for title, right, total, known in self.rows:
            unlisted = total - right - known
            print(f"evidence: {title}: {right} of {total} properties, {known} known not to be" + (f", {unlisted} DIFFER" if unlisted else ""))


def run(name, world, table, wanted):
    program = ALL[name](world)
    why = program.missing()
    if why:
        print(f"skipped: {name}, because {why}")
        return
    if name != "aws":
        with program.reads("from-margay") as root:
            table.compare(f"{name} reads", root, wanted, differences.READS.get(name, {}))
    if name == "margay":
        return
    world.make_bucket(f"from-{name}")
    with program.writes(f"from-{name}") as root:
        refused = sample.write(root, wanted)
    with programs.Margay(world).reads(f"from-{name}") as root:
        table.compare(f"{name} writes", root, wanted, differences.WRITES.get(name, {}), refused)


def main(names):
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")
    binary = pathlib.Path(os.environ.get("MARGAY_BIN") or pathlib.Path(target) / "release/margay").resolve()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        print("skipped: other programs' objects, because this machine has no /dev/fuse or this is not root")
        return 0
    os.umask(0)
    world, table, wanted = World(binary), Table(), sample.items()
    try:
        world.make_bucket("from-margay")
        with programs.Margay(world).writes("from-margay") as root:
            refused = sample.write(root, wanted)
            table.wrong += len(refused)
            for what, why in refused.items():
                print(f"margay refuses {what}: {why}")
        for name in dict.fromkeys(["margay", *names]):
            try:
                run(name, world, table, wanted)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                table.wrong += 1
                print(f"{name}: {error}")
    finally:
        world.end()
    table.show()
    return 1 if table.wrong else 0


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - ALL.keys()
    if unknown:
        sys.exit(f"unknown: {' '.join(sorted(unknown))}\n{__doc__}")
    sys.exit(main(sys.argv[1:] or list(ALL)))
