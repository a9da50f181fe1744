"""A client that is quick: its first request leaves in the same segment as the end of its TLS handshake.

Started by tls.sh. The server then finds the request in its TLS library and not in the socket, and must not wait there.
"""

import os
import socket
import ssl

ANSWER_SECONDS_MAX = 60

host, port = os.environ["HOST"].split(":")
context = ssl.create_default_context(cafile=os.environ["CA"])
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
connection = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX)
while True:
    try:
        tls.do_handshake()
        break
    except ssl.SSLWantReadError:
        connection.sendall(outgoing.read())
        incoming.write(connection.recv(65536))
tls.write(b"GET /-/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
connection.sendall(outgoing.read())
while True:
    received = connection.recv(65536)
    assert received, "the server closed the connection without an answer"
    incoming.write(received)
    try:
        answer = tls.read()
        break
    except ssl.SSLWantReadError:
        pass
assert answer.startswith(b"HTTP/1.1 200 "), answer[:100]
