"""Ports for servers that a test starts, also again after a stop.

Why:        a port that the kernel gives (port 0) is given to somebody else as soon as it is free: a server that is started again finds it
            taken, and clients that look for it meanwhile talk to a stranger. Ports outside of the kernel's range are given to nobody.
Example:    port=$(python3 tests/ports.py)
"""

import random
import socket

# Lower ones may belong to services of the machine.
FIRST = 10_000


def free_port():
    """Free now, and not one of those that connections and servers without a wish get."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as told:
        behind = int(told.read().split()[0])
    while True:
        port = random.randrange(min(FIRST, behind - 1000), behind)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


if __name__ == "__main__":
    print(free_port())
