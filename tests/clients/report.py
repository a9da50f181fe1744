"""What the Python scripts share whatever library they test: what to compare, and one line per check.

A script defines functions `check_...` and ends with `run(globals())`.
"""

import os
import sys
import traceback
import urllib.error
import urllib.request

ENDPOINT, FILES = os.environ["ENDPOINT"], os.environ["FILES"]


def same(got, expected):
    assert got == expected, f"got {got!r:.300}, expected {expected!r:.300}"


def raises(kind, text, call, *arguments, **named):
    """Fails unless the call raises this kind of exception and its message holds the text."""
    try:
        call(*arguments, **named)
    except kind as error:
        assert text in str(error), f"raised without {text}: {error!r:.400}"
        return error
    raise AssertionError(f"succeeded, but {kind} was expected")


def fetch(url, *, method="GET", body=None, headers=None):
    """Status and body of a request without credentials, as of somebody who was handed a presigned link."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body, method=method, headers=headers or {})) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def file(name):
    with open(f"{FILES}/{name}", "rb") as handle:
        return handle.read()


def run(script):
    """Runs the checks of a script in their order; ends the program, with 1 when one failed."""
    failed = 0
    for name, check in list(script.items()):
        if not name.startswith("check_"):
            continue
        label = name.removeprefix("check_").replace("_", " ")
        try:
            check()
            print(f"ok {label}", flush=True)
        except Exception as error:
            failed += 1
            print(f"not ok {label}")
            for frame in traceback.extract_tb(error.__traceback__):
                if frame.filename == script["__file__"]:
                    print(f"    line {frame.lineno}: {frame.line}")
            print(f"    {type(error).__name__}: {error}"[:600], flush=True)
    sys.exit(1 if failed else 0)
