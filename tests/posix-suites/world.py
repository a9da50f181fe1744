"""Where a worker's cases run: name spaces of its own, in which the machine's users, helpers of mount(8) and /tmp are covered by its own.

/mnt/suite is the checkout, /mnt/work what is kept, /mnt/test and /mnt/scratch are mount points, /mnt/margay is the program and
/mnt/disk an ext4 of its own, with the data directory or the cases themselves. What is mounted here is seen by nobody else and goes
with the name space.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import beside

ROOT = pathlib.Path("/mnt")
# Users that xfstests wants.
USERS = ("fsgqa", "fsgqa2", "123456-fsgqa")
# What the cases may fill.
DISK_BYTES = 12 << 30
# mount(8) tells its helpers neither `suid` nor `dev`, and takes a source as /proc/mounts shows it.
HELPER = """#!/bin/sh
source=${1#margay:} place=$2
shift 2
case $* in *nosuid*) set -- "$@" -o dev ;; *nodev*) set -- "$@" -o suid ;; *) set -- "$@" -o suid,dev ;; esac
exec /sbin/mount.margay "$source" "$place" "$@" -o data=/mnt/disk/data,allow_other,create
"""


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL)


def furnish(checkout, binary, work):
    """Covers what the cases change; `work` stays on the disk."""
    world = work / "world"
    world.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "margay-suites", world)
    for name in ("suite", "work", "test", "scratch", "disk", "over"):
        (world / name).mkdir()
    (work / "tmp").mkdir(exist_ok=True)
    (work / "tmp").chmod(0o1777)
    run("mount", "--bind", checkout, world / "suite")
    run("mount", "--bind", work, world / "work")
    (world / "margay").touch()
    run("mount", "--bind", binary, world / "margay")
    run("mount", "--move", world, ROOT)
    image = ROOT / "work/disk.img"
    if not image.exists():
        with open(image, "wb") as file:
            file.truncate(DISK_BYTES)
        run("mkfs.ext4", "-q", image)
    run("mount", "-o", "loop,discard", image, ROOT / "disk")
    for place in (pathlib.Path("/sbin").resolve(), pathlib.Path("/etc")):
        upper, below = ROOT / "over" / place.name, ROOT / "over" / f"{place.name}-work"
        upper.mkdir()
        below.mkdir()
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={below}", place)
    run("mount", "--bind", ROOT / "work/tmp", "/tmp")
    # A case takes processors away from the whole machine.
    processors = "/sys/devices/system/cpu"
    run("mount", "--bind", processors, processors)
    run("mount", "-o", "remount,bind,ro", processors)
    helper = pathlib.Path("/sbin/mount.fuse.margay")
    helper.write_text(HELPER)
    helper.chmod(0o755)
    os.symlink(ROOT / "margay", "/sbin/mount.margay")
    for number, user in enumerate(USERS, 61001):
        for file, line in (("passwd", f"{user}:x:{number}:{number}::/tmp:/bin/bash"), ("group", f"{user}:x:{number}:"), ("shadow", f"{user}:!:19000::::::")):
            path = pathlib.Path("/etc") / file
            text = path.read_text()
            if not re.search(rf"^{user}:", text, re.M):
                path.write_text(f"{text.rstrip()}\n{line}\n")


# With POSIX_SUITES_RECLAIM: what waits an hour or a day comes within seconds, and files and tables are small.
SOON = ["limits.quarantine_time=1", "limits.check_interval=1", "limits.log_bytes_max=8MiB", "limits.pack_bytes_max=1MiB", "limits.raw_bytes_min=1MiB",
        "limits.overlay_bytes_max=4MiB", "limits.known_files_max=16"]


KEYS = ("POSIXSUITESPOSIXSUIT", "posix-suites-secret-posix-suites")


class Program:
    """A process of the program that lives as long as the cases."""

    def __init__(self, name):
        self.name, self.process, self.log = name, None, ROOT / f"work/{name}.log"

    def spawn(self, command, variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MARGAY_")} | variables
        command = [str(word) for word in command]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def wait_until(self, ready):
        for _ in range(1200):
            if ready():
                return
            if not self.alive():
                break
            time.sleep(0.1)
        raise SystemExit(f"the {self.name} did not start: {tail(self.log)}")

    def alive(self):
        try:
            return os.waitpid(self.process.pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:
            return False

    def kill(self):
        """Ends it whatever it does, and with it every process that waits for its mounts."""
        self.process.kill()
        for device in fuse_devices():
            abort = pathlib.Path(f"/sys/fs/fuse/connections/{device}/abort")
            if abort.exists():
                abort.write_text("1")
        for _ in range(300):
            if not self.alive():
                break
            time.sleep(0.1)


class Server(Program):
    """The program, serving /mnt/disk/data."""

    def __init__(self, port):
        super().__init__("server")
        self.port = port
        # What the orders beside the cases found.
        self.wrong, self.ends = None, threading.Event()
        self.settings = SOON if os.environ.get("POSIX_SUITES_RECLAIM") else []
        if self.settings:
            threading.Thread(target=self.give_orders, daemon=True).start()

    def give_orders(self):
        try:
            beside.orders(ROOT / "disk/data", self.ends.is_set)
        except beside.Wrong as wrong:
            self.wrong = str(wrong)

    def start(self):
        command = [ROOT / "margay", "serve", "--data", ROOT / "disk/data", "--address", f"127.0.0.1:{self.port}", "--admin-address", "off"]
        command += [word for setting in self.settings for word in ("--set", setting)]
        self.spawn(command, {"MARGAY_ACCESS_KEY": KEYS[0], "MARGAY_SECRET_KEY": KEYS[1]})
        status = [ROOT / "margay", "status", "--data", ROOT / "disk/data"]
        self.wait_until(lambda: subprocess.run(status, capture_output=True).returncode == 0)

    def stop(self):
        """True when it ended by itself."""
        self.ends.set()
        self.process.terminate()
        for _ in range(1200):
            if not self.alive():
                return True
            time.sleep(0.1)
        self.kill()
        return False


class FarMount(Program):
    """A mount of the server's bucket `test`, by a process of its own with its cache on the same disk."""

    def __init__(self, port):
        super().__init__("far-mount")
        # A cache belongs to one endpoint.
        self.endpoint, self.cache = f"http://127.0.0.1:{port}", ROOT / f"disk/cache-{port}"

    def start(self):
        keys = {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]}
        # The bucket is there when the server was started again.
        subprocess.run([ROOT / "margay", "client", "--endpoint", self.endpoint, "mb", "s3://test"], env=os.environ | keys, capture_output=True)
        command = [ROOT / "margay", "mount", "s3://test", ROOT / "test", "--foreground", "--cache", self.cache]
        self.spawn([*command, "--endpoint", self.endpoint, "-o", "suid,dev,allow_other"], keys)
        self.wait_until(lambda: any(place == str(ROOT / "test") for place, _, _ in mounts()))

    def stop(self):
        """True when everything was sent."""
        subprocess.run(["umount", ROOT / "test"], check=True)
        try:
            return os.waitpid(self.process.pid, 0)[1] == 0
        except ChildProcessError:
            return False


