#!/usr/bin/env python3
"""Takes away, one at a time, each precondition, counter change and back row of crates/volume, and asks whether a test notices.

A copy of the crates is changed once, so that every `assert_*`, `add` and `move_subdirectories` on a draft asks a variable of
the environment whether it is left out (a counter also: whether it is off by one); then tests run without compiling again.

    tools/mutants.py list [PATTERN]         what there is, and what is known of it
    tools/mutants.py run [PATTERN]          runs tests against what is not known or open, likely ones first; goes on where it stopped
    tools/mutants.py check [--part N/M]     what CI runs: known ones against the test that is known to notice, those of reclaim,
                                            publish, release, rename and put always, of the rest every M-th; all sites are known
    tools/mutants.py again PATTERN          as run, also for what is known

tests/mutants/known.tsv holds for each mutant `BINARY TEST`, or `redundant: REASON`, or `open` while its test has not been looked for: `run` looks for those
first, `check` counts them aloud. The product's source has no trace of it.
"""

import argparse
import atexit
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
KNOWN = ROOT / "tests/mutants/known.tsv"
SOURCE = pathlib.Path("crates/volume/src")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
COPY = TARGET / "mutants"
# Not operations: what tests use, and the draft itself.
LEFT_OUT = ("fuzzing.rs", "tests.rs", "mutant.rs")
DRAFT = "draft/mod.rs"
CALL = re.compile(r"[\w.]*\b(\w+)\.(assert_\w+|add|move_subdirectories|own_runs|disown_runs|hand_over_runs|relocate_runs|relocate_file|locate_extent_rows)\(")
# Their value is a result.
FALLIBLE = ("assert_no_circle", "assert_not_below", "assert_held")
ALWAYS = (
    "upkeep/reclaim/", "posix/publish", "entry/release.rs", "draft/back_rows.rs", "object/rename.rs", "posix/rename.rs", "object/put_object.rs", "upload/place.rs",
)
# Processor time of a program in which nothing is left out, times this and with so much on top, is a hang; a deadlock takes none.
CPU_FACTOR, CPU_MORE, STILL_SECONDS_MAX = 4, 30, 120
# In a check nothing is known of a program's time.
CHECK_SECONDS = 300
MEMORY_BYTES_MIN = 2 << 30
VERSION = "0.0.0-mutants"
MUTANT = '''//! Which mutant runs; only in the copy that tools/mutants.py makes.
use std::sync::OnceLock;

fn chosen() -> &'static (usize, bool) {
    static CHOSEN: OnceLock<(usize, bool)> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let text = std::env::var("MUTANT").unwrap_or_default();
        let (number, off) = text.split_once(' ').unwrap_or((&text, ""));
        (number.parse().unwrap_or(usize::MAX), off == "off")
    })
}

pub(crate) fn kept(number: usize) -> bool {
    *chosen() != (number, false)
}

pub(crate) fn off(number: usize) -> i64 {
    i64::from(*chosen() == (number, true))
}
'''
# Where a mutant is likely noticed, by the beginning of its file; then all others.
LIKELY = [
    ("upkeep/reclaim/", ["interleavings_reclaim", "reclaim", "posix_data", "churn"]),
    ("cache/bucket_states", ["interleavings_open"]),
    ("bucket/", ["interleavings_settings", "interleavings", "documents"]),
    ("object/change_documents", ["remembered", "interleavings_settings", "documents"]),
    ("keys/identities", ["interleavings_settings"]),
    ("cache/inos", ["interleavings_settings"]),
    ("entry/implicit_directories", ["interleavings", "documents"]),
    ("entry/names", ["interleavings_settings", "interleavings", "interleavings_mount", "versions"]),
    ("object/multipart/create", ["interleavings_settings", "interleavings"]),
    ("object/multipart/", ["orphans", "interleavings", "mixed", "interleavings_reclaim"]),
    ("posix/rename", ["interleavings_mount", "posix_model", "posix_names"]),
    ("posix/publish", ["remembered", "interleavings_open", "posix_data", "versions_mount", "interleavings_reclaim"]),
    ("posix/versions", ["interleavings_open", "versions_mount", "interleavings_mount"]),
    ("posix/directories", ["interleavings_settings"]),
    ("posix/", ["interleavings_mount", "posix_model", "posix_data", "posix_attributes", "posix_names"]),
    ("versions/expire", ["remembered", "interleavings"]),
    ("versions/", ["versions", "interleavings", "versions_mount"]),
    ("entry/orphan.rs", ["orphans", "posix_data", "mixed"]),
    ("object/copy_object", ["interleavings_settings"]),
    # Not `races`: real threads do not meet each time.
    ("", ["interleavings", "mixed", "versions", "posix_model", "objects", "documents"]),
]


