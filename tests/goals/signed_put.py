"""Speed of uploads with signed chunks, beside the hashes that they need: python3 tests/goals/signed_put.py [ROUNDS]

Goal: PUT of 8 MiB in signed chunks of 64 KiB reaches 90 % of the speed of SHA-256 and MD5 together on this processor: by
one client, of both at the same time on two cores; by 16 and by 50, of both one after the other on every core. Goal:
`auth.chunk_verification = false` saves 90 % of SHA-256's processor time for each MiB. Hashes (OpenSSL's) and uploads take
turns in the same run. Requests are signed beforehand and sent as they are, so the client costs little but its copies. Put
TMPDIR on a file system in memory to see the hashes rather than the disk.
"""

import datetime
import hashlib
import hmac
import os
import pathlib
import sys
import threading
import time

from server import ACCESS, SECRET, finish, goal, median, serving

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
BODY = bytes(range(256)) * (8 << 12)
MEBIBYTES = len(BODY) >> 20
CORES = len(os.sched_getaffinity(0))
# Clients, and uploads by each in one round.
LOADS = {1: 24, 16: 3, 50: 1}
CHUNK_BYTES = 64 << 10
NO_BYTES = hashlib.sha256(b"").hexdigest()


def sign(key, *lines):
    return hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).hexdigest()


def upload(host, path):
    """A whole request: head and signed chunks."""
    form = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    key = ("AWS4" + SECRET).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    overhead = len(f"{CHUNK_BYTES:x};chunk-signature=\r\n\r\n") + 64
    last = len("0;chunk-signature=\r\n\r\n") + 64
    signed = {
        "content-encoding": "aws-chunked",
        "content-length": str(len(BODY) + len(BODY) // CHUNK_BYTES * overhead + last),
        "host": host,
        "x-amz-content-sha256": form,
        "x-amz-date": now,
        "x-amz-decoded-content-length": str(len(BODY)),
    }
    names = ";".join(signed)
    canonical = "\n".join(["PUT", path, "", *(f"{name}:{value}" for name, value in signed.items()), "", names, form])
    signature = sign(key, "AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest())
    signed["authorization"] = f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}"
    pieces = [f"PUT {path} HTTP/1.1\r\n".encode(), *(f"{name}: {value}\r\n".encode() for name, value in signed.items()), b"\r\n"]
    for offset in (*range(0, len(BODY), CHUNK_BYTES), None):
        chunk = b"" if offset is None else BODY[offset : offset + CHUNK_BYTES]
        digest = hashlib.sha256(chunk).hexdigest()
        signature = sign(key, "AWS4-HMAC-SHA256-PAYLOAD", now, scope, signature, NO_BYTES, digest)
        pieces += [f"{len(chunk):x};chunk-signature={signature}\r\n".encode(), chunk, b"\r\n"]
    return b"".join(pieces)


def together(calls):
    """Seconds until all calls, each on a thread, have ended."""
    threads = [threading.Thread(target=call) for call in calls]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begun


def hash_speed(clients):
    """MiB/s of both hashes, as well as this processor can for so many bodies at once."""
    turns = 8
    sha256, md5 = (lambda hash=hash: [hash(BODY) for _ in range(turns)] for hash in (hashlib.sha256, hashlib.md5))
    if clients == 1:
        return turns * MEBIBYTES / together([sha256, md5])
    return CORES * turns * MEBIBYTES / together([lambda: (sha256(), md5())] * CORES)


class Client:
    def __init__(self, server, number):
        self.stream = server.connect()
        self.request = upload(server.host, f"/signed/{number}")

    def put(self, count):
        for _ in range(count):
            self.stream.sendall(self.request)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += self.stream.recv(4096) or sys.exit("the server hung up")
            if not answer.startswith(b"HTTP/1.1 200"):
                sys.exit(f"refused: {answer[:500]}")


def processor_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(server, clients):
    """One round: MiB/s, and the server's processor time in milliseconds for a MiB."""
    count = LOADS[clients]
    all_clients = [Client(server, number) for number in range(clients)]
    before = processor_seconds(server)
    seconds = together([lambda client=client: client.put(count) for client in all_clients])
    used = processor_seconds(server) - before
    for client in all_clients:
        client.stream.close()
    sent = clients * count * MEBIBYTES
    return sent / seconds, 1000 * used / sent


def sha256_milliseconds():
    """Processor time of SHA-256 for a MiB."""
    before = time.thread_time()
    for _ in range(16):
        hashlib.sha256(BODY)
    return 1000 * (time.thread_time() - before) / 16 / MEBIBYTES


with serving() as checking, serving("--set", "auth.chunk_verification=false") as trusting:
    for server in (checking, trusting):
        server.request("PUT", "/signed")
        run(server, 1)
    for clients in LOADS:
        hashes, speeds, unchecked, saved, sha256 = [], [], [], [], []
        for _ in range(ROUNDS):
            hashes.append(hash_speed(clients))
            speed, cost = run(checking, clients)
            speeds.append(speed)
            sha256.append(sha256_milliseconds())
            speed, less = run(trusting, clients)
            unchecked.append(speed)
            saved.append(cost - less)
        share = median([speed / hash for speed, hash in zip(speeds, hashes)])
        print(f"{clients} clients: both hashes {median(hashes):.0f} MiB/s, signed chunks {median(speeds):.0f},"
              f" not verified {median(unchecked):.0f}", flush=True)
        goal(f"{clients} clients reach {share:.0%} of the hashes (90 %)", share >= 0.9)
        part = median([less / hash for less, hash in zip(saved, sha256)])
        goal(f"{clients} clients: without verification {median(saved):.2f} ms of processor a MiB less,"
             f" {part:.0%} of SHA-256's {median(sha256):.2f} (90 %)", part >= 0.9)
finish()
