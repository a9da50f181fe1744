#!/usr/bin/env python3
"""What watches a server holds of a real one: metrics, alert rules and board, by Prometheus' own tools.

A server with TLS, a quota, several disks and a notification target answers some requests, a scrub and an fsck. Then promtool
checks its page, the rules and their tests; every metric that the rules and the board name must be on that page; and a Prometheus
that scrapes the server must answer every expression of both. Needs promtool and prometheus (Debian: prometheus) in PATH.
"""

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "goals"))
import sign  # noqa: E402
from server import ACCESS, BINARY, SECRET, free_port  # noqa: E402

RULES = ROOT / "packaging/prometheus/margay.rules.yml"
BOARD = ROOT / "packaging/grafana/margay.json"
# Of Prometheus itself.
OWN = {"up", "ALERTS"}
# Only with a mount, which needs /dev/fuse and root.
OF_MOUNTS = {"margay_mount_request_seconds_bucket"}
LATE_SECONDS = 60
WORDS = re.compile(r"\b((?:margay|process)_[a-z0-9_]+)\b")

failures = 0
checks = 0


def check(is_so, what):
    global failures, checks
    checks += 1
    if not is_so:
        failures += 1
        print(f"FAILED: {what}")


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, **more)


def wait_for(what, ask, seconds=120):
    """Asks until there is an answer; a machine may be as slow as it likes within two minutes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            answer = ask()
        except (OSError, http.client.HTTPException, ValueError):
            answer = None
        if answer:
            return answer
        time.sleep(0.1)
    raise SystemExit(f"{what} did not come within {seconds} s")


class Margay:
    def __init__(self, folder):
        self.data = folder / "data"
        self.port, self.admin = free_port(), free_port()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("MARGAY_", "AWS_"))}
        self.environment |= {"MARGAY_ACCESS_KEY": ACCESS, "MARGAY_SECRET_KEY": SECRET}
        tls = HERE / "fixtures/tls"
        command = [BINARY, "serve", "--data", self.data, "--address", f"127.0.0.1:{self.port}"]
        command += ["--admin-address", f"127.0.0.1:{self.admin}", "--set", "limits.check_interval=1"]
        command += ["--tls-certificate", tls / "first.pem", "--tls-key", tls / "first.key.pem"]
        command += ["--disk", folder / "d1", "--disk", folder / "d2", "--copies", "2"]
        command += ["--set", "notify=hook=http://127.0.0.1:9/"]
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(command, env=self.environment, stdout=self.log, stderr=self.log)
        self.host = f"127.0.0.1:{self.port}"
        wait_for("the server", lambda: self.page("/health"))

    def page(self, path):
        if self.process.poll() is not None:
            raise SystemExit(f"the server ended with {self.process.returncode}")
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=60) as answer:
            return answer.read().decode()

    def request(self, method, path, body=b""):
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        connection.request(method, path, body, sign.headers(method, self.host, path, "", ACCESS, SECRET))
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def command(self, *words):
        done = run(BINARY, *words, "--data", str(self.data), env=self.environment)
        if done.returncode:
            raise SystemExit(f"{words}: {done.stderr}")
        return done.stdout

    def ask_socket(self, path, body):
        """A work that no command asks a running server for."""
        import socket

        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(self.data / "control"))
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
            stream.sendall(head.encode() + body)
            while stream.recv(65536):
                pass

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def expressions():
    """The expressions of the rules and of the board, each with its source."""
    found = []
    rules = run("promtool", "check", "rules", str(RULES))
    check(rules.returncode == 0, f"promtool check rules: {rules.stdout}{rules.stderr}")
    for block in RULES.read_text().split("- alert: ")[1:]:
        name = block.split("\n", 1)[0]
        expr = re.search(r"expr: (?:>-\n((?:          .*\n)+)|(.*)\n)", block)
        found.append((f"alert {name}", " ".join((expr[1] or expr[2]).split())))
    board = json.loads(BOARD.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            found.append((f"panel {panel['title']}", target["expr"]))
    return found


def names_on(page):
    """Families and samples of a page."""
    names = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}
    return names | {re.split(r"[{ ]", line)[0] for line in page.splitlines() if line and line[0] != "#"}


def check_page(page):
    lint = run("promtool", "check", "metrics", input=page)
    check(lint.returncode == 0, f"promtool check metrics: {lint.stderr}{lint.stdout}")
    for name in ("margay_data_free_bytes", "margay_data_total_bytes", "process_cpu_seconds_total", "process_open_fds",
                 "margay_certificate_expiry_timestamp_seconds", "margay_scrub_timestamp_seconds", "margay_buckets"):
        value = next((line.split()[1] for line in page.splitlines() if line.startswith(name + " ")), "0")
        check(float(value) > 0, f"{name} is {value}")
    for line in ('margay_bucket_bytes{bucket="photos"} 5', 'margay_bucket_objects{bucket="photos"} 1',
                 'margay_bucket_quota_bytes{bucket="photos"} 1048576', "margay_scrub_damaged 0",
                 "margay_fsck_findings 0"):
        check(line in page.splitlines(), f"the page lacks {line}")
    documented = (ROOT / "docs/operations.md").read_text() + (ROOT / "docs/administration.md").read_text()
    for name in sorted(names_on(page)):
        if name.startswith("margay_bucket") or name.startswith(("margay_data_", "margay_scrub_", "margay_fsck_")):
            check(name in documented, f"{name} is not documented")


def check_reference(page):
    """docs/reference/metrics.md, which is read out of the sources, has each family of a real page: type and labels."""
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| (\w+) \| (.*?) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.M)
    known = {name: (kind, set(re.findall("`([a-z_]+)`", labels))) for name, kind, labels in rows}
    kinds = dict(line.split()[2:4] for line in page.splitlines() if line.startswith("# TYPE "))
    check(len(kinds) > 60, f"a page of {len(kinds)} families")
    for name, kind in kinds.items():
        check(known.get(name, ("",))[0] == kind, f"the reference says of {name}: {known.get(name)}, it is a {kind}")
    for line in page.splitlines():
        sample = re.match(r"([a-z0-9_]+)(?:\{(.*)\})? ", line)
        if sample and line[0] != "#":
            name = sample[1] if sample[1] in kinds else re.sub("_(bucket|sum|count)$", "", sample[1])
            labels = set(re.findall(r'([a-z_]+)="', sample[2] or "")) - {"le"}
            check(name in known and known[name][1] == labels, f"the reference says of {name}: {known.get(name)}, a sample is {line}")


def check_prometheus(margay, folder, found):
    """A real Prometheus scrapes the server and answers every expression."""
    port = free_port()
    shutil.copy(RULES, folder)
    config = (ROOT / "packaging/prometheus/prometheus.yml").read_text()
    config = config.replace("127.0.0.1:9001", f"127.0.0.1:{margay.admin}").replace("15s", "1s")
    (folder / "prometheus.yml").write_text(config)
    words = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with open(folder / "prometheus.log", "wb") as log:
        prometheus = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        def query(expr):
            url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
            try:
                with urllib.request.urlopen(url, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                return json.load(error)

        wait_for("a scrape", lambda: query('up{job="margay"} == 1')["data"]["result"])
        # A rate needs two of them that were answered.
        wait_for("two scrapes", lambda: query('sum_over_time(up{job="margay"}[5m]) >= 3')["data"]["result"])
        for source, expr in found:
            expr = expr.replace("$__rate_interval", "5m").replace("$job", "margay").replace("$instance", ".*")
            answer = query(expr)
            check(answer["status"] == "success", f"{source}: {expr}: {answer.get('error')}")
            shows = any(word in expr for word in ("margay_mount_", "margay_disk_lost", "histogram_quantile"))
            if source.startswith("panel") and not shows:
                end = time.monotonic() + LATE_SECONDS
                while not answer.get("data", {}).get("result") and time.monotonic() < end:
                    # A scrape that a busy machine did not answer in its second takes the values away until the next one.
                    time.sleep(0.2)
                    answer = query(expr)
                check(answer.get("data", {}).get("result"), f"{source} shows nothing: {expr}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/rules", timeout=60) as answer:
            rules = json.load(answer)["data"]["groups"][0]["rules"]
        check(len(rules) > 10 and all(rule["health"] != "err" for rule in rules), f"rules of a running Prometheus: {rules}")
        firing = query('ALERTS{alertstate="firing"}')["data"]["result"]
        check(not firing, f"alerts of a server that is well: {firing}")
    finally:
        prometheus.terminate()
        prometheus.wait()


def main():
    for tool in ("promtool", "prometheus"):
        if not shutil.which(tool):
            print(f"skipped: watching, because {tool} is not there (Debian: apt install prometheus)")
            return 0
    with tempfile.TemporaryDirectory(prefix="margay-watching-") as folder:
        folder = Path(folder)
        margay = Margay(folder)
        try:
            check(margay.request("PUT", "/photos") == 200, "a bucket")
            check(margay.request("PUT", "/photos/one", b"12345") == 200, "an object")
            check(margay.request("GET", "/photos/none") == 404, "no object")
            margay.command("bucket", "quota", "photos", "--bytes", "1MiB", "--objects", "10")
            margay.command("scrub")
            margay.ask_socket("/fsck", b"{}")
            page = wait_for("the check of all rows",
                            lambda: (lambda page: page if "margay_check_findings" in page
                                     and 'quota_bytes{bucket="photos"}' in page else None)(margay.page("/metrics")))
            check_page(page)
            check_reference(page)
            found = expressions()
            known = names_on(page) | OWN | OF_MOUNTS
            for source, expr in found:
                for name in WORDS.findall(expr):
                    check(name in known, f"{source} names {name}, which the server does not have")
            tests = run("promtool", "test", "rules", RULES.with_suffix(".test.yml").name, cwd=RULES.parent)
            check(tests.returncode == 0, f"promtool test rules: {tests.stdout}{tests.stderr}")
            check_prometheus(margay, folder, found)
        finally:
            margay.stop()
    verdict = "FAILED, " if failures else ""
    print(f"client watching: {verdict}" + (f"{checks - failures} of {checks} checks" if failures else f"{checks} checks passed"))
    print(f"evidence: promtool and a running Prometheus take the metrics, {len(found)} expressions of rules and board")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
