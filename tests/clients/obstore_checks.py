"""obstore, which is Rust's object_store, against $ENDPOINT; started by run.sh. The bucket is made with a signed request of curl's."""

import datetime
import os
import subprocess

from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, NotModifiedError, PreconditionError
from obstore.store import S3Store
from report import ENDPOINT, fetch, file, raises, run, same

BUCKET, SEEDED = "clients-obstore", os.environ["SEEDED"]
ACCESS, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
ODD_KEYS = ["with space", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé/日本語", "amp&and=equals", "hash#tag", "question?mark=1",
            "quote'single", "at@colon:tilde~bang!", "star*dollar$", "a", "a/b", "a-b", "a0"]


def store(bucket=BUCKET, **more):
    settings = {"access_key_id": ACCESS, "secret_access_key": SECRET, "region": "us-east-1", "endpoint": ENDPOINT}
    return S3Store(bucket, **settings | more, client_options={"allow_http": True}, retry_config={"max_retries": 0})


def bucket_request(method):
    """object_store has no call for buckets."""
    command = ["curl", "-sS", "--fail", "-X", method, "--aws-sigv4", "aws:amz:us-east-1:s3", "-u", f"{ACCESS}:{SECRET}", f"{ENDPOINT}/{BUCKET}"]
    subprocess.run(command, check=True, capture_output=True)


s3 = store()


def get(key, **more):
    return bytes(s3.get(key, **more).bytes())


def keys(prefix=None, at=s3, **more):
    return [entry["path"] for page in at.list(prefix, **more) for entry in page]


def check_make_bucket():
    bucket_request("PUT")
    same(keys(), [])


def check_put_and_get():
    for name in ("empty", "one", "100k"):
        answer = s3.put(name, file(name))
        same(get(name), file(name))
        head = s3.head(name)
        same((head["size"], head["e_tag"]), (len(file(name)), answer["e_tag"]))


def check_overwrite_and_create():
    s3.put("overwritten", b"first, and longer")
    etag = s3.put("overwritten", b"second")["e_tag"]
    raises(AlreadyExistsError, "", s3.put, "overwritten", b"third", mode="create")
    s3.put("overwritten", b"third", mode={"e_tag": etag})
    raises(PreconditionError, "", s3.put, "overwritten", b"fourth", mode={"e_tag": etag})
    same(get("overwritten"), b"third")
    s3.put("created", b"1", mode="create")
    same(get("created"), b"1")


def check_multipart():
    body = file("large")
    s3.put("large", body, use_multipart=True, chunk_size=5 << 20, max_concurrency=4)
    same(get("large") == body, True)
    assert s3.head("large")["e_tag"].endswith('-5"')
    with open(f"{os.environ['FILES']}/large", "rb") as handle:
        s3.put("streamed", handle, chunk_size=6 << 20)
    same(b"".join(bytes(part) for part in s3.get("streamed").stream(min_chunk_size=1 << 20)) == body, True)


def check_ranges():
    body = file("100k")
    same(bytes(s3.get_range("100k", start=1000, end=2000)), body[1000:2000])
    same(bytes(s3.get_range("100k", start=102399, length=1)), body[-1:])
    parts = s3.get_ranges("100k", starts=[0, 5000, 90_000], ends=[10, 5010, 102_400])
    same([bytes(part) for part in parts], [body[:10], body[5000:5010], body[90_000:]])
    same(get("100k", options={"range": {"suffix": 5}}), body[-5:])
    same(get("100k", options={"range": {"offset": 102_000}}), body[102_000:])
    raises(BaseError, "416", s3.get_range, "one", start=5, end=9)


def check_conditions():
    etag = s3.head("one")["e_tag"]
    same(get("one", options={"if_match": etag}), b"x")
    raises(PreconditionError, "", s3.get, "one", options={"if_match": '"0"'})
    raises(NotModifiedError, "", s3.get, "one", options={"if_none_match": etag})


def check_metadata_and_tags():
    s3.put("meta", b"m", attributes={"Content-Type": "text/x-margay", "Cache-Control": "no-store", "colour": "green"}, tags={"kind": "test"})
    shown = s3.get("meta").attributes
    same((shown["Content-Type"], shown["Cache-Control"], shown["colour"]), ("text/x-margay", "no-store", "green"))


def check_odd_keys():
    for key in ODD_KEYS:
        s3.put(f"odd/{key}", key.encode())
    for key in ODD_KEYS:
        same(get(f"odd/{key}"), key.encode())
    same(keys("odd"), sorted((f"odd/{key}" for key in ODD_KEYS), key=lambda key: key.encode()))
    page = s3.list_with_delimiter("odd/a")
    same([entry["path"] for entry in page["objects"]], ["odd/a/b"])


def check_list():
    seeded = store(SEEDED)
    expected = [f"many/{number:06}" for number in range(2500)]
    same(keys("many", at=seeded), expected)
    same(keys("many", at=seeded, offset="many/002400"), expected[2401:])
    same(list(seeded.list_with_delimiter()["common_prefixes"]), ["many"])


def check_copy_and_rename():
    s3.put("source +%", b"content")
    s3.copy("source +%", "copied")
    s3.rename("copied", "renamed")
    same(get("renamed"), b"content")
    raises((NotFoundError, FileNotFoundError), "", s3.head, "copied")
    raises((NotFoundError, FileNotFoundError), "", s3.copy, "nothing", "copied")


def check_copy_with_conditions():
    once = store(copy_if_not_exists="multipart")
    once.copy("one", "copied once", overwrite=False)
    raises(AlreadyExistsError, "", once.copy, "100k", "copied once", overwrite=False)
    same(get("copied once"), b"x")


def check_presigned():
    from obstore import sign

    link = sign(s3, "GET", "100k", datetime.timedelta(minutes=1))
    same(fetch(link), (200, file("100k")))
    same(fetch(sign(s3, "PUT", "handed in", datetime.timedelta(minutes=1)), method="PUT", body=b"handed in")[0], 200)
    same(get("handed in"), b"handed in")
    same(fetch(link.replace("100k", "one"))[0], 403)


def check_checksums():
    summed = store(checksum_algorithm="SHA256")
    summed.put("summed", file("100k"))
    summed.put("summed/large", file("large"), use_multipart=True, chunk_size=5 << 20)
    same(get("summed/large") == file("large"), True)


def check_errors():
    raises((NotFoundError, FileNotFoundError), "nothing", s3.get, "nothing")
    raises((NotFoundError, FileNotFoundError), "", store("clients-no-such-bucket").get, "x")
    raises(BaseError, "SignatureDoesNotMatch", store(secret_access_key="wrong-secret").get, "one")


def check_remove_everything():
    s3.delete(keys())
    same(keys(), [])
    bucket_request("DELETE")


run(globals())