def tail(path, count=2000):
    return path.read_bytes()[-count:].decode(errors="replace")


def mounts():
    """(MOUNT POINT, MINOR DEVICE NUMBER, KIND) below /mnt/test and /mnt/scratch, the deepest last."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        if words[4].startswith((f"{ROOT}/test", f"{ROOT}/scratch")):
            found.append((words[4].encode().decode("unicode_escape"), words[2].split(":")[1], words[words.index("-") + 1]))
    return found


def fuse_devices():
    return {device for _, device, kind in mounts() if kind.startswith("fuse")}


def own(pid):
    """Whether this is the program itself or something that it started."""
    try:
        return os.readlink(f"/proc/{pid}/exe").startswith(str(ROOT / "margay"))
    except OSError:
        return False


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid() and not own(name)]


def stacks():
    """Where each process that waits without end waits; of a hang this is what one wants to know."""
    told = []
    for pid in os.listdir("/proc"):
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*") if pid.isdigit() else ():
            try:
                state = re.search(r"^State:\s+(\S)", (task / "status").read_text(), re.M)[1]
                if state == "D":
                    told.append(f"{task} {(task / 'comm').read_text().strip()}:\n{(task / 'stack').read_text()}")
            except OSError:
                pass
    return "\n".join(told)


def clear(keep_mount):
    """Ends what a case left behind and takes its mounts away. False when a process does not end."""
    for _ in range(100):
        left = []
        for pid in processes():
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    left.append(pid)
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if not left:
            break
        time.sleep(0.1)
    for place, _, _ in reversed(mounts()):
        if not (keep_mount and place == str(ROOT / "test")):
            subprocess.run(["umount", "-l", place], capture_output=True)
    loops = subprocess.run(["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True).stdout
    for line in loops.splitlines():
        name, _, file = line.strip().partition(" ")
        if file.strip().startswith(f"{ROOT}/") and "work/disk.img" not in file:
            subprocess.run(["losetup", "-d", name], capture_output=True)
    for path in (ROOT / "work/tmp").iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    return not left
