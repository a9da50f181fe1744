"""PUT and GET of 64 MiB against MD5 and the disk, and memory with 64 uploads of 1 GiB at once.

python3 tests/goals/large.py [ROUNDS] [MEBIBYTES]

Goals: at least 70 % of what the disk or MD5 allows, on one connection; resident memory below 200 MiB. Each round times,
in turn: MD5 of the bytes on one core; a write and fdatasync of a file of that size; PUT; a read of such a file that is
not in the page cache; GET of an object that is not. The uploads all go on side by side until each has sent MEBIBYTES
(256), then end. Each announces 1 GiB; space is reserved for what is announced, so on a disk without 64 GiB it is less.
"""

import hashlib
import os
import selectors
import shutil
import sys
import threading
import time

from server import evict, finish, goal, median, serving

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
SENT_BYTES = (int(sys.argv[2]) if len(sys.argv) > 2 else 256) << 20
SIZE, PIECE, UPLOADS = 64 << 20, 1 << 20, 64
BODY = os.urandom(SIZE)


def timed(work, *arguments):
    """MB/s of something done with 64 MiB."""
    began = time.monotonic()
    work(*arguments)
    return SIZE / (time.monotonic() - began) / 1e6


def write(path):
    with open(path, "wb", buffering=0) as file:
        for at in range(0, SIZE, PIECE):
            file.write(BODY[at : at + PIECE])
        os.fdatasync(file.fileno())


def read(path):
    buffer = bytearray(PIECE)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def answer_head(stream):
    """Reads to the end of an answer's head; gives what came of the body."""
    text = b""
    while b"\r\n\r\n" not in text:
        piece = stream.recv(65536)
        if not piece:
            raise SystemExit(f"no answer: {text}")
        text += piece
    if not text.startswith(b"HTTP/1.1 200"):
        raise SystemExit(text.decode())
    return text.partition(b"\r\n\r\n")[2]


def put(server, stream, path):
    stream.sendall(server.head("PUT", path, SIZE))
    stream.sendall(BODY)
    answer_head(stream)


def get(server, stream, path):
    stream.sendall(server.head("GET", path))
    left = SIZE - len(answer_head(stream))
    buffer = bytearray(PIECE)
    while left:
        count = stream.recv_into(buffer)
        if not count:
            raise SystemExit("the object ends early")
        left -= count


def rounds(server):
    folder = os.path.dirname(server.data)
    plain = os.path.join(folder, "plain")
    server.request("PUT", "/large")
    rates = {name: [] for name in ("md5", "write", "put", "read", "get", "get_cached")}
    with server.connect() as stream:
        put(server, stream, "/large/warm")
        for number in range(ROUNDS):
            path = f"/large/{number}"
            rates["md5"].append(timed(lambda: hashlib.md5(BODY).digest()))
            rates["write"].append(timed(write, plain))
            rates["put"].append(timed(put, server, stream, path))
            evict(folder)
            rates["read"].append(timed(read, plain))
            rates["get"].append(timed(get, server, stream, path))
            rates["get_cached"].append(timed(get, server, stream, path))
            print(", ".join(f"{name} {values[-1]:.0f}" for name, values in rates.items()), "MB/s", flush=True)
    return {name: median(values) for name, values in rates.items()}


def uploads(server):
    """Peak resident memory, in MiB, of 64 uploads that all go on at the same time."""
    selector, sent = selectors.DefaultSelector(), {}
    announced = min(1 << 30, shutil.disk_usage(os.path.dirname(server.data)).free * 9 // 10 // UPLOADS)
    for number in range(UPLOADS):
        stream = server.connect()
        stream.sendall(server.head("PUT", f"/large/upload-{number}", announced))
        stream.setblocking(False)
        sent[stream] = 0
        selector.register(stream, selectors.EVENT_WRITE)
    view, peak, ended, began = memoryview(BODY), [0.0], threading.Event(), time.monotonic()

    def sample():
        while not ended.wait(0.05):
            peak[0] = max(peak[0], server.memory()[0])

    sampler = threading.Thread(target=sample)
    sampler.start()
    while selector.get_map():
        for key, _ in selector.select():
            stream = key.fileobj
            at = sent[stream] % SIZE
            sent[stream] += stream.send(view[at : at + PIECE])
            if sent[stream] >= SENT_BYTES:
                selector.unregister(stream)
    seconds = time.monotonic() - began
    ended.set()
    sampler.join()
    running = server.metrics()["margay_requests_running"]
    print(f"{running:.0f} uploads of {announced >> 20} MiB running, {sum(sent.values()) / 1e9:.1f} GB sent at "
          f"{sum(sent.values()) / seconds / 1e6:.0f} MB/s, peak {peak[0]:.0f} MiB (ever {server.memory()[1]:.0f})")
    if running < UPLOADS:
        raise SystemExit("not all uploads were running at the end")
    for stream in sent:
        stream.close()
    return peak[0]


with serving() as server:
    rate = rounds(server)
    floor = min(rate["md5"], rate["write"])
    goal(f"PUT 64 MiB: {rate['put']:.0f} MB/s of {floor:.0f} (MD5 {rate['md5']:.0f}, write and fdatasync "
         f"{rate['write']:.0f}): {100 * rate['put'] / floor:.0f} % (at least 70)", rate["put"] >= 0.7 * floor)
    goal(f"GET 64 MiB from the disk: {rate['get']:.0f} MB/s of {rate['read']:.0f}: "
         f"{100 * rate['get'] / rate['read']:.0f} % (at least 70); from the page cache {rate['get_cached']:.0f} MB/s",
         rate["get"] >= 0.7 * rate["read"])
    peak = uploads(server)
    goal(f"64 uploads of 1 GiB at once: {peak:.0f} MiB resident (below 200)", peak < 200)
finish()
