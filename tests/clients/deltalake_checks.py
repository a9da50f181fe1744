"""deltalake (delta-rs) against $ENDPOINT: commits to a table by conditional PUT; started by run.sh."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from report import ENDPOINT, raises, run, same

BUCKET = "clients-deltalake"
TABLE = f"s3://{BUCKET}/tables/numbers"
ACCESS, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
STORAGE = {"AWS_ENDPOINT_URL": ENDPOINT, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET,
           "AWS_REGION": "us-east-1", "aws_conditional_put": "etag"}


def rows(start, count):
    return pa.table({"number": pa.array(range(start, start + count), pa.int64()), "part": [f"p{row % 3}" for row in range(start, start + count)]})


def table():
    return DeltaTable(TABLE, storage_options=STORAGE)


def numbers(at=None, **more):
    return sorted(pa.table((at or table()).to_pyarrow_table(**more))["number"].to_pylist())


def bucket_request(method):
    command = ["curl", "-sS", "--fail", "-X", method, "--aws-sigv4", "aws:amz:us-east-1:s3", "-u", f"{ACCESS}:{SECRET}", f"{ENDPOINT}/{BUCKET}"]
    subprocess.run(command, check=True, capture_output=True)


def check_write():
    bucket_request("PUT")
    write_deltalake(TABLE, rows(0, 3000), partition_by=["part"], storage_options=STORAGE)
    same((table().version(), numbers()), (0, [*range(3000)]))
    same(len(table().file_uris()), 3)


def check_append_and_older_version():
    write_deltalake(TABLE, rows(3000, 100), mode="append", storage_options=STORAGE)
    same((table().version(), len(numbers())), (1, 3100))
    same(len(numbers(DeltaTable(TABLE, version=0, storage_options=STORAGE))), 3000)


def check_concurrent_commits():
    """Each writer's commit is a PUT that must not find the file of its version; losers take the next version."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: write_deltalake(TABLE, rows(10_000 + one, 1), mode="append", storage_options=STORAGE), range(8)))
    same([number for number in numbers() if number >= 10_000], [*range(10_000, 10_008)])
    same(table().version(), 9)


def check_conflict_is_seen():
    """Both read the same version and replace the same rows: one of them must fail."""
    first, second = table(), table()
    first.delete("number >= 10000")
    raises((CommitFailedError, DeltaError), "", second.delete, "number >= 10000")
    same(max(numbers()), 3099)


def check_overwrite_and_merge():
    found = table().merge(rows(3090, 20), "old.number = new.number", source_alias="new", target_alias="old").when_not_matched_insert_all().execute()
    same(found["num_target_rows_inserted"], 10)
    write_deltalake(TABLE, rows(0, 10), mode="overwrite", storage_options=STORAGE)
    same(numbers(), [*range(10)])


def check_checkpoint_optimize_vacuum():
    here = table()
    here.create_checkpoint()
    here.optimize.compact()
    removed = here.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(removed) > 5, removed
    same(numbers(), [*range(10)])


def check_no_table():
    raises((TableNotFoundError, DeltaError), "", DeltaTable, f"s3://{BUCKET}/tables/nothing", storage_options=STORAGE)
    raises(Exception, "SignatureDoesNotMatch", DeltaTable, TABLE, storage_options=STORAGE | {"AWS_SECRET_ACCESS_KEY": "wrong-secret", "max_retries": "0"})


def check_remove_everything():
    from pyarrow import fs

    s3 = fs.S3FileSystem(access_key=ACCESS, secret_key=SECRET, scheme="http", endpoint_override=os.environ["HOST"], region="us-east-1")
    s3.delete_dir_contents(BUCKET)
    bucket_request("DELETE")


run(globals())
