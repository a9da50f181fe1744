"""Churn with readers that know every byte, on a real mount of a real server that gives space back meanwhile.

Processes of their own directories write in place, append, truncate, punch, copy ranges, rename, link, unlink and hold what
is unlinked; with S3 they also put, copy, complete uploads and delete the same files. Each change is synced and then
remembered; files are compared whole through both doors all the time, at the end, and after a restart. Then fsck.

    churn.py --seconds 60                              automatic reclaim, S3 writers on the same files
    churn.py --seconds 60 --compact --no-s3            `margay compact` in a loop, the mount alone
    churn.py --seconds 60 --versions
    churn.py --seconds 60 --issue                      only the program that lost files before reclaim knew all owners
    churn.py --seconds 60 --full                       on a small disk that somebody fills again and again
    churn.py --kills 150                               kill -9 of servers that live 8 s and longer
    churn.py --results FILE --seconds 1200 --slice 300 goes on where the file says that it stopped

A line of the results counts when mode and program are the same. Needs root and /dev/fuse; MARGAY_BIN names the program.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import churn_full
import churn_worker
from churn_worker import S3, Worker, Wrong
from ports import free_port

# Small, so that segments end, logs are folded and reclaim moves and removes something within seconds.
SMALL = ["limits.log_bytes_max=8MiB", "limits.pack_bytes_max=1MiB", "limits.raw_bytes_min=1MiB", "limits.cache_bytes=4MiB"]
# What waits for an hour or a day; a program that has no such setting is started without it.
SOON = ["limits.quarantine_time=1", "limits.check_interval=1", "lifecycle.day_seconds=1"]
# What a server counts and what must stay nothing.
NEVER = ("check_findings", "quarantine_disputed_total", "reclaim_damaged_runs_total", "reclaim_failed_total")
LIFE_SECONDS = (8, 12)
PORT_TRIES = 3
START_SECONDS = 120
# A run of this many seconds must have moved and removed something.
PROOF_SECONDS = 10
# Of each pause the longest.
PAUSE_SECONDS = 0.3


class IssueWorker(Worker):
    """Files of 300,000 bytes, bytes in the middle of others, each synced; more are made and removed. Nothing else."""

    def put_named(self, name):
        data = self.random.randbytes(300_000)
        file = os.open(self.at(name), os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(file, data)
        os.fsync(file)
        os.close(file)
        self.new(name, data)

    def step(self):
        k = self.done["round"] = self.done.get("round", 0) + 1
        for name in (f"k{k}", "x", "y"):
            self.put_named(name)
        keep = sorted((name for name in self.names if name[0] == "k"), key=lambda name: int(name[1:]))
        for name in self.random.sample(keep, min(6, len(keep))):
            before, at = self.bytes_of(name), self.random.randrange(300_000)
            self.change(name, lambda file: os.pwrite(file, b"!", at), before[:at] + b"!" + before[at + 1:])
        for name in ["x", "y"] + keep[:1] * (len(keep) > 40):
            os.unlink(self.at(name))
            self.drop(name)
        self.look(self.some())


class Server:
    def __init__(self, args, folder):
        self.args, self.folder, self.process = args, folder, None
        self.disk = churn_full.Disk(folder, random.Random(args.seed)) if args.full else None
        self.data, self.mount = (self.disk.at if self.disk else folder) / "data", folder / "mount"
        self.mount.mkdir(exist_ok=True)
        self.totals, self.last = {}, {}

    def start(self):
        for _ in range(PORT_TRIES):
            if self.start_once():
                return
        raise Wrong(f"no mount: {self.said()}")

    def start_once(self):
        """False if another program took one of the free ports before the server did."""
        self.port, self.admin = free_port(), free_port()
        command = [self.args.binary, "serve", "--data", self.data, "--address", f"127.0.0.1:{self.port}"]
        command += ["--admin-address", f"127.0.0.1:{self.admin}", "--mount", f"{churn_worker.BUCKET}={self.mount}"]
        known = subprocess.run([self.args.binary, "config", "--json"], capture_output=True, text=True).stdout
        soon = [setting for setting in SOON if f'"{setting.split("=")[0]}"' in known]
        room = [churn_full.RESERVE] if self.disk else []
        for setting in ([] if self.args.large else SMALL) + soon + room + self.args.set:
            command += ["--set", setting]
        environment = {**os.environ, "MARGAY_ACCESS_KEY": churn_worker.ACCESS, "MARGAY_SECRET_KEY": churn_worker.SECRET}
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + START_SECONDS
        while not os.path.ismount(self.mount):
            if self.process.poll() is not None and "Address already in use" in self.said()[-400:]:
                return False
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Wrong(f"no mount: {self.said()}")
            time.sleep(0.05)
        return True

    def said(self):
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def sample(self):
        """What reclaim has done in this life; gives what a server must not find."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=30) as answer:
                text = answer.read().decode()
        except OSError:
            return []
        values = {name: float(value) for name, value in re.findall(r"^margay_(\w+)(?:{[^}]*})? (\S+)$", text, re.M)}
        self.last = {name: value for name, value in values.items() if name.startswith(("reclaim_", "expiry_"))}
        # A pass may find no room.
        never = [name for name in NEVER if not (self.disk and name == "reclaim_failed_total")]
        return [f"{name} is {values[name]}" for name in never if values.get(name)]

    def count(self, more):
        for name, value in more.items():
            self.totals[name] = self.totals.get(name, 0) + value

    def compact(self):
        done = subprocess.run([self.args.binary, "compact", "--data", self.data, "--json"], capture_output=True, text=True)
        if done.returncode == 0:
            self.count({"reclaim_" + name + "_total": value for name, value in json.loads(done.stdout).items()})
        return done

    def unmount(self):
        subprocess.run(["umount", "-l", self.mount], stderr=subprocess.DEVNULL)

    def end(self, how, is_unmounted=True):
        process, self.process = self.process, None
        if process is None:
            return
        self.count(self.last)
        self.last = {}
        process.send_signal(how)
        try:
            code = process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Wrong(f"the server does not end: {self.said()}") from None
        if is_unmounted:
            self.unmount()
        if how == signal.SIGTERM and code != 0:
            raise Wrong(f"the server ends with {code}: {self.said()}")

    def fsck(self):
        done = subprocess.run([self.args.binary, "fsck", "--data", self.data], capture_output=True, text=True)
        if done.returncode != 0:
            raise Wrong(f"fsck ends with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-1000:]}")


