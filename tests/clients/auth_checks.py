"""Signature Version 2, presigned URLs and browser's forms against $ENDPOINT, as boto3 makes them; started by run.sh."""

import hashlib
import os
import time

import urllib3
from checks import FILES, client, file, refused, run, same

BUCKET = "clients-auth"
http = urllib3.PoolManager(ca_certs=os.environ.get("AWS_CA_BUNDLE"))


def signer(version, **options):
    return client(config={"signature_version": version}, **options)


v2, v4 = signer("s3"), signer("s3v4")


def fetch(method, url, status, **more):
    answer = http.request(method, url, redirect=False, **more)
    assert answer.status == status, f"{answer.status}: {answer.data!r:.400}"
    return answer


def check_version_2_objects():
    v2.create_bucket(Bucket=BUCKET)
    for key in ("empty", "one", "100k", "a b/ü+%&=", "large"):
        name = key if key in ("empty", "one", "large") else "100k"
        v2.put_object(Bucket=BUCKET, Key=key, Body=file(name), ContentType="text/x-margay", Metadata={"colour": "green"})
        answer = v2.get_object(Bucket=BUCKET, Key=key, ResponseContentType="text/other")
        same((answer["Body"].read() == file(name), answer["ContentType"], answer["Metadata"]), (True, "text/other", {"colour": "green"}))
    same(sorted(entry["Key"] for entry in v2.list_objects_v2(Bucket=BUCKET)["Contents"]), ["100k", "a b/ü+%&=", "empty", "large", "one"])
    same(len(v2.list_objects(Bucket=BUCKET, Prefix="a b/", Delimiter="/")["Contents"]), 1)
    v2.copy_object(Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "a b/ü+%&="})
    v2.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "copy"}, {"Key": "large"}]})
    v2.head_object(Bucket=BUCKET, Key="100k")
    v2.get_bucket_location(Bucket=BUCKET)
    v2.get_bucket_acl(Bucket=BUCKET)


def check_version_2_streams():
    with open(f"{FILES}/large", "rb") as handle:
        v2.put_object(Bucket=BUCKET, Key="stream", Body=handle)
    same(hashlib.md5(v2.get_object(Bucket=BUCKET, Key="stream")["Body"].read()).digest(), hashlib.md5(file("large")).digest())


def check_version_2_multipart():
    named = {"Bucket": BUCKET, "Key": "parts"}
    named["UploadId"] = v2.create_multipart_upload(**named)["UploadId"]
    etag = v2.upload_part(**named, PartNumber=1, Body=file("100k"))["ETag"]
    same(len(v2.list_parts(**named)["Parts"]), 1)
    same(len(v2.list_multipart_uploads(Bucket=BUCKET)["Uploads"]), 1)
    v2.complete_multipart_upload(**named, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    same(v2.get_object(Bucket=BUCKET, Key="parts")["Body"].read(), file("100k"))


def check_version_2_refusals():
    unknown = signer("s3", aws_access_key_id="NOSUCHKEYNOSUCHKEY00", aws_secret_access_key="x")
    refused("InvalidAccessKeyId", unknown.list_objects_v2, Bucket=BUCKET)
    wrong = signer("s3", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_secret_access_key="wrong")
    refused("SignatureDoesNotMatch", wrong.list_objects_v2, Bucket=BUCKET)


def check_presigned_urls():
    for signing in (v2, v4):
        url = signing.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "a b/ü+%&=", "ResponseContentType": "a/b c"})
        answer = fetch("GET", url, 200)
        same((answer.data == file("100k"), answer.headers["content-type"]), (True, "a/b c"))
        fetch("GET", url.replace("a/b", "a/c").replace("a%2Fb", "a%2Fc"), 403)
        fetch("HEAD", url, 403)
        late = signing.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "one"}, ExpiresIn=-5 if signing is v2 else 1)
        if signing is v4:
            time.sleep(2.1)  # boto3 makes no URL of Version 4 that is over already
        assert b"Request has expired" in fetch("GET", late, 403).data
        url = signing.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "by url"})
        fetch("PUT", url, 200, body=b"new")
        same(v4.get_object(Bucket=BUCKET, Key="by url")["Body"].read(), b"new")
    params = {"Bucket": BUCKET, "Key": "described", "ContentType": "text/x-margay", "Metadata": {"colour": "blue"}}
    url = v2.generate_presigned_url("put_object", Params=params)  # all of it goes into the query
    fetch("PUT", url, 200, body=b"x", headers={"content-type": "text/x-margay"})
    head = v4.head_object(Bucket=BUCKET, Key="described")
    same((head["ContentType"], head["Metadata"]), ("text/x-margay", {"colour": "blue"}))


def upload(post, content, status, name="cat.jpg", **fields):
    fields = {**post["fields"], **fields, "file": (name, content)}
    return fetch("POST", post["url"], status, fields=fields)


def check_forms():
    for signing in (v2, v4):
        post = signing.generate_presigned_post(BUCKET, "form/${filename}")
        for size in ("empty", "one", "100k", "large"):
            upload(post, file(size), 204, name=f"C:\\pictures\\{size}.jpg")
            got = v4.get_object(Bucket=BUCKET, Key=f"form/{size}.jpg")["Body"].read()
            same(hashlib.md5(got).digest(), hashlib.md5(file(size)).digest())
        fields = {"acl": "private", "Content-Type": "image/x-cat", "x-amz-meta-colour": "green", "success_action_status": "201"}
        conditions = [{"acl": "private"}, ["starts-with", "$Content-Type", "image/"], ["starts-with", "$x-amz-meta-colour", ""],
                      {"success_action_status": "201"}, ["content-length-range", 1, 10], ["starts-with", "$key", "user/"]]
        post = signing.generate_presigned_post(BUCKET, "user/cat", Fields=fields, Conditions=conditions)
        answer = upload(post, b"meow", 201)
        assert b"<Key>user/cat</Key>" in answer.data and b"<ETag>" in answer.data, answer.data
        head = v4.head_object(Bucket=BUCKET, Key="user/cat")
        same((head["ContentType"], head["Metadata"], head["ETag"]), ("image/x-cat", {"colour": "green"}, answer.headers["etag"]))
        assert b"EntityTooLarge" in upload(post, b"m" * 11, 400).data
        assert b"EntityTooSmall" in upload(post, b"", 400).data
        assert b"Extra input fields" in upload(post, b"meow", 403, **{"x-amz-meta-more": "1"}).data
        assert b"Policy Condition failed" in upload(post, b"meow", 403, key="other/cat").data
        assert b"Policy expired" in upload(signing.generate_presigned_post(BUCKET, "late", ExpiresIn=-1), b"x", 403).data
        broken = signing.generate_presigned_post(BUCKET, "k")
        name = "signature" if signing is v2 else "x-amz-signature"
        broken["fields"][name] = "0" * 64 if signing is v4 else "A" * 27 + "="
        assert b"SignatureDoesNotMatch" in upload(broken, b"x", 403).data
    url = "http://example.com/done"
    post = v4.generate_presigned_post(BUCKET, "k", Fields={"success_action_redirect": url}, Conditions=[{"success_action_redirect": url}])
    answer = upload(post, b"x", 303)
    assert answer.headers["location"].startswith(f"{url}?bucket={BUCKET}&key=k&etag=%22"), answer.headers["location"]


def check_remove_everything():
    for page in v4.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        v4.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": entry["Key"]} for entry in page.get("Contents", [])]})
    v2.delete_bucket(Bucket=BUCKET)


run(globals())
