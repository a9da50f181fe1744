"""Fills, deletes and refills one bucket until the disk says no; see run.sh. Standard library only."""

import http.client
import os
import random
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import sign  # noqa: E402

ENDPOINT = urllib.parse.urlparse(sys.argv[1])
ROUNDS = int(sys.argv[2])
ACCESS, SECRET = os.environ["MARGAY_ACCESS_KEY"], os.environ["MARGAY_SECRET_KEY"]
SIZES = [100, 3_000, 40_000, 300_000, 2_000_000, 9_000_000, 20_000_000]
# Small objects after a large one was refused, at most: where space comes back meanwhile they would fit for many minutes, and the disk would
# be full of them, which take more than their bytes.
SMALL_MAX = 1000
connection = http.client.HTTPConnection(ENDPOINT.hostname, ENDPOINT.port, timeout=120)


def request(method, path, body=b"", query=""):
    """One signed request; gives status and body."""
    headers = sign.headers(method, ENDPOINT.netloc, path, query, ACCESS, SECRET)
    for attempt in range(3):
        try:
            connection.request(method, path + ("?" + query if query else ""), body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (ConnectionError, http.client.HTTPException):
            # The server may close a connection whose body it refused.
            connection.close()
    raise SystemExit(f"{method} {path}: no answer")


def content(seed, size):
    return random.Random(seed).randbytes(size)


def fill(round_number):
    """Puts objects until one is refused; gives the acknowledged ones."""
    chooser, kept, refused, small = random.Random(round_number), {}, 0, 0
    while refused < 3 and small < SMALL_MAX:
        number = len(kept) + refused
        # Ever smaller once the first one was refused: small objects meet the limit of the metadata too.
        size = chooser.choice(SIZES) if refused == 0 else 3_000
        body = content(f"{round_number}/{number}", size)
        status, answer = request("PUT", f"/full/{round_number}/{number}", body)
        if status == 200:
            kept[number] = size
            small += refused > 0
        elif status == 507 and b"<Code>StorageFull</Code>" in answer:
            refused += 1
        else:
            raise SystemExit(f"round {round_number}: PUT answered {status}: {answer[:300]}")
    return kept


def main():
    assert request("PUT", "/full")[0] == 200
    first, limit = 0, 0.0
    for round_number in range(ROUNDS):
        began, kept, waited = time.monotonic(), {}, 0.0
        while True:
            # Space comes back in the background: what is refused now may fit a moment later.
            part = fill(f"{round_number}-{int(waited * 10)}")
            kept |= {(f"{round_number}-{int(waited * 10)}", number): size for number, size in part.items()}
            stored = sum(kept.values())
            if stored >= 0.95 * first or time.monotonic() - began > limit:
                break
            time.sleep(1)
            waited = time.monotonic() - began
        if round_number == 0:
            # Beside 60 s, what filling it takes here: a busy machine needs more than 30 s, all the more beside reclaim.
            first, limit = stored, 60 + max(30, 2 * (time.monotonic() - began))
        if stored < 0.95 * first:
            raise SystemExit(f"round {round_number}: only {stored} of {first} bytes fit again after {limit:.0f} s")
        sample = random.Random(round_number).sample(sorted(kept), min(50, len(kept)))
        for prefix, number in sample:
            status, body = request("GET", f"/full/{prefix}/{number}")
            if status != 200 or body != content(f"{prefix}/{number}", kept[prefix, number]):
                raise SystemExit(f"round {round_number}: object {prefix}/{number} is damaged ({status})")
        filled = time.monotonic() - began
        for prefix, number in kept:
            status, answer = request("DELETE", f"/full/{prefix}/{number}")
            if status != 204:
                raise SystemExit(f"round {round_number}: DELETE answered {status} on a full disk: {answer[:300]}")
        print(f"round {round_number}: {stored / 1e6:.0f} MB in {len(kept)} objects, {filled:.1f} s", flush=True)


main()