def work(kind, number, options, state_file, until, may_end, checked):
    state = pickle.loads(state_file.read_bytes()) if state_file.exists() else None
    worker = kind(number, options, state)
    wrong = None
    if state:
        try:
            worker.after_crash()
        except (Wrong, OSError) as error:
            wrong = f"after a start: {error}"
    checked.release()
    wrong = wrong or worker.run(until, may_end)
    if not may_end.is_set():
        worker.pending = []
    state_file.write_bytes(pickle.dumps({**worker.state(), "wrong": wrong}))


class Churn:
    def __init__(self, args, folder):
        self.args, self.folder, self.server = args, folder, Server(args, folder)
        self.context, self.round = multiprocessing.get_context("fork"), 0
        self.kind = IssueWorker if args.issue else churn_full.FullWorker if args.full else Worker
        self.states = [folder / f"state{number}" for number in range(args.workers)]

    def options(self):
        mount, port = str(self.server.mount), self.server.port
        s3 = not (self.args.no_s3 or self.args.issue)
        return {"mount": mount, "port": port, "s3": s3, "versions": self.args.versions, "seed": self.args.seed,
                "round": self.round}

    def load(self, seconds, kill):
        """Workers beside the server, which reclaims; a list of what is wrong. Time counts when all have checked what is there."""
        self.round += 1
        may_end, checked = self.context.Event(), self.context.Semaphore(0)
        until, left = self.context.Value("d", float("inf")), self.args.workers
        begun = [
            self.context.Process(
                target=work, args=(self.kind, number, self.options(), self.states[number], until, may_end, checked))
            for number in range(self.args.workers)
        ]
        for one in begun:
            one.start()
        if self.server.disk and seconds:
            # Behind the forks: a process that had got the file open would keep its bytes when it is removed.
            self.server.disk.fill_at_times()
        sampled, wrong, end = 0.0, [], float("inf")
        while any(one.is_alive() for one in begun) and (not kill or time.time() < end):
            while left and checked.acquire(block=False):
                left -= 1
                if left == 0:
                    end = time.time() + seconds
                    until.value = float("inf") if kill else end
            if any(one.exitcode for one in begun):
                # It is told below; the others do not wait for it.
                wrong.append("a worker broke off")
                break
            if self.args.compact:
                done = self.server.compact()
                if done.returncode != 0:
                    wrong.append(f"compact: {done.stdout}{done.stderr}")
            if time.monotonic() - sampled > 1:
                sampled = time.monotonic()
                if found := self.server.sample():
                    wrong += found
                    break
            time.sleep(random.uniform(0, PAUSE_SECONDS))
        if self.server.process.poll() is not None:
            wrong.append(f"the server ended by itself: {self.server.said()}")
        if kill or wrong:
            may_end.set()
            # A worker that gets no processor for a moment must find the dead mount, not the empty directory below it.
            self.server.end(signal.SIGKILL, is_unmounted=False)
        if self.server.disk:
            self.server.disk.rest()
        for one in begun:
            one.join(600)
            if one.exitcode != 0:
                wrong.append(f"a worker ends with {one.exitcode}")
                one.kill()
        if kill or wrong:
            self.server.unmount()
        said = [pickle.loads(file.read_bytes())["wrong"] for file in self.states if file.exists()]
        return wrong + [one for one in said if one]

    def begin(self):
        if self.server.disk:
            self.server.disk.mount()
        self.server.start()
        S3(self.server.port).ask("PUT", "", "lifecycle=", churn_worker.RULES.encode())
        if self.args.versions:
            body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
            S3(self.server.port).ask("PUT", "", "versioning=", body)

    def for_seconds(self, seconds):
        self.begin()
        wrong = self.load(seconds, False)
        self.check(wrong)
        # All of it again after a clean stop, from the disk.
        self.server.end(signal.SIGTERM)
        self.server.fsck()
        self.server.start()
        self.check(self.load(0, False))
        self.server.end(signal.SIGTERM)
        self.server.fsck()
        reclaimed = {name: int(value) for name, value in self.server.totals.items()}
        moved, removed = (reclaimed.get(f"reclaim_{what}_total", 0) for what in ("moved_bytes", "removed_segments"))
        # On a full disk bytes are given back in place.
        if seconds >= PROOF_SECONDS and not self.args.large and (removed == 0 or (moved == 0 and not self.args.full)):
            raise Wrong(f"reclaim moved {moved} bytes and removed {removed} segments: this shows nothing")

    def kill_once(self, again):
        if again:
            self.server.start()
        life = random.Random(f"{self.args.seed} {self.round}").uniform(*LIFE_SECONDS)
        self.check(self.load(life, True))
        self.server.fsck()

    def check(self, wrong):
        if wrong:
            raise Wrong("\n".join(wrong))

    def counts(self):
        states = [pickle.loads(file.read_bytes()) for file in self.states if file.exists()]
        done = {}
        for state in states:
            for name, count in state["done"].items():
                done[name] = done.get(name, 0) + count
        reclaimed = {name: int(value) for name, value in self.server.totals.items() if "damaged" in name or "ved_" in name}
        return {"operations": sum(done.values()), "refused": done.get("full", 0), "checks": sum(state["checks"] for state in states), "reclaim": reclaimed}


