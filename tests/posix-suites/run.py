#!/usr/bin/env python3
"""Other people's POSIX suites on a mount: run.py xfstests|ltp|pjdfstest|pjdfstest-far [CASE...]

A checkout, built where it lies, is named by XFSTESTS, LTP or PJDFSTEST; nothing of it is kept here, and the commit that each list of
failures is for stands in suites.py. MARGAY_BIN names the program (default: target/release/margay). Needs root, /dev/fuse and unshare.

XFSTESTS_GROUP=auto   another group of xfstests' generic tests than quick
POSIX_SUITES_KEEP=DIR keeps results and logs there, and goes on where a run of the same program stopped: what passed or cannot be run
                      is not run again
POSIX_SUITES_WORKERS  servers side by side, each in name spaces of its own (default 1)
POSIX_SUITES_LIMIT    seconds that one case may take (default 600)
POSIX_SUITES_RECLAIM=1 reclaim, checkpoints, checks and the asking back of files at their most aggressive beside every case

A case that fails and is not in the list fails the run, and so does one in the list that passes. With cases as arguments only these
run, and only they are compared.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import compare
import results
import suites

HERE = pathlib.Path(__file__).resolve().parent


def program():
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")
    return pathlib.Path(os.environ.get("MARGAY_BIN") or pathlib.Path(target) / "release/margay").resolve()


def missing(suite):
    """Why the suite cannot run here, or nothing."""
    if not os.environ.get(suite.variable):
        return f"{suite.variable} names no checkout of {suite.origin}"
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return "this machine has no /dev/fuse or this is not root"
    return None


def run_workers(suite, keep, binary, place, todo, build):
    """All cases of `todo` at this place (`margay` or `ext4`)."""
    queue = keep / f"queue-{place}"
    queue.write_text("".join(f"{case}\n" for case in reversed(todo)))
    count = min(int(os.environ.get("POSIX_SUITES_WORKERS", "1")), len(todo))
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    workers = []
    for number in range(count):
        command = [*spaces, sys.executable, "-B", str(HERE / "worker.py"), suite.name, place, str(keep), str(binary), str(number)]
        workers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=os.environ | {"POSIX_SUITES_BUILD": build}))
    try:
        return all([worker.wait() == 0 for worker in workers])
    finally:
        for worker in workers:
            worker.kill()


def main(name, *wanted):
    # So that the workers end with it, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    suite = suites.SUITES[name]
    why = missing(suite)
    if why:
        print(f"skipped: {name}, because {why}")
        return 0
    checkout = pathlib.Path(os.environ[suite.variable]).resolve()
    os.environ[suite.variable] = str(checkout)
    binary = program()
    if not os.access(binary, os.X_OK):
        print(f"there is no {binary}; build it, or set MARGAY_BIN")
        return 1
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    if commit != suite.commit:
        print(f"the checkout is at {commit or 'an unknown commit'}, the list of failures is for {suite.commit}")
    cases = suite.cases(checkout)
    unknown = set(wanted) - set(cases)
    if unknown:
        print(f"{name} has no case {' '.join(sorted(unknown))}")
        return 1
    kept = os.environ.get("POSIX_SUITES_KEEP")
    keep = pathlib.Path(kept or tempfile.mkdtemp(prefix="margay-posix-suites.", dir="/var/tmp")).resolve() / name
    keep.mkdir(parents=True, exist_ok=True)
    alone = open(keep / "lock", "w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"another run uses {keep}")
        return 1
    whole = True
    try:
        for place in suite.places:
            # What ext4 does, no build of this program changes.
            build = hashlib.sha256(binary.read_bytes()).hexdigest()[:16] if place == "margay" else os.uname().release
            record = results.Results(keep / f"{place}.tsv", f"{build} {commit[:12]}")
            todo = [case for case in (wanted or cases) if wanted or not record.settled(case)]
            if todo:
                whole &= run_workers(suite, keep, binary, place, todo, record.build)
        ran = {place: results.Results(keep / f"{place}.tsv", None).latest() for place in suite.places}
        known = compare.read_known(HERE / f"{name}-known-failures.txt")
        known = {case: why for case, why in known.items() if case not in getattr(suite, "left_out", ())}
        compared = compare.compare(name, ran, known, wanted or cases, not wanted)
        if not whole:
            print(f"{name}: a worker did not end as it should")
        return 0 if compared and whole else 1
    finally:
        if not kept:
            shutil.rmtree(keep.parent, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in suites.SUITES:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
