"""Many names through a mount, beside the empty file system that shows what the kernel and the session cost.

python3 tests/goals/names.py [FILES] [ROUNDS]

Goals: making FILES (1 million) empty files in one directory is a straight line (its last tenth at most 1.3 times its second)
at 40 % of the empty file system's rate at least; `find` over them within 512 MiB; `ls -l` of 10,000 cold at most 1.3 times
the empty file system's; `find -printf %s` of them under 60 ms; `ls -l` of 1000 in a bucket of FILES as in an empty one (1.2);
16 clients of a mount with `sync` together at least 5 times one. Cold: the kernel has forgotten all names and attributes.
Needs root, /dev/fuse and the example `empty` (cargo build --release -p margay-fuse --example empty), which
MARGAY_EMPTY may name.
"""

import contextlib
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time

from server import BINARY, finish, goal, median, serving

FILES = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
EMPTY = os.environ.get("MARGAY_EMPTY") or str(pathlib.Path(BINARY).parent / "examples" / "empty")
SYNC_SECONDS = 3


def make(folder, count):
    """Makes empty files; gives the seconds of each tenth."""
    os.makedirs(folder)
    tenths = []
    for tenth in range(10):
        began = time.monotonic()
        for number in range(count * tenth // 10, count * (tenth + 1) // 10):
            os.close(os.open(f"{folder}/file-{number:08}", os.O_CREAT | os.O_WRONLY))
        tenths.append(time.monotonic() - began)
    return tenths


def cold():
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")


def timed(*command):
    """Milliseconds."""
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return 1000 * (time.monotonic() - began)


def rounds(forget, *command):
    times = []
    for _ in range(ROUNDS):
        if forget:
            cold()
        times.append(timed(*command))
    return median(times)


def shown(name, places, small):
    """`ls -l` cold and `find`, of 10,000 files on both file systems."""
    found = {where: rounds(True, "ls", "-l", f"{place}/{small}") for where, place in places.items()}
    share = found["mount"] / found["empty"]
    goal(f"ls -l of {name} cold: {found['mount']:.0f} ms, {share:.2f} of the empty one's (goal 1.3)", share <= 1.3)
    find = ["find", f"{places['mount']}/{small}", "-type", "f", "-printf", "%s"]
    cold_time, warm_time = rounds(True, *find), rounds(False, *find)
    goal(f"find -printf %s of {name}: {warm_time:.0f} ms, cold {cold_time:.0f} (goal 60)", warm_time <= 60)


def create_durably(folder, until, made):
    os.makedirs(folder)
    count = 0
    while time.monotonic() < until:
        os.close(os.open(f"{folder}/{count:08}", os.O_CREAT | os.O_WRONLY))
        count += 1
    made.put(count)


def rate_of(folder, clients):
    """Files per second that so many processes make."""
    made, until = multiprocessing.Queue(), time.monotonic() + SYNC_SECONDS
    workers = [
        multiprocessing.Process(target=create_durably, args=(f"{folder}/{clients}-{number}", until, made))
        for number in range(clients)
    ]
    for worker in workers:
        worker.start()
    return sum(made.get() for _ in workers) / SYNC_SECONDS


def synced(place):
    one, many = (median([rate_of(f"{place}/{turn}", clients) for turn in range(3)]) for clients in (1, 16))
    goal(f"sync: {one:.0f}/s by one client, {many:.0f}/s by 16, {many / one:.1f} times (goal 5)", many >= 5 * one)


@contextlib.contextmanager
def mounted(server, bucket, place, *options):
    os.mkdir(place)
    if server.command("mount", bucket, place, "--create", "--data", server.data, *options).wait():
        raise SystemExit(f"cannot mount {bucket}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@contextlib.contextmanager
def empty(place):
    os.mkdir(place)
    process = subprocess.Popen([EMPTY, place])
    try:
        while not os.path.ismount(place):
            if process.poll() is not None:
                raise SystemExit("the empty file system does not start")
            time.sleep(0.05)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        process.wait()


def main():
    with serving() as server, contextlib.ExitStack() as stack:
        above = os.path.dirname(server.data)
        places = {"empty": stack.enter_context(empty(f"{above}/empty"))}
        places["mount"] = stack.enter_context(mounted(server, "names", f"{above}/mount"))
        for place in places.values():
            make(f"{place}/thousand", 1000)
            make(f"{place}/small", 10_000)
        shown("10,000", places, "small")
        thousand = ["ls", "-l", f"{places['mount']}/thousand"]
        alone = rounds(True, *thousand)
        tenths = {where: make(f"{place}/many", FILES) for where, place in places.items()}
        for where, times in tenths.items():
            print(f"{where}: seconds of each tenth of {FILES} files {[round(seconds, 2) for seconds in times]}")
        bend = tenths["mount"][9] / tenths["mount"][1]
        goal(f"{FILES} files: the last tenth takes {bend:.2f} times the second (goal 1.3)", bend <= 1.3)
        share = 100 * sum(tenths["empty"]) / sum(tenths["mount"])
        rate = FILES / sum(tenths["mount"])
        goal(f"{FILES} files: {rate:.0f}/s, {share:.0f} % of the empty one's (goal 40)", share >= 40)
        beside = rounds(True, *thousand)
        ratio = beside / alone
        goal(f"ls -l of 1000: {alone:.1f} ms, beside {FILES} {beside:.1f} ms, {ratio:.2f} times (goal 1.2)", ratio <= 1.2)
        took = timed("find", f"{places['mount']}/many", "-name", "nothing")
        peak = server.memory()[1]
        goal(f"find over {FILES}: {took / 1000:.1f} s, at most {peak:.0f} MiB so far (goal 512)", peak <= 512)
        synced(stack.enter_context(mounted(server, "synced", f"{above}/sync", "-o", "sync")))
    finish()


main()