def one_run(args, seconds, kills):
    """A new directory; gives the line for the results."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="margay-churn.", dir=args.folder))
    churn, wrong, killed = Churn(args, folder), None, 0
    try:
        if kills:
            churn.begin()
            for killed in range(1, kills + 1):
                churn.kill_once(killed > 1)
        else:
            churn.for_seconds(seconds)
    except (Wrong, OSError) as error:
        wrong = f"{error}"
        print(f"FAILED {args.mode} (seed {args.seed}, {folder}): {wrong}", flush=True)
        print(churn.server.said(), flush=True)
    finally:
        try:
            churn.server.end(signal.SIGKILL)
        except Wrong as error:
            wrong = wrong or str(error)
        if churn.server.disk and churn.server.disk.at.is_mount():
            churn.server.disk.unmount()
        counts = churn.counts()
        if not (wrong or args.keep):
            shutil.rmtree(folder)
    if counts["operations"] == 0 or counts["checks"] == 0 or (args.full and seconds >= PROOF_SECONDS and not counts["refused"]):
        wrong = wrong or "nothing was done"
    return {"mode": args.mode, "program": args.program, "seconds": seconds, "kills": killed, "wrong": wrong, **counts}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--slice", type=int, default=300, help="seconds of one directory")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--kills-slice", type=int, default=15, help="kills of one directory")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", default=None, help="where directories are made")
    parser.add_argument("--results", default=None)
    parser.add_argument("--set", action="append", default=[], help="a setting of the server")
    for flag in ("compact", "versions", "no-s3", "issue", "full", "large", "keep"):
        parser.add_argument("--" + flag, action="store_true")
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    args.binary = os.environ.get("MARGAY_BIN", target / "release/margay")
    args.program = hashlib.sha256(pathlib.Path(args.binary).read_bytes()).hexdigest()[:16]
    kinds = [flag for flag in ("compact", "versions", "no_s3", "issue", "full", "large") if getattr(args, flag)]
    args.mode = " ".join((["kill"] if args.kills else []) + (kinds or ["automatic"]))
    lines = []
    if args.results and os.path.exists(args.results):
        lines = [json.loads(line) for line in open(args.results)]
    lines = [line for line in lines if (line["mode"], line["program"]) == (args.mode, args.program)]
    first_seed, counted = args.seed, "kills" if args.kills else "seconds"
    goal, most = (args.kills, args.kills_slice) if args.kills else (args.seconds, args.slice)
    bad = [line for line in lines if line["wrong"]]
    while not bad and (done := sum(line[counted] for line in lines)) < goal:
        some = min(goal - done, most)
        args.seed = random.randrange(1 << 30) if first_seed is None else first_seed + len(lines)
        line = one_run(args, 0 if args.kills else some, some if args.kills else 0)
        lines.append(line)
        if args.results:
            with open(args.results, "a") as results:
                results.write(json.dumps(line) + "\n")
        bad = [line] if line["wrong"] else []
    total = {name: sum(line.get(name, 0) for line in lines) for name in ("operations", "refused", "checks")}
    reclaimed = {}
    for line in lines:
        for name, value in line["reclaim"].items():
            reclaimed[name] = reclaimed.get(name, 0) + value
    moved, removed = (reclaimed.get(f"reclaim_{what}_total", 0) for what in ("moved_bytes", "removed_segments"))
    refused = f" ({total['refused']} of them found no room)" if args.full else ""
    print(f"evidence: churn, {args.mode}: {sum(line[counted] for line in lines)} {counted}, {total['operations']} changes{refused}, "
          f"{total['checks']} whole files compared, reclaim moved {moved >> 20} MiB and removed {removed} segments, "
          f"{len(bad)} failures")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
