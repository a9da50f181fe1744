"""`ls` beside idle connections and slow-loris clients: python3 tests/goals/idle.py [IDLE] [LORIS] [ROUNDS]

Goal: with 10,000 idle connections and 100 clients that send a request's head byte by byte, at most 64 MiB of memory
more, and pages of a 10,000-key prefix at most 1.5x slower. Needs about 2 x IDLE open files in all.
"""

import contextlib
import resource
import selectors
import sys
import threading
import time

from server import finish, goal, median, serving

IDLE = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
LORIS = int(sys.argv[2]) if len(sys.argv) > 2 else 100
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
HEAD = b"GET /-/health HTTP/1.1\r\nhost: goals\r\n" + b"".join(b"x-slow-%d: loris\r\n" % n for n in range(1000))
LIST = ["ls", "--keys", "10000", "--no-s3cmd", "--samples", "100", "--runs", "5"]


class Crowd:
    """The idle connections and the slow clients; one that is cut off comes again at once."""

    def __init__(self, server):
        self.server, self.ended, self.again = server, threading.Event(), 0
        self.selector = selectors.DefaultSelector()
        self.sent = {}
        for number in range(IDLE + LORIS):
            self.join(number < LORIS)
        self.thread = threading.Thread(target=self.run)

    def join(self, slow):
        stream = self.server.connect()
        if not slow:
            # Idle after a request, as a kept-alive client is.
            stream.sendall(b"GET /-/health HTTP/1.1\r\nhost: goals\r\n\r\n")
            stream.recv(4096)
        stream.setblocking(False)
        self.selector.register(stream, selectors.EVENT_READ, slow)
        if slow:
            self.sent[stream] = 0

    def run(self):
        while not self.ended.wait(0.5):
            for key, _ in self.selector.select(0):
                # Nothing is due to them: this is the end of the connection, or the answer before it.
                self.leave(key.fileobj)
                self.join(key.data)
                self.again += 1
            for stream, at in list(self.sent.items()):
                with contextlib.suppress(OSError):
                    self.sent[stream] = at + stream.send(HEAD[at : at + 1])

    def leave(self, stream):
        self.selector.unregister(stream)
        self.sent.pop(stream, None)
        stream.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            self.leave(key.fileobj)


def listing(server):
    """Median of a middle page and of all pages, in ms."""
    prefix = server.bench(*LIST)["prefixes"][0]
    return median([row["page_time"]["median_ms"] for row in prefix["pages"]]), prefix["whole_ms"]


_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
with serving() as server:
    listing(server)
    times, more = {"alone": [], "beside": []}, []
    for _ in range(ROUNDS):
        times["alone"].append(listing(server))
        time.sleep(1)
        before = server.memory()[0]
        with Crowd(server) as crowd:
            time.sleep(1)
            more.append(server.memory()[0] - before)
            times["beside"].append(listing(server))
            connections = server.metrics()["margay_connections"]
            print(f"{connections:.0f} connections, {crowd.again} came again; memory {before:.0f} + {more[-1]:.0f} MiB; page "
                  f"{times['alone'][-1][0]:.3f} ms alone, {times['beside'][-1][0]:.3f} beside; whole "
                  f"{times['alone'][-1][1]:.1f} ms alone, {times['beside'][-1][1]:.1f} beside", flush=True)
        if connections < IDLE + LORIS:
            raise SystemExit(f"only {connections:.0f} connections were open")
    page, whole = (median([b[i] for b in times["beside"]]) / median([a[i] for a in times["alone"]]) for i in (0, 1))
    goal(f"ls beside {IDLE} idle connections and {LORIS} slow clients: page {page:.2f}x, whole {whole:.2f}x (at most 1.5)",
         page <= 1.5 and whole <= 1.5)
    goal(f"{IDLE} idle connections and {LORIS} slow clients: {max(more):.0f} MiB more (at most 64)", max(more) <= 64)
finish()
