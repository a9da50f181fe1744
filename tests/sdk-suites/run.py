#!/usr/bin/env python3
"""Functional tests of MinIO's SDKs, and those of mint, against a margay of its own: tests/sdk-suites/run.py SUITE.

SUITE and the variable that names its checkout, of which nothing is kept or built here; it must lie there ready to run, as its own
documents say:
  minio-go    MINIO_GO    the functional tests built, as `functional_tests`
  minio-py    MINIO_PY    nothing to build
  minio-js    MINIO_JS    its npm packages installed
  minio-java  MINIO_JAVA  the SDK and its functional tests compiled, in `classes`, with the jars that they need in `lib`
  mint        MINT        the programs of run/core built; a part that is not built is skipped, and says so
MARGAY_BIN names the program to test (default: target/release/margay). SDK_SUITES_KEEP=DIR keeps outcomes and logs there.
What fails must stand in SUITE.txt beside this file with its reason; what stands there must fail. Only PASS is a pass.
"""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "s3-tests"))
from compare import read_known  # noqa: E402

sys.path.insert(0, str(HERE.parent))
from ports import free_port  # noqa: E402

ACCESS, SECRET = "SDKSUITESSDKSUITES00", "sdk-suites-secret-sdk-suites-secret-0000"
# A suite that hangs is ended after so many seconds, and its cases that did not run fail.
SUITE_SECONDS_MAX = 3600
COMMITS = {
    "minio-go": "e9f656c5c1d1ae3571970eb46c3005375530f049",
    "minio-py": "c8f6ef3dbe06e2907f8d56e7e4187a56c132c53b",
    "minio-js": "9e59f4dfbad9e1942ea7b13468a2db33d357d40f",
    "minio-java": "942e2e5908929aae113cafbb38f26bb071138f6e",
    "mint": "c3910db67eff57511c106e507a425e59c57090aa",
}
DATA = {"0-b": 0, "1-b": 1, "1-kB": 1024, "10-kB": 10240, "33-kB": 33792, "100-kB": 102400, "1-MB": 1 << 20, "1.03-MB": 1056 << 10,
        "5-MB": 5 << 20, "6-MB": 6 << 20, "10-MB": 10 << 20, "11-MB": 11 << 20, "65-MB": 65 << 20, "129-MB": 129 << 20}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RANK = {"PASS": 0, "NA": 1, "FAIL": 2}


class Outcomes:
    """The worst that was said of each case, and why."""

    def __init__(self):
        self.cases = {}

    def add(self, case, status, why=""):
        before = self.cases.get(case, ("PASS", ""))
        why = " ".join(str(why).split())[:300]
        self.cases[case] = max(before, (status, why), key=lambda one: RANK[one[0]])

    def add_mint(self, path, name=None):
        """Lines of mint's form; `name` makes the case of a line."""
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                said = json.loads(line)
                status = said["status"].upper()
            except (ValueError, KeyError, TypeError):
                continue
            why = " ".join(str(said[key]) for key in ("alert", "message", "error") if said.get(key))
            self.add(name(said), "FAIL" if status not in RANK else status, why)


# --- the server ---------------------------------------------------------------------------------------------------