class Mutant:
    def __init__(self, number, kind, name):
        self.number, self.kind, self.name = number, kind, name


def closing(text, at):
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    while True:
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1


def last_argument(text, start, end):
    """Where the last of the arguments between two places begins."""
    depth, begin = 0, start
    for at in range(start, end):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
        elif text[at] == "," and depth == 0 and text[at + 1: end].strip():
            begin = at + 1
    return begin


def rewrite(relative, text, number, mutants, seen):
    """The text in which each call asks whether it is left out."""
    code = re.sub(r"//[^\n]*", lambda found: " " * len(found[0]), text)
    out, last = [], 0
    for found in CALL.finditer(code):
        receiver, method = found[1], found[2]
        end = closing(code, found.end() - 1)
        call = code[found.start(): end]
        drafts = ("draft", "self") if relative == "draft/back_rows.rs" else ("draft",)
        if method == "add" and receiver not in drafts or code[: found.start()].rstrip().endswith("fn"):
            continue
        if found.start() < last:
            continue
        shown = re.sub(r"\s+", " ", text[found.start(): end])
        seen[relative, shown] = seen.get((relative, shown), 0) + 1
        name = f"{relative}: {shown}" + (f" #{seen[relative, shown]}" if seen[relative, shown] > 1 else "")
        mutants.append(Mutant(number, "left out", f"{name} left out"))
        if method == "add" or method == "move_subdirectories":
            mutants.append(Mutant(number, "off", f"{name} off by one"))
            begin = last_argument(code, found.end(), end - 1)
            call = text[found.start(): begin] + f" ({text[begin: end - 1].rstrip().rstrip(',')}) + crate::mutant::off({number}))"
        else:
            call = text[found.start(): end]
        out.append(text[last: found.start()])
        if method in FALLIBLE:
            out.append(f"(if crate::mutant::kept({number}) {{ {call} }} else {{ Ok(()) }})")
        else:
            out.append(f"if crate::mutant::kept({number}) {{ {call} }}")
        last, number = end, number + 1
    out.append(text[last:])
    return "".join(out), number


def sites():
    """All mutants, and the changed sources by path."""
    mutants, files, number, seen = [], {}, 0, {}
    for path in sorted((ROOT / SOURCE).rglob("*.rs")):
        relative = path.relative_to(ROOT / SOURCE).as_posix()
        if path.name in LEFT_OUT or relative == DRAFT:
            continue
        files[path.relative_to(ROOT)], number = rewrite(relative, path.read_text(), number, mutants, seen)
    return mutants, files


def write_if_changed(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def build(files, wanted_programs=None):
    """Makes the copy and compiles its tests, or those that are wanted; a path for each test program."""
    wanted = set()
    for path in subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n"):
        if not path or not (ROOT / path).is_file() or not re.search(r"\.(rs|sql|toml|lock)$", path):
            continue
        if path.startswith("crates/volume/fuzz"):
            continue
        wanted.add(COPY / path)
        text = files.get(pathlib.Path(path), (ROOT / path).read_text())
        if path == "crates/volume/src/lib.rs":
            text = text.replace("\nmod ", "\nmod mutant;\nmod ", 1)
        # Another version, or cargo would take the programs of one for those of the other.
        if path == "Cargo.toml":
            text = re.sub(r'(?m)^version = "[^"]*"', f'version = "{VERSION}"', text, count=1)
        if path == "Cargo.lock":
            text = re.sub(r'(name = "margay[\w-]*"\nversion = )"[^"]*"', rf'\1"{VERSION}"', text)
        write_if_changed(COPY / path, text)
    write_if_changed(COPY / SOURCE / "mutant.rs", MUTANT)
    wanted.add(COPY / SOURCE / "mutant.rs")
    for path in COPY.rglob("*.rs"):
        if path not in wanted:
            path.unlink()
    which = ["--lib", "--tests"]
    if wanted_programs is not None:
        which = [word for name in sorted(wanted_programs) for word in (["--lib"] if name == "lib" else ["--test", name])]
    command = ["cargo", "test", "--locked", "-p", "margay-volume", *which, "--no-run"]
    command += ["-j", os.environ.get("MUTANTS_JOBS", "2")]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "RUSTFLAGS": os.environ.get("RUSTFLAGS", "")}
    if wanted_programs is None:
        # Each program runs hundreds of times. In a check it runs once or twice, and libraries are there as tests have them.
        environment |= {"CARGO_PROFILE_DEV_OPT_LEVEL": "1", "CARGO_PROFILE_DEV_DEBUG": "0"}
    if not environment["RUSTFLAGS"]:
        del environment["RUSTFLAGS"]
    done = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-8000:])
    programs = {}
    for line in done.stderr.splitlines():
        if found := re.search(r"Executable (?:unittests )?(\S+) \((\S+)\)", line):
            name = "lib" if found[1].endswith("lib.rs") else pathlib.Path(found[1]).stem
            programs[name] = COPY / found[2] if not found[2].startswith("/") else pathlib.Path(found[2])
    return programs


