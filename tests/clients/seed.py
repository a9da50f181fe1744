"""Makes the bucket with 2500 keys that every client lists; `seed.py remove` takes it away."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.config import Config

KEYS = 2500

s3 = boto3.client(
    "s3",
    endpoint_url=os.environ["ENDPOINT"],
    config=Config(s3={"addressing_style": "path"}, max_pool_connections=16, retries={"total_max_attempts": 1}),
)
bucket = os.environ["SEEDED"]

if sys.argv[1:] == ["remove"]:
    while True:
        page = s3.list_objects_v2(Bucket=bucket)
        keys = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
        if not keys:
            break
        s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
    s3.delete_bucket(Bucket=bucket)
else:
    s3.create_bucket(Bucket=bucket)
    with ThreadPoolExecutor(16) as pool:
        put = lambda number: s3.put_object(Bucket=bucket, Key=f"many/{number:06}", Body=b"x")
        list(pool.map(put, range(KEYS)))
