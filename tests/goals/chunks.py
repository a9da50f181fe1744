"""Memory of uploads that come in one huge chunk each: python3 tests/goals/chunks.py [CONNECTIONS] [MEBIBYTES]

Goal: no connection holds more than 2 MiB, whatever the client's chunk size. For each way of sending a body, CONNECTIONS
(64) uploads send MEBIBYTES (8) of a chunk, part or file that announces 4 GiB (64 MiB where space is reserved for what is
announced), and stop there; resident memory then, less what it was before the first byte, is what they hold. Every upload
is broken off, and nothing of any may be visible afterwards.
"""

import base64
import datetime
import hashlib
import hmac
import json
import sys
import threading
import time

from server import ACCESS, SECRET, finish, goal, serving

CONNECTIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 64
SENT_BYTES = (int(sys.argv[2]) if len(sys.argv) > 2 else 8) << 20
HELD_BYTES_MAX = 2 << 20
PIECE = b"x" * (1 << 20)
ANNOUNCED = 64 << 20


def head(method, host, path, headers, payload="UNSIGNED-PAYLOAD"):
    """A signed request's head; every header is signed."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    signed = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": now, **headers}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    canonical = "\n".join([method, *(path.split("?") + [""])[:2], lines, names, payload])
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signature = hmac.new(key(scope), text.encode(), hashlib.sha256).hexdigest()
    signed["authorization"] = f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}"
    return (f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in signed.items()) + "\r\n").encode()


def key(scope):
    made = ("AWS4" + SECRET).encode()
    for part in scope.split("/"):
        made = hmac.new(made, part.encode(), hashlib.sha256).digest()
    return made


def plain(host, path, payload):
    return head("PUT", host, path, {"content-length": str(ANNOUNCED)}, payload)


def chunked(host, path, payload, chunk_bytes=ANNOUNCED):
    headers = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(ANNOUNCED)}
    headers["content-length"] = str(ANNOUNCED + 1000)
    if payload.endswith("TRAILER"):
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    signature = "" if "UNSIGNED" in payload else ";chunk-signature=" + 64 * "0"
    return head("PUT", host, path, headers, payload) + f"{chunk_bytes:x}{signature}\r\n".encode()


def form(host, path, length):
    """A browser's form; without a length it comes in chunks of HTTP, of which one is sent."""
    _, bucket, name = path.split("/")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    fields = {"key": name, "x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": f"{ACCESS}/{scope}", "x-amz-date": now}
    conditions = [{"bucket": bucket}, *({name: value} for name, value in fields.items())]
    policy = base64.b64encode(json.dumps({"expiration": "2100-01-01T00:00:00Z", "conditions": conditions}).encode())
    fields |= {"policy": policy.decode(), "x-amz-signature": hmac.new(key(scope), policy, hashlib.sha256).hexdigest()}
    body = "".join(f'--bound\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items())
    body += '--bound\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    kind = f"POST /{bucket} HTTP/1.1\r\nhost: {host}\r\ncontent-type: multipart/form-data; boundary=bound\r\n"
    if length is None:
        return (kind + "transfer-encoding: chunked\r\n\r\n" + f"{len(body):x}\r\n{body}\r\n{4 << 30:x}\r\n").encode()
    return (kind + f"content-length: {length}\r\n\r\n{body}").encode()


FORMS = {
    "unsigned payload": lambda host, path: plain(host, path, "UNSIGNED-PAYLOAD"),
    "signed payload": lambda host, path: plain(host, path, 64 * "0"),
    "one signed chunk": lambda host, path: chunked(host, path, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
    "one signed chunk, trailer": lambda host, path: chunked(host, path, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
    "one unsigned chunk, trailer": lambda host, path: chunked(host, path, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
    "form of 4 GiB": lambda host, path: form(host, path, 4 << 30),
    "form without a length": lambda host, path: form(host, path, None),
}


def send(stream, begin, refused):
    try:
        stream.sendall(begin)
        for _ in range(0, SENT_BYTES, len(PIECE)):
            stream.sendall(PIECE)
    except OSError as error:
        refused.append(error)


def held(server, name, begin, connections):
    """Bytes that so many uploads hold together at their peak."""
    before, _ = server.memory()
    refused = []
    streams = [server.connect() for _ in range(connections)]
    threads = [
        threading.Thread(target=send, args=(stream, begin(server.host, f"/chunks/{number}"), refused))
        for number, stream in enumerate(streams)
    ]
    for thread in threads:
        thread.start()
    peak = before
    while any(thread.is_alive() for thread in threads):
        peak = max(peak, server.memory()[0])
        time.sleep(0.02)
    time.sleep(0.5)
    after, _ = server.memory()
    for stream in streams:
        stream.close()
    if refused:
        raise SystemExit(f"{name}: {len(refused)} of {connections} uploads were not taken; is there space on the disk? {refused[0]}")
    most = max(peak, after) - before
    print(f"{name}: {(after - before) / connections:.2f} MiB a connection, {most / connections:.2f} at most", flush=True)
    return most * (1 << 20)


for name, begin in FORMS.items():
    # A server of its own, since memory that an upload gave back is not the system's yet and would hide what the next one takes.
    with serving() as server:
        if server.request("PUT", "/chunks")[0] != 200:
            raise SystemExit("no bucket")
        # What the first uploads bring up once for all: threads and buffers of the log.
        held(server, "warm-up", begin, max(1, CONNECTIONS // 16))
        more = held(server, name, begin, CONNECTIONS) / CONNECTIONS
        goal(f"{name}: {more / (1 << 20):.2f} MiB a connection with {CONNECTIONS} of them (at most 2)", more <= HELD_BYTES_MAX)
        time.sleep(1)
        _, listing = server.request("GET", "/chunks")
        goal("nothing of a broken upload is visible", b"<Key>" not in listing)
finish()