@functools.cache
def folder_of_tests():
    """In memory, where there is room: to sync a disk is most of the time of some tests, and shows nothing here. What is killed leaves files."""
    memory = pathlib.Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= MEMORY_BYTES_MIN
    folder = tempfile.mkdtemp(prefix="margay-mutants.", dir=memory if roomy else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def environment_of(mutant):
    value = "" if mutant is None else f"{mutant.number} off" if mutant.kind == "off" else f"{mutant.number}"
    return {**os.environ, "TMPDIR": folder_of_tests(), "MUTANT": value, "RUST_BACKTRACE": "0", "MARGAY_NO_POSTGRES": "1", "PROPTEST_RNG_SEED": "1", "PROPTEST_FAILURE_PERSISTENCE": "off"}


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """Kills a program that took more processor time than it may, or takes none any more; the clock on the wall tells nothing here."""

    def __init__(self, process, seconds_max):
        super().__init__(daemon=True)
        self.process, self.seconds_max, self.hangs, self.ended = process, seconds_max, False, threading.Event()
        self.start()

    def run(self):
        last, since = 0.0, time.monotonic()
        while not self.ended.wait(2):
            try:
                now = processor_seconds(self.process.pid)
            except OSError:
                return
            if now > last:
                last, since = now, time.monotonic()
            if now > self.seconds_max or time.monotonic() - since > STILL_SECONDS_MAX:
                self.hangs = True
                self.process.kill()
                return


def baseline(programs):
    """Processor seconds of each program when nothing is left out; kept for as long as the programs are the same."""
    kept = TARGET / "mutants-times.json"
    times = json.loads(kept.read_text()) if kept.exists() else {}
    for name, program in programs.items():
        if str(program) in times:
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([program, "--test-threads", "2"], cwd=COPY / "crates/volume", env=environment_of(None), capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            sys.exit(f"{name} fails though nothing is left out: {done.stdout.decode(errors='replace')[-3000:]}")
        times[str(program)] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{name}: {times[str(program)]:.0f} s of processor time", flush=True)
        kept.write_text(json.dumps(times, indent=1))
    return {name: times[str(program)] for name, program in programs.items()}


def noticed(program, mutant, seconds, test=None):
    """The test that fails, or None; ends at the first panic. `seconds` is what the program takes by itself."""
    command = [program, "--nocapture", "--test-threads", "2"] + ([test, "--exact"] if test else [])
    process = subprocess.Popen(command, cwd=COPY / "crates/volume", env=environment_of(mutant), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    watch, failed = Watch(process, seconds * CPU_FACTOR + CPU_MORE), None
    try:
        for line in process.stdout:
            if found := re.search(r"thread '([^']+)'.* panicked at", line):
                failed = found[1]
                break
            if "process abort" in line or "overflowed its stack" in line:
                failed = "abort"
                break
    finally:
        watch.ended.set()
        process.kill()
        code = process.wait()
        failed = failed or ("a hang" if watch.hangs else None)
    return failed if failed or code == 0 else f"exit {code}"


def likely(name, programs):
    order = [one for begin, some in LIKELY if name.startswith(begin) for one in some]
    return [one for one in dict.fromkeys(order) if one in programs]


def read_known():
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    return dict(line.rsplit("\t", 1) for line in lines if line and not line.startswith("#"))


def write_known(known, mutants):
    names = [mutant.name for mutant in mutants]
    KNOWN.parent.mkdir(exist_ok=True)
    KNOWN.write_text("# Each mutant with the test that notices it, or why another check makes it redundant; see tools/mutants.py.\n" +
                     "".join(f"{name}\t{known[name]}\n" for name in names if name in known))


def run(mutants, programs, known, results):
    """Asks first the programs that likely notice, of all mutants; then all other programs, the quickest first. Results are appended as they come."""
    times = baseline(programs)
    left = mutants
    for rest in (False, True):
        survivors = []
        for index, mutant in enumerate(left):
            first = likely(mutant.name, programs)
            order = sorted(set(programs) - set(first) if rest else first, key=times.get)
            began, killer = time.monotonic(), None
            for program in order:
                if failed := noticed(programs[program], mutant, times[program]):
                    killer = f"{program} {failed}"
                    break
            said = killer or ("SURVIVES" if rest else "not by likely ones")
            print(f"{index + 1} of {len(left)}, {time.monotonic() - began:.0f} s: {mutant.name}: {said}", flush=True)
            if killer:
                known[mutant.name] = killer
            else:
                survivors.append(mutant)
            if killer or rest:
                with open(results, "a") as file:
                    file.write(f"{mutant.name}\t{killer or 'SURVIVES'}\n")
        left = survivors


def check(mutants, files, known, part):
    """Known mutants against the test that noticed them."""
    number, of = (int(one) for one in part.split("/"))
    bad = [mutant.name for mutant in mutants if mutant.name not in known]
    for name in bad:
        print(f"not known: {name}: run tools/mutants.py run, or say in {KNOWN.relative_to(ROOT)} why it is redundant")
    rest = [mutant for mutant in mutants if not mutant.name.startswith(ALWAYS)]
    chosen = [mutant for mutant in mutants if mutant.name.startswith(ALWAYS)] + rest[number % of::of]
    chosen = [mutant for mutant in chosen if not known.get(mutant.name, "redundant").startswith(("redundant", "open"))]
    programs = build(files, {known[mutant.name].split(" ")[0] for mutant in chosen})

    def is_noticed(mutant):
        program, test = known[mutant.name].split(" ", 1)
        # A panic on a thread of a test has that thread's name.
        exact = test if re.fullmatch(r"\w+(::\w+)*", test) else None
        return any(noticed(programs[program], mutant, CHECK_SECONDS, one) for one in dict.fromkeys((exact, None)))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, found in zip(chosen, pool.map(is_noticed, chosen)):
            if not found:
                bad.append(mutant.name)
                print(f"not noticed any more: {mutant.name} by {known[mutant.name]}")
    redundant = sum(1 for name in known.values() if name.startswith("redundant"))
    still_open = sum(1 for name in known.values() if name.startswith("open"))
    if still_open:
        print(f"skipped: {still_open} mutants, because their tests have not been looked for (tools/mutants.py run)")
    print(f"evidence: mutants: {len(mutants)} known, {redundant} redundant for a reason; {len(chosen)} tried, {len(bad)} not noticed")
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "run", "again", "check", "build"])
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--part", default="0/20")
    parser.add_argument("--results", default=str(TARGET / "mutants.tsv"))
    args = parser.parse_args()
    known = read_known()
    if args.what == "list":
        for mutant in sites()[0]:
            if args.pattern in mutant.name:
                print(f"{mutant.name}\t{known.get(mutant.name, '-')}")
        return
    mutants, files = sites()
    if args.what == "check":
        sys.exit(0 if check(mutants, files, known, args.part) else 1)
    programs = build(files)
    if args.what == "build":
        return print(f"{len(mutants)} mutants, {len(programs)} test programs")
    done = {}
    if os.path.exists(args.results) and args.what == "run":
        # A full disk once cut a line.
        done = dict(line.rstrip("\n").rsplit("\t", 1) for line in open(args.results) if "\t" in line)
        known.update({name: killer for name, killer in done.items() if killer != "SURVIVES"})
    chosen = [mutant for mutant in mutants if re.search(args.pattern, mutant.name)]
    if args.what == "run":
        chosen = [mutant for mutant in chosen if known.get(mutant.name, "open") == "open" and mutant.name not in done]
    chosen.sort(key=lambda mutant: not mutant.name.startswith(ALWAYS))
    try:
        run(chosen, programs, known, args.results)
    finally:
        write_known(known, mutants)


if __name__ == "__main__":
    main()
