"""What the scripts on boto3 share: clients of $ENDPOINT and what they refuse; the rest is in report.py."""

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError
from report import ENDPOINT, FILES, file, run, same

__all__ = ["ENDPOINT", "FILES", "client", "file", "refused", "run", "same"]


def client(*, config=None, **options):
    """A client in path style that tries once; `config` is botocore's, the rest is boto3's."""
    settings = {"s3": {"addressing_style": "path"}, "retries": {"total_max_attempts": 1}, "max_pool_connections": 16}
    return boto3.client("s3", endpoint_url=ENDPOINT, config=Config(**settings | (config or {})), **options)


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