def make_certificates(at):
    """An authority and a certificate for this machine: SDKs send customers' keys over TLS only."""
    new = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run = lambda *command: subprocess.run(command, cwd=at, check=True, capture_output=True)
    run(*new, "-x509", "-days", "2", "-subj", "/CN=sdk suites", "-addext", "basicConstraints=critical,CA:TRUE",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", "ca.key", "-out", "ca.pem")
    run(*new, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    (at / "server.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n")
    run("openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "server.ext", "-out", "server.pem")


class Server:
    def __init__(self, work):
        program = Path(os.environ.get("MARGAY_BIN") or ROOT / "target/release/margay")
        if not os.access(program, os.X_OK):
            sys.exit(f"there is no {program}; build it, or set MARGAY_BIN")
        make_certificates(work)
        (work / "data").mkdir()
        # The second key is that of SSE-KMS.
        (work / "data/encryption-keys").write_text(f"{'01' * 32}\nsdk-suites-key {'02' * 32}\n")
        self.host = f"127.0.0.1:{free_port()}"
        self.authority, self.log = work / "ca.pem", work / "server.log"
        settings = {name: value for name, value in os.environ.items() if not name.startswith("MARGAY_")}
        settings |= {"MARGAY_ACCESS_KEY": ACCESS, "MARGAY_SECRET_KEY": SECRET}
        command = [program, "serve", "--data", work / "data", "--address", self.host, "--admin-address", "off",
                   "--tls-certificate", work / "server.pem", "--tls-key", work / "server.key"]
        self.process = subprocess.Popen(command, env=settings, stdin=subprocess.DEVNULL, stdout=self.log.open("wb"), stderr=subprocess.STDOUT)
        trusting = ssl.create_default_context(cafile=str(self.authority))
        for _ in range(600):
            try:
                urllib.request.urlopen(f"https://{self.host}/-/health", context=trusting).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.2)
        sys.exit(f"the server did not start:\n{self.log.read_text()[-2000:]}")

    def stop(self):
        alive = self.process.poll() is None
        self.process.terminate()
        self.process.wait()
        return alive


# --- the suites ---------------------------------------------------------------------------------------------------


class Run:
    """One suite: where it lies, what it is started with, what became of it."""

    def __init__(self, suite, checkout, server, work):
        self.suite, self.checkout, self.server, self.work = suite, checkout, server, work
        self.outcomes = Outcomes()
        data = work / "files"
        data.mkdir()
        for name, size in DATA.items():
            with (data / f"datafile-{name}").open("wb") as file:
                file.write(os.urandom(min(size, 1 << 20)) * (size >> 20 or 1))
                file.truncate(size)
        self.environment = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY") and not name.startswith("AWS_")}
        self.environment |= {
            "SERVER_ENDPOINT": server.host, "ACCESS_KEY": ACCESS, "SECRET_KEY": SECRET, "ENABLE_HTTPS": "1", "ENABLE_VIRTUAL_STYLE": "0", "MINT_MODE": "full",
            "RUN_ON_FAIL": "1", "SERVER_REGION": "us-east-1", "MINT_DATA_DIR": str(data), "DATA_DIR": str(data), "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "SSL_CERT_FILE": str(server.authority), "AWS_CA_BUNDLE": str(server.authority), "REQUESTS_CA_BUNDLE": str(server.authority),
            "NODE_EXTRA_CA_CERTS": str(server.authority), "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self, label, *command, at=None, **more):
        """Runs a program of the suite; its output is the file LABEL.out."""
        output = self.work / f"{label}.out"
        here = at or self.work / label
        here.mkdir(exist_ok=True)
        with output.open("wb") as out, (self.work / f"{label}.err").open("wb") as errors:
            try:
                status = subprocess.run([str(word) for word in command], cwd=here, env=self.environment | more, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                        timeout=SUITE_SECONDS_MAX).returncode
            except subprocess.TimeoutExpired:
                print(f"{self.suite}: {label} did not end in {SUITE_SECONDS_MAX} s")
                status = None
        print(f"{self.suite}: {label} ended with {status}")
        return output

    def ready(self, path):
        return path.exists() or sys.exit(f"{self.suite}: {path} is not there: the checkout is not built, or its packages are not installed")

    def minio_go(self):
        self.ready(self.checkout / "functional_tests")
        # With files of chance it would compare checksums of other bytes.
        output = self.start("minio-go", self.checkout / "functional_tests", MINT_DATA_DIR="")
        self.outcomes.add_mint(output, lambda said: said["name"].split(": ")[-1])

    def minio_py(self):
        output = self.start("minio-py", python(), self.checkout / "tests/functional/tests.py", PYTHONPATH=str(self.checkout))
        self.outcomes.add_mint(output, lambda said: said["name"].split(":")[-1])

    def minio_js(self):
        mocha = self.checkout / "node_modules/.bin/mocha"
        self.ready(mocha)
        report = self.work / "mocha.json"
        self.start("minio-js", mocha, "--no-config", "--exit", "-r", "dotenv/config", "-r", "source-map-support/register", "-r", "./babel-register.js",
                   "--reporter", "json", "--reporter-option", f"output={report}", "tests/functional/functional-tests.js", at=self.checkout)
        said = json.loads(report.read_text(encoding="utf-8"))
        for kind, status in (("passes", "PASS"), ("pending", "NA"), ("failures", "FAIL")):
            for test in said[kind]:
                # The names of buckets and objects are chance; mocha names a failed hook in a test of its own.
                title = UUID.sub("*", " ".join(test["fullTitle"].split())).removeprefix("functional tests ")
                title = re.sub(r"_bucketName.*|, ?(_?objectName|_?bucketName|fileName|filePath|_?metaData).*", "", title, flags=re.IGNORECASE)
                self.outcomes.add(re.sub(r"\d{10,}", "*", title)[:160].rstrip(" #").replace(" ", "_"), status, test["err"].get("message", "not run, as a step before it failed"))

    def minio_java(self):
        self.ready(self.checkout / "classes/TestMinioClient.class")
        output = self.start("minio-java", "java", "-Xmx1g", "-cp", f"{self.checkout}/lib/*:{self.checkout}/classes", HERE / "EachMethod.java",
                            f"https://{self.server.host}", ACCESS, SECRET, "us-east-1", MINIO_JAVA_TEST_KMS_KEY_NAME="sdk-suites-key")
        self.outcomes.add_mint(output, lambda said: said.get("method") or said["function"].split("(")[0])

    def mint(self):
        core, site = self.checkout / "run/core", python()
        endpoint = f"https://{self.server.host}"
        programs = {
            "aws-sdk-go-v2": [core / "aws-sdk-go-v2/aws-sdk-go-v2"],
            "aws-sdk-java-v2": ["java", "-jar", core / "aws-sdk-java-v2/FunctionalTests.jar"],
            "aws-sdk-php": ["php", core / "aws-sdk-php/quick-tests.php", core / "aws-sdk-php/vendor/autoload.php"],
            "aws-sdk-ruby": ["ruby", core / "aws-sdk-ruby/aws-stub-tests.rb"],
            "s3select": [site, core / "s3select/tests.py"],
            "versioning": [core / "versioning/tests"],
        }
        for name, command in programs.items():
            absent = [str(word) for word in command if isinstance(word, Path) and not word.exists()]
            absent += [command[0]] if not shutil.which(str(command[0])) else []
            if absent:
                print(f"skipped: mint {name}, because {', '.join(absent)} is not there")
                continue
            command = [word for word in command if not str(word).endswith("autoload.php")]
            at = core / name if name in ("aws-sdk-php", "s3select") else None
            output = self.start(name, *command, at=at, ENDPOINT=endpoint)
            errors = (self.work / f"{name}.err").read_text(errors="replace")
            lacking = re.search(r"cannot load such file -- \S+|No module named \S+|ClassNotFoundException: \S+", errors)
            if lacking and not output.stat().st_size:
                print(f"skipped: mint {name}, because of its packages: {lacking[0]}")
                continue
            before = len(self.outcomes.cases)
            # The parts in Python say the case beside their own name, the others say the function called.
            case = lambda said: said["name"].split(":")[1] if ":" in said["name"] else said["function"]
            self.outcomes.add_mint(output, lambda said: re.sub(r"\s+", "", f"{name}/{case(said)}"))
            if len(self.outcomes.cases) == before:
                self.outcomes.add(f"{name}/starts", "FAIL", errors[-300:])


def python():
    """An environment with what the Python suites import."""
    venv, wanted = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "sdk-suites-venv", HERE / "requirements.txt"
    stamp = venv / "requirements.txt"
    if not stamp.exists() or stamp.read_bytes() != wanted.read_bytes():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted], check=True)
        shutil.copy(wanted, stamp)
    return venv / "bin/python"


def compare(suite, cases, known, partial):
    """Says what is unexpected; the number of surprises."""
    passed = {case for case, (status, _) in cases.items() if status == "PASS"}
    surprises = [f"fails, and is not in the list: {case}: {cases[case][0]}: {cases[case][1]}" for case in sorted(cases.keys() - passed - known.keys())]
    surprises += [f"passes now, remove it from the list: {case}" for case in sorted(passed & known.keys())]
    if not partial:
        surprises += [f"is in the list, and did not run: {case}" for case in sorted(known.keys() - cases.keys()) if not known[case].startswith("not reached")]
    for surprise in surprises:
        print(f"{suite}: {surprise}")
    share = 100 * len(passed) / len(cases)
    print(f"{suite}: {len(passed)} of {len(cases)} cases pass ({share:.1f} %), {len(surprises)} unexpected")
    print(f"evidence: {suite}: {len(passed)} of {len(cases)} cases ({share:.1f} %), what is not implemented counted as failed")
    return len(surprises)


def main(suite):
    if suite not in COMMITS:
        sys.exit(f"unknown suite {suite}; there are: {' '.join(COMMITS)}")
    variable = suite.upper().replace("-", "_")
    if not os.environ.get(variable):
        print(f"skipped: {suite}, because {variable} names no checkout of github.com/minio/{suite}")
        return 0
    checkout = Path(os.environ[variable]).resolve()
    at = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    if at != COMMITS[suite]:
        print(f"the checkout is at {at or 'an unknown commit'}, the list of failures is for {COMMITS[suite]}")
    work = Path(tempfile.mkdtemp(prefix="margay-sdk-suites."))
    try:
        server = Server(work)
        run = Run(suite, checkout, server, work)
        try:
            getattr(run, suite.replace("-", "_"))()
        finally:
            if not server.stop():
                run.outcomes.add("the server lives", "FAIL", server.log.read_text(errors="replace")[-300:])
        cases = run.outcomes.cases
        (work / "outcomes.tsv").write_text("".join(f"{status}\t{case}\t{why}\n" for case, (status, why) in sorted(cases.items())), encoding="utf-8")
        if not cases:
            sys.exit(f"{suite}: no case ran")
        parts = {case.split("/")[0] for case in cases}
        known = read_known(HERE / f"{suite}.txt")
        if suite == "mint":
            known = {case: why for case, why in known.items() if case.split("/")[0] in parts}
        return 1 if compare(suite, cases, known, partial=False) else 0
    finally:
        if os.environ.get("SDK_SUITES_KEEP"):
            kept = Path(os.environ["SDK_SUITES_KEEP"])
            kept.mkdir(parents=True, exist_ok=True)
            for file in [*work.glob("*.tsv"), *work.glob("*.out"), *work.glob("*.err"), *work.glob("*.log")]:
                shutil.copy(file, kept)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 2 else __doc__)
