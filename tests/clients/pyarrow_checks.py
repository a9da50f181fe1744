"""pyarrow's S3FileSystem, which is the AWS SDK for C++, against $ENDPOINT; started by run.sh."""

import hashlib
import os

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs
from report import file, raises, run, same

BUCKET, SEEDED = "clients-pyarrow", os.environ["SEEDED"]
ODD_KEYS = ["with space", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé/日本語", "amp&and=equals", "hash#tag", "question?mark=1",
            "quote'single", "at@colon:tilde~bang!", "a0", "a-b", "a/b"]


def system(**more):
    settings = {"access_key": os.environ["AWS_ACCESS_KEY_ID"], "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"]}
    return fs.S3FileSystem(**settings | more, scheme="http", endpoint_override=os.environ["HOST"], region="us-east-1",
                           allow_bucket_creation=True, allow_bucket_deletion=True, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1))


s3 = system()


def put(key, body, **more):
    with s3.open_output_stream(f"{BUCKET}/{key}", **more) as stream:
        stream.write(body)


def get(key):
    with s3.open_input_stream(f"{BUCKET}/{key}") as stream:
        return stream.read()


def below(path, **more):
    return [entry.path.removeprefix(f"{BUCKET}/") for entry in s3.get_file_info(fs.FileSelector(path, **more))]


def check_make_bucket():
    s3.create_dir(BUCKET)
    same(s3.get_file_info(BUCKET).type, fs.FileType.Directory)
    assert BUCKET in [entry.path for entry in s3.get_file_info(fs.FileSelector(""))]


def check_put_and_get():
    for name in ("empty", "one", "100k"):
        put(name, file(name))
        same(get(name), file(name))
        info = s3.get_file_info(f"{BUCKET}/{name}")
        same((info.type, info.size), (fs.FileType.File, len(file(name))))


def check_overwrite():
    put("overwritten", b"first, and longer")
    put("overwritten", b"second")
    same(get("overwritten"), b"second")


def check_multipart():
    body = file("large")
    put("large", body)
    same(hashlib.md5(get("large")).hexdigest(), hashlib.md5(body).hexdigest())


def check_abandoned_upload_leaves_nothing():
    stream = s3.open_output_stream(f"{BUCKET}/abandoned")
    stream.write(file("100k"))
    same(s3.get_file_info(f"{BUCKET}/abandoned").type, fs.FileType.NotFound)
    stream.close()
    same(get("abandoned"), file("100k"))


def check_ranges():
    body = file("100k")
    with s3.open_input_file(f"{BUCKET}/100k") as handle:
        same(handle.size(), len(body))
        for start, length in ((0, 1), (1000, 1000), (102399, 1), (102000, 9999)):
            same(handle.read_at(length, start), body[start : start + length])
        handle.seek(50_000)
        same(handle.read(10), body[50_000:50_010])


def check_metadata():
    put("meta", b"m", metadata={"Content-Type": "text/x-margay", "Cache-Control": "no-store", "colour": "green"})
    with s3.open_input_stream(f"{BUCKET}/meta") as stream:
        shown = stream.metadata()
    same((shown["Content-Type"], shown["Cache-Control"]), (b"text/x-margay", b"no-store"))


def check_odd_keys():
    for key in ODD_KEYS:
        put(f"odd/{key}", key.encode())
    for key in ODD_KEYS:
        same(get(f"odd/{key}"), key.encode())
    found = [entry.path for entry in s3.get_file_info(fs.FileSelector(f"{BUCKET}/odd", recursive=True)) if entry.is_file]
    same(sorted(found), sorted(f"{BUCKET}/odd/{key}" for key in ODD_KEYS))


def check_list():
    same(len(s3.get_file_info(fs.FileSelector(f"{SEEDED}/many"))), 2500)
    same([entry.path for entry in s3.get_file_info(fs.FileSelector(SEEDED))], [f"{SEEDED}/many"])
    same(below(f"{BUCKET}/nothing", allow_not_found=True), [])
    raises(FileNotFoundError, "nothing", below, f"{BUCKET}/nothing")


def check_directories():
    s3.create_dir(f"{BUCKET}/dir/deep", recursive=True)
    same(s3.get_file_info(f"{BUCKET}/dir/deep").type, fs.FileType.Directory)
    put("dir/deep/file", b"x")
    same(sorted(below(f"{BUCKET}/dir", recursive=True)), ["dir/deep", "dir/deep/file"])
    s3.delete_dir_contents(f"{BUCKET}/dir")
    same(below(f"{BUCKET}/dir"), [])
    s3.delete_dir(f"{BUCKET}/dir")
    same(s3.get_file_info(f"{BUCKET}/dir").type, fs.FileType.NotFound)


def check_copy_and_move():
    put("source +%", b"content", metadata={"Content-Type": "text/x-margay"})
    s3.copy_file(f"{BUCKET}/source +%", f"{BUCKET}/copied")
    same(get("copied"), b"content")
    s3.move(f"{BUCKET}/copied", f"{BUCKET}/moved")
    same((get("moved"), s3.get_file_info(f"{BUCKET}/copied").type), (b"content", fs.FileType.NotFound))
    raises(OSError, "NO_SUCH_KEY", s3.copy_file, f"{BUCKET}/nothing", f"{BUCKET}/copied")


def check_dataset():
    table = pa.table({"year": [2024, 2025, 2026] * 1000, "number": range(3000), "text": [f"row {row}" for row in range(3000)]})
    ds.write_dataset(table, f"{BUCKET}/dataset", filesystem=s3, format="parquet", partitioning=["year"], existing_data_behavior="overwrite_or_ignore")
    found = ds.dataset(f"{BUCKET}/dataset", filesystem=s3, format="parquet", partitioning=["year"])
    same(len(found.files), 3)
    same(found.to_table().sort_by("number").select(["year", "number", "text"]).to_pydict(), table.to_pydict())
    same(found.count_rows(filter=(ds.field("year") == 2025) & (ds.field("number") < 300)), 100)
    ds.write_dataset(table.slice(0, 3), f"{BUCKET}/dataset", filesystem=s3, format="parquet", partitioning=["year"],
                     existing_data_behavior="delete_matching")
    same(ds.dataset(f"{BUCKET}/dataset", filesystem=s3, partitioning=["year"]).count_rows(), 3)


def check_parquet_columns():
    table = pa.table({name: range(100_000) for name in "abcdef"})
    pq.write_table(table, f"{BUCKET}/wide.parquet", filesystem=s3, compression="none", row_group_size=20_000)
    same(pq.read_table(f"{BUCKET}/wide.parquet", filesystem=s3, columns=["c"], filters=[("c", ">=", 99_990)]).column("c").to_pylist(), [*range(99_990, 100_000)])


def check_errors():
    raises(FileNotFoundError, "nothing", s3.open_input_stream, f"{BUCKET}/nothing")
    raises(FileNotFoundError, "", s3.delete_file, f"{BUCKET}/nothing")
    raises(OSError, "", s3.get_file_info, fs.FileSelector("clients-no-such-bucket"))
    raises(OSError, "SIGNATURE", system(secret_key="wrong-secret").get_file_info, fs.FileSelector(BUCKET))
    raises(OSError, "", s3.delete_dir, "clients-no-such-bucket")


def check_remove_everything():
    s3.delete_dir_contents(BUCKET)
    same(below(BUCKET, recursive=True), [])
    s3.delete_dir(BUCKET)
    same(s3.get_file_info(BUCKET).type, fs.FileType.NotFound)


run(globals())
