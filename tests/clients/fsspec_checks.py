"""s3fs of fsspec against $ENDPOINT, its newest version and the last one without asyncio (0.4); started by run.sh."""

import os

import fsspec
import s3fs
from report import ENDPOINT, FILES, fetch, file, raises, run, same

BUCKET, SEEDED, WORK = "clients-fsspec", os.environ["SEEDED"], os.environ["WORK"]
OLD = s3fs.__version__.startswith("0.4")
ODD_KEYS = ["with space", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé/日本語", "amp&and=equals", "hash#tag", "question?mark=1",
            "quote'single", "at@colon:tilde~bang!", "a-b", "a0"]


def system(**more):
    settings = {"key": os.environ["AWS_ACCESS_KEY_ID"], "secret": os.environ["AWS_SECRET_ACCESS_KEY"], "use_listings_cache": False}
    return fsspec.filesystem("s3", **settings | more, client_kwargs={"endpoint_url": ENDPOINT, "region_name": "us-east-1"},
                             config_kwargs={"s3": {"addressing_style": "path"}}, skip_instance_cache=True)


s3 = system()


def put(key, body, **more):
    with s3.open(f"{BUCKET}/{key}", "wb", **more) as handle:
        handle.write(body)


def get(key):
    with s3.open(f"{BUCKET}/{key}", "rb") as handle:
        return handle.read()


def check_make_bucket():
    s3.mkdir(BUCKET)
    same((s3.exists(BUCKET), s3.isdir(BUCKET)), (True, True))
    assert BUCKET in s3.ls("")


def check_put_and_get():
    for name in ("empty", "one", "100k"):
        put(name, file(name))
        same(get(name), file(name))
        info = s3.info(f"{BUCKET}/{name}")
        same((info["size"], info["type"]), (len(file(name)), "file"))
    s3.pipe(f"{BUCKET}/piped", b"piped")
    same(s3.cat(f"{BUCKET}/piped"), b"piped")


def check_touch():
    s3.touch(f"{BUCKET}/touched")
    same((s3.exists(f"{BUCKET}/touched"), s3.info(f"{BUCKET}/touched")["size"]), (True, 0))


def check_multipart():
    put("large", file("large"), block_size=5 << 20)
    same(get("large") == file("large"), True)
    s3.put(f"{FILES}/large", f"{BUCKET}/sent")
    s3.get(f"{BUCKET}/sent", f"{WORK}/back")
    with open(f"{WORK}/back", "rb") as handle:
        same(handle.read() == file("large"), True)


def check_append():
    body = file("large")[: 6 << 20]
    put("grown", body)
    with s3.open(f"{BUCKET}/grown", "ab") as handle:
        handle.write(b"tail")
    same(get("grown") == body + b"tail", True)


def check_ranges():
    body = file("100k")
    with s3.open(f"{BUCKET}/100k", "rb", block_size=4096) as handle:
        handle.seek(50_000)
        same(handle.read(10), body[50_000:50_010])
        handle.seek(-5, 2)
        same(handle.read(), body[-5:])
    same(s3.read_block(f"{BUCKET}/100k", 1000, 1000), body[1000:2000])


def check_metadata():
    with s3.open(f"{BUCKET}/meta", "wb", ContentType="text/x-margay", Metadata={"colour": "green"}) as handle:
        handle.write(b"m")
    same((s3.getxattr(f"{BUCKET}/meta", "colour"), s3.metadata(f"{BUCKET}/meta")["colour"]), ("green", "green"))
    s3.setxattr(f"{BUCKET}/meta", size="small")
    same(system().metadata(f"{BUCKET}/meta")["size"], "small")
    s3.put_tags(f"{BUCKET}/meta", {"kind": "test"})
    same(s3.get_tags(f"{BUCKET}/meta"), {"kind": "test"})


def check_odd_keys():
    for key in ODD_KEYS:
        put(f"odd/{key}", key.encode())
    for key in ODD_KEYS:
        same(get(f"odd/{key}"), key.encode())
    same(sorted(s3.find(f"{BUCKET}/odd")), sorted(f"{BUCKET}/odd/{key}" for key in ODD_KEYS))


def check_list():
    same(len(s3.ls(f"{SEEDED}/many")), 2500)
    same(s3.ls(SEEDED), [f"{SEEDED}/many"])
    same(len(s3.glob(f"{SEEDED}/many/00001*")), 10)
    same([(len(folders), len(names)) for _, folders, names in s3.walk(SEEDED)], [(1, 0), (0, 2500)])
    same(s3.du(SEEDED), 2500)


def check_copy_and_move():
    put("source +%", b"content")
    s3.copy(f"{BUCKET}/source +%", f"{BUCKET}/copied")
    s3.mv(f"{BUCKET}/copied", f"{BUCKET}/moved")
    same((get("moved"), s3.exists(f"{BUCKET}/copied")), (b"content", False))


def check_copy_of_large():
    s3.copy(f"{BUCKET}/large", f"{BUCKET}/large copy")
    same(s3.info(f"{BUCKET}/large copy")["size"], len(file("large")))
    s3.merge(f"{BUCKET}/merged", [f"{BUCKET}/large", f"{BUCKET}/one"])
    same(get("merged") == file("large") + b"x", True)


def check_access_lists():
    put("shown", b"x", acl="private")
    s3.chmod(f"{BUCKET}/shown", acl="private")
    same(get("shown"), b"x")


def check_presigned():
    same(fetch(s3.url(f"{BUCKET}/100k", expires=60)), (200, file("100k")))


def check_transaction():
    with s3.transaction:
        put("in a transaction", b"1")
        same(s3.exists(f"{BUCKET}/in a transaction"), False)
    same(get("in a transaction"), b"1")


def check_versions():
    mine = system(version_aware=True)
    name = BUCKET + "-versions"
    mine.mkdir(name)
    mine.s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"}) if OLD else mine.make_bucket_versioned(name)
    for body in (b"one", b"two"):
        with mine.open(f"{name}/k", "wb") as handle:
            handle.write(body)
    versions = [one["VersionId"] for one in mine.object_version_info(f"{name}/k")]
    same(len(versions), 2)
    with mine.open(f"{name}/k", "rb", version_id=versions[1]) as handle:
        same(handle.read(), b"one")
    for version in versions:
        mine.call_s3("delete_object", Bucket=name, Key="k", VersionId=version) if not OLD else mine.s3.delete_object(Bucket=name, Key="k", VersionId=version)
    mine.rmdir(name)


def check_errors():
    raises(FileNotFoundError, "", get, "nothing")
    if not OLD:
        raises(FileNotFoundError, "", s3.ls, f"{BUCKET}/nothing")
    raises((FileNotFoundError, OSError), "", s3.ls, "clients-no-such-bucket")
    raises((PermissionError, OSError), "", system(secret="wrong-secret").ls, BUCKET)


def check_remove_everything():
    s3.rm(f"{BUCKET}/odd", recursive=True)
    same(s3.exists(f"{BUCKET}/odd"), False)
    s3.rm(BUCKET, recursive=True)
    if s3.exists(BUCKET):
        s3.rmdir(BUCKET)
    same(system().exists(BUCKET), False)


run(globals())
