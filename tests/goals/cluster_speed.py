"""How fast servers on one PostgreSQL are: python3 tests/goals/cluster_speed.py [one|pages|load|juicefs|tables ...] [--servers N] [--copies N]
[--write N] [--deleted N] [--seconds N] [--rounds N] [--files N]

  one       one client: GET and HEAD beside a prepared SELECT of one row (3 times as long), PUT of 4 KiB beside an INSERT and three
            fdatasync (2.5 times the one, and the others)
  pages     a page of 1000 keys beside a SELECT of as many rows (twice as long, and 1 ms), after 10,000 deletes before it (2.5 times a
            page of live keys) and after a million (60 ms at once, 1.2 times after vacuum)
  load      64 clients that put, then get, objects of 4 KiB: for each second, and for each second of a processor that all servers and
            PostgreSQL use together (the clients are not counted)
  juicefs   a mount beside JuiceFS on the same PostgreSQL, with its data in the same server (`juicefs` in PATH): creating twice as fast,
            removing three times, renaming a directory twice, listing five times, cp -r in half of the time, rm -r in 0.4
  tables    what is cited of LeoFS, at a server of the cluster: `margay bench ls`, `auth` and `load` print their tables (not in the default)
One PostgreSQL that syncs, all on this machine, in turns, medians. The gates G3, G4, G7 and G10 of issue 16.
"""

import argparse
import base64
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time

from cluster import World, ask
from cluster_gates import Client
from server import ACCESS, BINARY, SECRET, finish, goal, median

BUCKET, BODY, PAGE, PUTTERS = "speed", os.urandom(4096), 1000, 8
WARM_SECONDS = 3
# Than JuiceFS, by the row of `margay bench`.
FASTER = {"create": 2, "delete": 3, "rename directory": 2, "list": 5, "cp -r": 2, "rm -r": 2.5}


def milliseconds(work):
    began = time.monotonic()
    work()
    return 1000 * (time.monotonic() - began)


def sql(world, text):
    return subprocess.run(["psql", world.postgres.url, "-Atc", text], check=True, capture_output=True, text=True).stdout.strip()


def pgbench(world, script, count):
    """Milliseconds of a prepared statement for one client."""
    path = os.path.join(world.folder, "script.sql")
    pathlib.Path(path).write_text(script)
    words = ["pgbench", world.postgres.url, "-n", "-M", "prepared", "-c", "1", "-t", str(count), "-f", path]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"latency average = ([\d.]+) ms", said)[1])


def asked(client, method, path, body=b"", query=""):
    status, found = client.ask(method, path, body, query)
    if status != 200:
        raise SystemExit(f"{method} {path}: {status} {found[:200]}")
    return found


def synced(folder, count):
    """Milliseconds of an fdatasync of 4 KiB."""
    handle = os.open(os.path.join(folder, "probe"), os.O_CREAT | os.O_WRONLY, 0o600)
    times = []
    for number in range(count):
        os.pwrite(handle, BODY, 4096 * number)
        times.append(milliseconds(lambda: os.fdatasync(handle)))
    os.close(handle)
    return median(times)


def one(world, arguments):
    sql(world, "create table bench_rows(key bytea primary key, version bigint, value bytea)")
    sql(world, "insert into bench_rows select int8send(n), 1, repeat('v', 120)::bytea from generate_series(1, 10000) n")
    select = "\\set n random(1, 10000)\nselect version, value from bench_rows where key = int8send(:n);\n"
    insert = "\\set n random(100000, 9000000000000)\ninsert into bench_rows values (int8send(:n), 1, repeat('v', 120)::bytea);\n"
    rows = {name: [] for name in ("select", "insert", "sync", "get", "head", "put")}
    for _ in range(arguments.rounds):
        rows["select"].append(pgbench(world, select, 2000))
        rows["insert"].append(pgbench(world, insert, 1000))
        rows["sync"].append(synced(world.folder, 200))
        for method in ("get", "head", "put"):
            rows[method].append(loaded(world.nodes[0], method, 3, 1)[1])
    sql(world, "drop table bench_rows")
    at = {name: median(values) for name, values in rows.items()}
    text = ", ".join(f"{name} {value:.3f}" for name, value in at.items())
    print(f"one client, in ms: {text}")
    for method in ("get", "head"):
        goal(f"{method} {at[method] / at['select']:.2f} of a SELECT (3)", at[method] <= 3 * at["select"])
    limit = 2.5 * at["insert"] + 3 * at["sync"]
    goal(f"put {at['put']:.2f} ms, 2.5 INSERT + 3 fdatasync {limit:.2f} ms", at["put"] <= limit)


