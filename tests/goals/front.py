"""GET of 1 KiB against the same S3 front with an empty backend: python3 tests/goals/front.py [ROUNDS] [SECONDS]

Goal: at least 80 %. The empty backend is the same program with `serve --fixed-object 1024`: listener, HTTP, routing,
signature and reply are the same code, only the volume is not asked. Both servers run at once and are loaded in turn.
Nobody may read without a signature yet, so `unsigned` is a V4 request whose payload is not signed.
"""

import sys

from server import finish, goal, median, serving

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
SECONDS = sys.argv[2] if len(sys.argv) > 2 else "5"
LOAD = ["load", "--mix", "get=100", "--size", "1k", "--keys", "10000", "--connections", "64", "--seconds", SECONDS]

with serving() as full, serving("--fixed-object", "1024") as empty:
    for payload in ("unsigned", "signed"):
        rates = {"volume": [], "empty": []}
        for _ in range(ROUNDS):
            for name, server in (("empty", empty), ("volume", full)):
                row = server.bench(*LOAD, "--payload", payload)["operations"][0]
                rates[name].append(row["requests_per_second"])
                print(f"{payload} {name}: {row['requests_per_second']:.0f}/s, p50 {row['p50_ms']:.3f} ms, "
                      f"p99 {row['p99_ms']:.3f} ms", flush=True)
        ratio = median(rates["volume"]) / median(rates["empty"])
        goal(f"GET 1 KiB, {payload} payload: {median(rates['volume']):.0f}/s of {median(rates['empty']):.0f}/s "
             f"with an empty backend: {100 * ratio:.0f} % (at least 80)", ratio >= 0.8)
finish()
