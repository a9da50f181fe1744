"""What the Python scripts share: boto3 clients of $ENDPOINT, comparisons, and one line per check.

A script defines functions `check_...` and ends with `run(globals())`.
"""

import os
import sys
import traceback

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

ENDPOINT, FILES = os.environ["ENDPOINT"], os.environ["FILES"]


def client(*, config=None, **options):
    """A client in path style that tries once; `config` is botocore's, the rest is boto3's."""
    settings = {"s3": {"addressing_style": "path"}, "retries": {"total_max_attempts": 1}, "max_pool_connections": 16}
    return boto3.client("s3", endpoint_url=ENDPOINT, config=Config(**settings | (config or {})), **options)


def same(got, expected):
    assert got == expected, f"got {got!r:.300}, expected {expected!r:.300}"


def refused(code, call, *, status=None, **arguments):
    """The answer to a call that must be refused."""
    try:
        call(**arguments)
    except ClientError as error:
        same(error.response["Error"]["Code"], code)
        if status is not None:
            same(error.response["ResponseMetadata"]["HTTPStatusCode"], status)
        return error.response
    raise AssertionError(f"succeeded, but {code} was expected")


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
