"""Reclaim at its most aggressive beside a server of a shell script: beside.py DATA, until it is told to end (SIGTERM).

At random moments it asks the server of DATA, by its control socket, to fold its log and give back all dead space, and now and then to
scrub. A server that is gone is asked again when there is another one. Ends with 1 when a server found something wrong:
damage, a segment that was called dead wrongly, findings of a check. `beside.py DATA --once` only asks for that. Standard library only.
"""

import http.client
import json
import os
import random
import re
import signal
import socket
import sys
import time

NEVER = ("check_findings", "quarantine_disputed_total", "reclaim_damaged_runs_total", "reclaim_failed_total")
PAUSE_SECONDS = 0.3
# Asking takes at most this share of the time, so that a test with very many files goes on.
SHARE = 0.3


class Control(http.client.HTTPConnection):
    """A connection to the control socket of a data directory."""

    def __init__(self, data):
        super().__init__("margay", timeout=300)
        self.path = os.path.join(data, "control")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Wrong(Exception):
    """A server found something, or says no."""


def ask(data, method, path):
    """The answer, or None when there is no server, or it went meanwhile."""
    control = Control(data)
    try:
        control.request(method, path)
        answer = control.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        control.close()
    if answer.status != 200:
        raise Wrong(f"{method} {path}: {answer.status} {text}")
    return text


def look(data):
    """Whether there is a server; it must not have found anything."""
    text = ask(data, "GET", "/metrics") or ""
    values = dict(re.findall(r"^margay_(\w+) (\d+)$", text, re.M))
    if wrong := [f"{name} is {values[name]}" for name in NEVER if int(values.get(name, 0))]:
        raise Wrong(f"the server of {data}: {wrong}")
    return bool(text)


def orders(data, ended):
    """Gives them until `ended()`; what was done."""
    count = {"moved_bytes": 0, "removed_segments": 0}
    while not ended():
        begun, work = time.monotonic(), "compact" if random.random() < 0.9 else "scrub"
        text = ask(data, "POST", f"/{work}")
        done = json.loads(text) if text else {}
        if any(done.get(name) for name in ("damaged", "damaged_runs", "disputed_segments")):
            raise Wrong(f"{work}: {done}")
        for name in count:
            count[name] += done.get(name, 0)
        look(data)
        time.sleep(max(random.uniform(0, PAUSE_SECONDS), (time.monotonic() - begun) * (1 / SHARE - 1)))
    return count


def main(data, once):
    if once:
        return None if look(data) else f"no server runs on {data}"
    ends = []
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    count = orders(data, lambda: ends)
    print(f"beside it: {count['moved_bytes'] >> 10} KiB moved, {count['removed_segments']} segments removed by order")
    return None if count["moved_bytes"] and count["removed_segments"] else "reclaim had nothing to do: this shows nothing"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], "--once" in sys.argv))
    except Wrong as wrong:
        sys.exit(str(wrong))
