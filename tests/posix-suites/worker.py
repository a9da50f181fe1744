"""worker.py SUITE PLACE KEEP PROGRAM NUMBER: process 1 of its name spaces; takes cases from KEEP/queue-PLACE until it is empty.

PLACE is `margay`, or `ext4` for the same cases on a loop device. A case over its time is ended with all that it started; where
that does not help, the server is ended and its mounts aborted. What is left of the server at the end is checked by `fsck`.
"""

import fcntl
import os
import pathlib
import resource
import subprocess
import sys
import time

import results
import suites
import world

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ports import free_port  # noqa: E402

# Open files of one process: cases open as many as they may, and some machines allow a million.
OPEN_FILES = 4096


def next_case(queue):
    """Takes the last line off, alone."""
    with open(queue, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines()
        if not lines:
            return None
        file.seek(0)
        file.truncate()
        file.write("".join(f"{line}\n" for line in lines[:-1]))
        return lines[-1]


def reap(*programs):
    """Process 1 has the orphans; the end of the server and of its far mount is theirs to see."""
    kept = [program.process.pid for program in programs if program]
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid in kept:
            return
        os.waitpid(found.si_pid, os.WNOHANG)


def limit_open_files():
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, most), most))


class Worker:
    def __init__(self, suite, place, keep, binary, number):
        self.suite, self.place = suite, place
        self.work = keep / f"{place}-{number}"
        self.work.mkdir(parents=True, exist_ok=True)
        self.limit = float(os.environ.get("POSIX_SUITES_LIMIT", "600"))
        checkout = pathlib.Path(os.environ[suite.variable])
        world.furnish(checkout, binary, self.work)
        self.server = world.Server(free_port()) if place == "margay" else None
        self.far = world.FarMount(self.server.port) if getattr(suite, "far", False) else None

    def begin(self):
        if self.server:
            self.server.start()
            if self.far:
                self.far.start()
            elif self.suite.mounts:
                world.run("mount", "-t", "fuse.margay", "margay:test", suites.TEST)
        else:
            world.run("mount", "--bind", world.ROOT / "disk", suites.TEST)
        self.suite.prepare(world)

    def again(self):
        """A new life after a server that ended or hangs."""
        self.server.kill()
        world.clear(False)
        if self.far:
            self.far.kill()
        self.begin()

    def run(self, case):
        command, directory, extra = self.suite.command(case)
        said = suites.WORK / "output"
        begun = time.monotonic()
        with open(said, "wb") as output:
            process = subprocess.Popen(
                command, cwd=directory, env=os.environ | extra, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                preexec_fn=limit_open_files,
            )
            try:
                outcome = process.wait(self.limit)
            except subprocess.TimeoutExpired:
                outcome = None
        output = said.read_text(encoding="utf-8", errors="replace")
        if outcome is None:
            output += f"\n--- over {self.limit} s; what waits without end:\n{world.stacks()}"
            judged = ("timeout", f"over {self.limit:.0f} s")
        else:
            judged = self.suite.judge(case, outcome, output)
        seconds = time.monotonic() - begun
        calm = world.clear(self.suite.mounts)
        reap(self.server, self.far)
        if self.server:
            judged = self.look_after(judged, calm)
        if judged[0] in ("failed", "timeout"):
            self.keep_logs(case, output)
        return *judged, seconds

    def look_after(self, judged, calm):
        """The server must have lived through the case, and must let go of it."""
        ended = next((program for program in (self.server, self.far) if program and not program.alive()), None)
        if ended:
            judged = ("failed", f"the {ended.name} ended: {world.tail(ended.log, 300)} | {judged[1]}")
            self.again()
        elif not calm:
            judged = ("timeout", f"a process of the case cannot be ended | {judged[1]}")
            self.again()
        return judged

    def keep_logs(self, case, output):
        place = suites.WORK / "failed" / case.replace("/", "-")
        place.mkdir(parents=True, exist_ok=True)
        (place / "output").write_text(output)
        for log in self.suite.logs(case):
            (place / log.name).write_bytes(log.read_bytes()[:1_000_000])

    def end(self):
        """(OUTCOME, WHY) of a stop and a check of all that is left."""
        world.clear(bool(self.far))
        if self.far and not self.far.stop():
            return "failed", f"the mount does not stop, or has not sent everything: {world.tail(self.far.log)}"
        if not self.server:
            return "passed", ""
        if not self.server.stop():
            return "failed", "the server does not stop"
        done = subprocess.run([world.ROOT / "margay", "fsck", "--data", world.ROOT / "disk/data"], capture_output=True, text=True)
        (suites.WORK / "fsck.log").write_text(done.stdout + done.stderr)
        log = "".join(program.log.read_text(errors="replace") for program in (self.server, self.far) if program)
        for words in ("panicked", "the check found something wrong", "counters call a segment dead"):
            if words in log:
                return "failed", log[log.index(words) :]
        if self.server.wrong:
            return "failed", self.server.wrong
        return ("passed", "") if done.returncode == 0 else ("failed", f"fsck: {(done.stdout + done.stderr)}")


def main(name, place, keep, binary, number):
    suite, keep = suites.SUITES[name], pathlib.Path(keep)
    build = os.environ["POSIX_SUITES_BUILD"]
    # Open before the directory is covered.
    record = results.Results(suites.WORK / "outcomes.tsv", build)
    queue = keep / f"queue-{place}"
    shared = {"queue": os.open(queue, os.O_RDONLY), "results": os.open(keep, os.O_RDONLY | os.O_DIRECTORY)}
    queue, record.path = (pathlib.Path(f"/proc/self/fd/{shared['queue']}"), pathlib.Path(f"/proc/self/fd/{shared['results']}/{place}.tsv"))
    worker = Worker(suite, place, keep, pathlib.Path(binary), number)
    worker.begin()
    while case := next_case(queue):
        outcome, why, seconds = worker.run(case)
        record.add(case, outcome, why, seconds)
        print(f"{name} {place} {case}: {outcome} in {seconds:.0f} s {why[:100] if outcome != 'passed' else ''}", flush=True)
    outcome, why = worker.end()
    print(f"{name} {place}: stop and fsck: {outcome} {why}", flush=True)
    return 0 if outcome == "passed" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