def work_through(world, items, work):
    """`work(client, item)` for all items by some processes, each with a connection of its own."""

    def run(at):
        client = Client(world.nodes[at % len(world.nodes)])
        for item in items[at::PUTTERS]:
            work(client, item)

    processes = [multiprocessing.get_context("fork").Process(target=run, args=(at,)) for at in range(PUTTERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit("a client failed")


def page(client, prefix):
    """Median time of the first page of a prefix."""
    found = listed(client, prefix)
    if found.count(b"<Key>") != PAGE:
        raise SystemExit(f"a page of {found.count(b'<Key>')} keys")
    return median([milliseconds(lambda: listed(client, prefix)) for _ in range(40)])


def listed(client, prefix):
    return asked(client, "GET", f"/{BUCKET}", query=f"list-type=2&max-keys={PAGE}&prefix={prefix}%2F")


def bare(world):
    """Milliseconds of a SELECT of as many rows as a page has, from the same table, by one client."""
    schema = sql(world, "select schemaname from pg_tables where tablename = 'rows'")
    # A key in the midst of the table is an entry of a directory, since most rows are.
    first = sql(world, f"select encode(key, 'hex') from {schema}.rows order by key offset (select count(*) / 3 from {schema}.rows) limit 1")
    return pgbench(world, f"select key, value from {schema}.rows where key >= '\\\\x{first}' order by key limit {PAGE};\n", 300)


def delete(client, prefix, numbers):
    keys = "".join(f"<Object><Key>{prefix}/{number:07}</Key></Object>" for number in numbers)
    body = f"<Delete><Quiet>true</Quiet>{keys}</Delete>".encode()
    digest = base64.b64encode(hashlib.md5(body).digest()).decode()
    status, found = client.ask("POST", f"/{BUCKET}", body, "delete=", {"content-md5": digest})
    if status != 200 or b"<Error>" in found:
        raise SystemExit(f"delete: {status} {found[:300]}")


def pages(world, arguments):
    lister, deleted = Client(world.nodes[0]), arguments.deleted
    total = deleted + 2 * PAGE
    began = time.monotonic()
    work_through(world, range(total), lambda client, number: asked(client, "PUT", f"/{BUCKET}/p/{number:07}", b"x"))
    print(f"{total} objects of one byte put at {total / (time.monotonic() - began):.0f}/s", flush=True)
    sql(world, "vacuum analyze")
    ratios, live, floor = [], [], []
    for _ in range(arguments.rounds):
        floor.append(bare(world))
        live.append(page(lister, "p"))
        ratios.append(live[-1] - 1 <= 2 * floor[-1])
    before, select = median(live), median(floor)
    goal(f"a page of {PAGE} keys {before:.2f} ms, a SELECT of as many rows {select:.2f} ms (twice, and 1 ms)", before <= 2 * select + 1)
    first = min(10_000, deleted)
    remove(world, range(first))
    after = page(lister, "p")
    goal(f"... after {first} deletes before it {after:.2f} ms, {after / before:.2f} (2.5)", after <= 2.5 * before)
    if deleted <= first:
        return
    remove(world, range(first, deleted))
    # Its connection was idle for longer than a server keeps one.
    lister = Client(world.nodes[0])
    listed(lister, "other")
    at_once = milliseconds(lambda: listed(lister, "p"))
    goal(f"... after {deleted} deletes {at_once:.1f} ms at once (60)", at_once <= 60)
    began = time.monotonic()
    while (after := page(lister, "p")) > 1.2 * before and time.monotonic() - began < 120:
        time.sleep(2)
    goal(f"... {after / before:.2f} of before (1.2) after {time.monotonic() - began:.0f} s of waiting for vacuum (90)", after <= 1.2 * before)


def remove(world, numbers):
    began = time.monotonic()
    groups = [numbers[at : at + PAGE] for at in range(0, len(numbers), PAGE)]
    work_through(world, groups, lambda client, group: delete(client, "p", group))
    print(f"{len(numbers)} objects removed at {len(numbers) / (time.monotonic() - began):.0f}/s", flush=True)


def processor_seconds(world):
    """Of all servers and PostgreSQL, and the children of it that are gone."""
    postmaster = int((world.postgres.folder / "data/postmaster.pid").read_text().split()[0])
    children = subprocess.run(["pgrep", "-P", str(postmaster)], capture_output=True, text=True).stdout.split()
    used = 0
    for process in [postmaster, *children, *(node.server.process.pid for node in world.nodes)]:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def loaded(node, mix, seconds, connections, *more):
    """One load: requests per second, and the median in milliseconds."""
    words = ["--size", "4096", "--connections", str(connections), "--seconds", str(seconds), "--json"]
    process = node.server.command("bench", "load", "--endpoint", f"http://{node.server.host}", "--mix", f"{mix}=100", *words, *more)
    output, _ = process.communicate()
    found = json.loads(output)["operations"][0]
    if process.returncode or found["failed"]:
        raise SystemExit(f"a load of {mix} failed: {output[:500]}")
    return found["requests_per_second"], found["p50_ms"]


def load(world, arguments):
    for mix, aim in (("put", 2000), ("get", 8200)):
        rates, each = [], []
        for turn in range(arguments.rounds):
            node, used = world.nodes[turn % len(world.nodes)], []

            def sample():
                # Objects were made, and the load runs.
                time.sleep(WARM_SECONDS + 1)
                before = processor_seconds(world)
                time.sleep(arguments.seconds - 2)
                used.append((processor_seconds(world) - before) / (arguments.seconds - 2))

            thread = threading.Thread(target=sample)
            thread.start()
            rate, _ = loaded(node, mix, arguments.seconds, 64, "--warmup-seconds", str(WARM_SECONDS))
            thread.join()
            rates.append(rate)
            each.append(rate / used[0])
        text = f"{mix}: {median(rates):.0f}/s, {median(each):.0f} for each second of a processor {[round(one) for one in each]}"
        goal(f"{text} (aim {aim}; {len(world.nodes)} servers and PostgreSQL)", median(each) >= aim)


def juicefs(world, arguments):
    """Its metadata is in a database beside ours, its data in a bucket of the same server."""
    own, other = os.path.join(world.folder, "m0"), os.path.join(world.folder, "juicefs")
    os.mkdir(other)
    if ask(world.nodes[0], "PUT", "/juicefs")[0] != 200 or not world.nodes[0].server.appears(own):
        raise SystemExit("no mount, or no bucket")
    sql(world, "create database juicefs")
    url = world.postgres.url.rpartition("/")[0] + "/juicefs?sslmode=disable"
    keys = os.environ | {"ACCESS_KEY": ACCESS, "SECRET_KEY": SECRET}
    store = f"http://{world.nodes[0].server.host}/juicefs"
    words = ["juicefs", "format", "--storage", "s3", "--bucket", store, "--trash-days", "0", url, "juicefs"]
    subprocess.run(words, check=True, env=keys, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cache = os.path.join(world.folder, "juicefs-cache")
    words = ["juicefs", "mount", "-d", "--no-usage-report", "--cache-dir", cache, url, other]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        beside(["dirops", "--sync", "--clients", "1,4", "--files", str(arguments.files)], own, other, arguments.rounds)
        beside(["small"], own, other, arguments.rounds)
    finally:
        subprocess.run(["umount", "-l", other], check=False)


def tables(world, arguments):
    """Listings as s3cmd does them, signatures, and a mixed load of five minutes in small."""
    for words in (["ls", "--runs", "3"], ["auth"], ["load", "--seconds", str(arguments.seconds), "--mix", "put=30,get=70"]):
        print(f"== margay bench {' '.join(words)}", flush=True)
        process = world.nodes[0].server.command("bench", *words, "--endpoint", f"http://{world.nodes[0].server.host}")
        print(process.communicate()[0].decode(), flush=True)
        goal(f"margay bench {words[0]} ends well", process.returncode in (0, 4))


def beside(words, own, other, rounds):
    """Both in turns; prints each row, and what ours is of the other's."""
    dirs = ["--dir", own, "--dir", other, "--rounds", str(rounds), "--json"]
    said = subprocess.run([BINARY, "bench", *words, *dirs], check=True, capture_output=True, text=True).stdout
    rows = {}
    for row in json.loads(said)["rows"]:
        rows.setdefault((row["clients"], row["phase"], row["unit"]), {})[row["name"] == own] = row["median"]
    for (clients, phase, unit), found in rows.items():
        times = found[False] / found[True] if unit == "s" else found[True] / found[False]
        text = f"{clients} clients, {phase}: {found[True]:.1f} {unit}, JuiceFS {found[False]:.1f} {unit}, {times:.1f} times as fast"
        wanted = FASTER.get(phase)
        goal(f"{text} ({wanted})", times >= wanted) if wanted else print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["one", "pages", "load", "juicefs"])
    for name, default in dict(servers=3, copies=3, write=2, deleted=20_000, seconds=10, rounds=3, files=10_000).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    for what in arguments.what:
        folder = tempfile.mkdtemp(prefix="cluster-speed-")

        def options(number):
            if what != "juicefs" or number > 0:
                return ()
            os.mkdir(os.path.join(folder, "m0"))
            return "--mount", f"{BUCKET}={os.path.join(folder, 'm0')}"

        world = World(BUCKET, arguments.servers, arguments.copies, arguments.write, folder, options, address="127.0.0.1")
        try:
            globals()[what](world, arguments)
        finally:
            world.close()
            subprocess.run(["umount", "-l", os.path.join(folder, "m0")], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
    finish()


if __name__ == "__main__":
    main()
