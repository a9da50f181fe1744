"""A real margay server, and what the goal programs beside this file do with it. Standard library only.

MARGAY_BIN names the program (default: target/release/margay), TMPDIR where data goes. A goal program prints its
figures as it goes, then one line per goal, and ends with 4 when a goal was missed.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import sign  # noqa: E402
from ports import free_port  # noqa: E402

BINARY = os.environ.get("MARGAY_BIN") or str(
    pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "margay"
)
ACCESS, SECRET = "GOALSGOALSGOALSGOALS", "goals/secret+goals/secret+goals/secret+g"
MOUNT_SECONDS = 10
MISSED = []


def median(values):
    return sorted(values)[len(values) // 2]


def permille(values, share):
    return sorted(values)[min(len(values) - 1, len(values) * share // 1000)]


def goal(text, reached):
    """Prints one goal and whether it was reached."""
    print(f"{'reached' if reached else 'MISSED '}  {text}", flush=True)
    if not reached:
        MISSED.append(text)


def finish():
    sys.exit(4 if MISSED else 0)


def evict(folder):
    """Takes the synced pages of all files below out of the page cache."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file() and not path.is_symlink():
            handle = os.open(path, os.O_RDONLY)
            os.fdatasync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


class Server:
    """One `margay serve` on ports of its own."""

    def __init__(self, data, *options, binary=BINARY, address="127.0.0.1", before=()):
        """`address`: of this machine, or of a network namespace that the words `before` lead into."""
        self.data, self.options, self.binary, self.address, self.before = str(data), options, binary, address, before
        self.port, self.admin_port = free_port(), free_port()
        self.host = f"{address}:{self.port}"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("MARGAY_", "AWS_"))}
        self.environment |= {"MARGAY_ACCESS_KEY": ACCESS, "MARGAY_SECRET_KEY": SECRET}
        self.process = None

    def spawn(self):
        command = [*self.before, self.binary, "serve", "--data", self.data, "--address", self.host]
        command += ["--admin-address", f"127.0.0.1:{self.admin_port}", *self.options]
        with open(self.data + ".log", "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start(self):
        """Starts and waits for the first signed answer."""
        self.spawn()
        self.until_answer("GET", "/")
        return self

    def until_answer(self, method, path):
        """Asks until there is a 200; gives the time of that answer."""
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}; see {self.data}.log")
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, _ = self.request(method, path)
                if status == 200:
                    return time.monotonic()
            time.sleep(0.002)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def appears(self, mount):
        """Whether the mount is there within some seconds; it comes after the server's first answers."""
        end = time.monotonic() + MOUNT_SECONDS
        while not os.path.ismount(mount) and time.monotonic() < end:
            time.sleep(0.05)
        return os.path.ismount(mount)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def head(self, method, path, length=0):
        """The head of a signed request as bytes."""
        lines = sign.headers(method, self.host, path, "", ACCESS, SECRET) | {"content-length": str(length)}
        return (f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n").encode()

    def connect(self):
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def request(self, method, path, body=b""):
        """One signed request on a connection of its own; gives status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, sign.headers(method, self.host, path, "", ACCESS, SECRET))
        answer = connection.getresponse()
        outcome = answer.status, answer.read()
        connection.close()
        return outcome

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def memory(self):
        """Resident memory now and at most so far, in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        kilobytes = {line.split(":")[0]: line.split()[1] for line in status if line.startswith("Vm")}
        return int(kilobytes["VmRSS"]) / 1024, int(kilobytes["VmHWM"]) / 1024

    def command(self, *arguments):
        """Begins a margay command that knows this server."""
        command = [BINARY, *arguments]
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def bench(self, *arguments):
        """Runs a benchmark against this server; gives its report."""
        process = self.command("bench", *arguments, "--endpoint", f"http://{self.host}", "--json")
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"margay bench {' '.join(arguments)} ended with {process.returncode}")
        return json.loads(output)


@contextlib.contextmanager
def serving(*options):
    """A server on a new directory; both are gone afterwards."""
    folder = tempfile.mkdtemp(prefix="margay-goals.")
    server = Server(os.path.join(folder, "data"), *options)
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder)


class SyncProbe:
    """Times an fdatasync of 4 KiB in a folder every 10 ms until stopped; milliseconds."""

    def __init__(self, folder):
        self.times, self.ended = [], threading.Event()
        self.path = os.path.join(folder, "sync-probe")
        self.thread = threading.Thread(target=self.run)

    def run(self):
        handle = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600)
        while not self.ended.wait(0.01):
            began = time.monotonic()
            os.pwrite(handle, b"x" * 4096, 4096 * (len(self.times) % 1000))
            os.fdatasync(handle)
            self.times.append(1000 * (time.monotonic() - began))
        os.close(handle)
        os.remove(self.path)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
