"""boto3 against $ENDPOINT; started by run.sh. Prints one line per check, as the shell scripts do."""

import base64
import gzip
import hashlib
import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor

from awscrt import checksums as crt
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from checks import ENDPOINT, FILES, client, file, refused, run, same

WORK, SEEDED = os.environ["WORK"], os.environ["SEEDED"]
BUCKET = "clients-boto3"
ODD_KEYS = [
    "with space", " leading", "trailing ", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé/日本語", "emoji-🐈", "amp&and=equals",
    "semi;colon,comma", "hash#tag", "question?mark=1", "quote'single\"double", "paren(1)[2]{3}", "at@colon:tilde~bang!", "<xml>&amp;",
    "a", "a/", "a/b", "a//", "a//b", "a-b", "a0", "/leading", "//", ".", "..", "./x", "x/../y", "back\\slash", "tab\tkey", "line\nkey",
    "k" * 1024, "é" * 512,
]
s3 = client()


def put(key, body=b"", **more):
    return s3.put_object(Bucket=BUCKET, Key=key, Body=body, **more)


def get(key, **more):
    return s3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


def keys(bucket=BUCKET, **more):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **more)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def check_make_bucket():
    s3.create_bucket(Bucket=BUCKET)
    s3.head_bucket(Bucket=BUCKET)
    assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] in (None, "us-east-1")


def check_put_and_get():
    for name in ("empty", "one", "100k"):
        body = file(name)
        answer = put(name, body)
        same(answer["ETag"], f'"{hashlib.md5(body).hexdigest()}"')
        same(get(name), body)
        head = s3.head_object(Bucket=BUCKET, Key=name)
        same((head["ContentLength"], head["ETag"]), (len(body), answer["ETag"]))


def check_overwrite():
    put("overwritten", b"first, and longer")
    put("overwritten", b"second")
    same(get("overwritten"), b"second")
    same(keys(Prefix="overwritten"), ["overwritten"])


def check_odd_keys_round_trip():
    for key in ODD_KEYS:
        body = key.encode()
        put(key, body)
        same(get(key), body)
    for key in ODD_KEYS:  # again: none replaced another
        same((key, get(key)), (key, key.encode()))


def check_odd_keys_listed_in_order():
    expected = sorted(ODD_KEYS, key=lambda key: key.encode())
    mine = set(ODD_KEYS)
    same([key for key in keys() if key in mine], expected)
    same([key for key in keys(PaginationConfig={"PageSize": 3}) if key in mine], expected)


def check_odd_keys_by_delimiter():
    page = s3.list_objects_v2(Bucket=BUCKET, Prefix="a", Delimiter="/")
    same([entry["Key"] for entry in page["Contents"]], ["a", "a-b", "a0", "amp&and=equals", "at@colon:tilde~bang!"])
    same([entry["Prefix"] for entry in page["CommonPrefixes"]], ["a/"])
    page = s3.list_objects_v2(Bucket=BUCKET, Prefix="a/", Delimiter="/")
    same([entry["Key"] for entry in page["Contents"]], ["a/", "a/b"])
    same([entry["Prefix"] for entry in page["CommonPrefixes"]], ["a//"])
    page = s3.list_objects_v2(Bucket=BUCKET, Prefix="amp", Delimiter="and")
    same([entry["Prefix"] for entry in page["CommonPrefixes"]], ["amp&and"])


def check_odd_keys_deleted():
    for key in ODD_KEYS[: len(ODD_KEYS) // 2]:
        s3.delete_object(Bucket=BUCKET, Key=key)
    rest = ODD_KEYS[len(ODD_KEYS) // 2 :]
    mine = set(ODD_KEYS)
    same([key for key in keys() if key in mine], sorted(rest, key=lambda key: key.encode()))
    answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in rest]})
    same(sorted(entry["Key"] for entry in answer["Deleted"]), sorted(rest))
    same([key for key in keys() if key in mine], [])


def check_too_long_key():
    refused("KeyTooLongError", put, key="k" * 1025)


def check_list_pages():
    expected = [f"many/{number:06}" for number in range(2500)]
    same(keys(SEEDED), expected)
    same(keys(SEEDED, PaginationConfig={"PageSize": 7}, StartAfter="many/002400"), expected[2401:])
    first = s3.list_objects_v2(Bucket=SEEDED)
    same((first["KeyCount"], first["IsTruncated"]), (1000, True))
    v1 = [entry["Key"] for page in s3.get_paginator("list_objects").paginate(Bucket=SEEDED) for entry in page["Contents"]]
    same(v1, expected)
    v1 = s3.list_objects(Bucket=SEEDED, Marker="many/000009", MaxKeys=2)
    same([entry["Key"] for entry in v1["Contents"]], ["many/000010", "many/000011"])
    page = s3.list_objects_v2(Bucket=SEEDED, Delimiter="/")
    same(([entry["Prefix"] for entry in page["CommonPrefixes"]], page["KeyCount"]), (["many/"], 1))
    page = s3.list_objects_v2(Bucket=SEEDED, MaxKeys=0)
    same((page["KeyCount"], page["IsTruncated"]), (0, False))
    page = s3.list_objects_v2(Bucket=SEEDED, Prefix="many/00249", FetchOwner=True)
    assert all("Owner" in entry for entry in page["Contents"])
    refused("InvalidArgument", s3.list_objects_v2, Bucket=SEEDED, ContinuationToken="no such token")


def check_metadata():
    stored = {"colour": "green", "long": "x" * 1500}
    put("meta", b"m", ContentType="text/x-margay", CacheControl="no-store", ContentDisposition="inline", ContentEncoding="identity",
        ContentLanguage="de", Metadata=stored)
    for answer in (s3.head_object(Bucket=BUCKET, Key="meta"), s3.get_object(Bucket=BUCKET, Key="meta")):
        same(answer["Metadata"], stored)
        named = ("ContentType", "CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage")
        same([answer[name] for name in named], ["text/x-margay", "no-store", "inline", "identity", "de"])
    answer = s3.get_object(Bucket=BUCKET, Key="meta", ResponseContentType="text/other", ResponseContentDisposition="attachment")
    same((answer["ContentType"], answer["ContentDisposition"]), ("text/other", "attachment"))
    refused("MetadataTooLarge", put, key="too much", Metadata={"long": "x" * 2100})


def check_copy():
    put("copy source +%", b"content", ContentType="text/x-margay", Metadata={"colour": "green"})
    source = {"Bucket": BUCKET, "Key": "copy source +%"}
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=source)
    head = s3.head_object(Bucket=BUCKET, Key="copy")
    same((head["ContentType"], head["Metadata"]), ("text/x-margay", {"colour": "green"}))
    s3.copy_object(Bucket=BUCKET, Key="copy", CopySource=source, MetadataDirective="REPLACE", ContentType="text/new", Metadata={"a": "b"})
    head = s3.head_object(Bucket=BUCKET, Key="copy")
    same((head["ContentType"], head["Metadata"]), ("text/new", {"a": "b"}))
    s3.delete_object(**source)
    same(get("copy"), b"content")
    refused("NoSuchKey", s3.copy_object, Bucket=BUCKET, Key="copy", CopySource=source)
    refused("InvalidRequest", s3.copy_object, Bucket=BUCKET, Key="copy", CopySource={"Bucket": BUCKET, "Key": "copy"})
    refused("PreconditionFailed", s3.copy_object, Bucket=BUCKET, Key="other", CopySource={"Bucket": BUCKET, "Key": "copy"},
            CopySourceIfMatch='"0"')


def check_ranged_get():
    body = file("100k")
    put("ranges", body)
    for text, part in (("0-0", body[:1]), ("1000-1999", body[1000:2000]), ("102399-", body[-1:]), ("-5", body[-5:]),
                       ("102000-999999", body[102000:]), ("-999999", body)):
        answer = s3.get_object(Bucket=BUCKET, Key="ranges", Range=f"bytes={text}")
        same((answer["ResponseMetadata"]["HTTPStatusCode"], answer["ContentLength"]), (206, len(part)))
        same(answer["Body"].read(), part)
    same(answer["ContentRange"], "bytes 0-102399/102400")
    refused("InvalidRange", get, key="ranges", Range="bytes=102400-", status=416)
    head = s3.head_object(Bucket=BUCKET, Key="ranges", Range="bytes=0-9")
    same((head["ContentLength"], head["ContentRange"]), (10, "bytes 0-9/102400"))


def check_conditional_get():
    etag = put("conditional", b"x")["ETag"]
    same(get("conditional", IfMatch=etag), b"x")
    same(get("conditional", IfNoneMatch='"0"'), b"x")
    refused("304", get, key="conditional", IfNoneMatch=etag, status=304)
    refused("PreconditionFailed", get, key="conditional", IfMatch='"0"', status=412)
    refused("304", get, key="conditional", IfModifiedSince="2100-01-01", status=304)
    refused("PreconditionFailed", get, key="conditional", IfUnmodifiedSince="2001-01-01", status=412)
    refused("412", s3.head_object, Bucket=BUCKET, Key="conditional", IfMatch='"0"', status=412)


def check_conditional_put():
    s3.delete_object(Bucket=BUCKET, Key="once")
    etag = put("once", b"1", IfNoneMatch="*")["ETag"]
    refused("PreconditionFailed", put, key="once", body=b"2", IfNoneMatch="*", status=412)
    refused("PreconditionFailed", put, key="once", body=b"2", IfMatch='"0"', status=412)
    put("once", b"3", IfMatch=etag)
    same(get("once"), b"3")
    refused("NoSuchKey", put, key="never was", body=b"2", IfMatch=etag, status=404)
    with ThreadPoolExecutor(8) as pool:

        def race(number):
            try:
                put("raced", str(number).encode(), IfNoneMatch="*")
                return True
            except ClientError as error:
                assert error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict")
                return False

        same(sum(pool.map(race, range(16))), 1)


def check_multipart():
    config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=4)
    s3.upload_file(f"{FILES}/large", BUCKET, "large", Config=config, ExtraArgs={"Metadata": {"colour": "green"}})
    s3.download_file(BUCKET, "large", f"{WORK}/large")
    with open(f"{WORK}/large", "rb") as handle:
        same(hashlib.md5(handle.read()).hexdigest(), hashlib.md5(file("large")).hexdigest())
    head = s3.head_object(Bucket=BUCKET, Key="large")
    same((head["Metadata"], head["ETag"].rstrip('"')[-2:]), ({"colour": "green"}, "-5"))
    parts = [file("large")[start : start + (5 << 20)] for start in range(0, len(file("large")), 5 << 20)]
    expected = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
    same(head["ETag"], f'"{expected}-5"')
    part = s3.get_object(Bucket=BUCKET, Key="large", PartNumber=2)
    same((part["Body"].read() == parts[1], part["PartsCount"]), (True, 5))


def check_multipart_by_hand():
    same(keys(Prefix="assembled"), [])
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="assembled", ContentType="text/x-margay")["UploadId"]
    other = s3.create_multipart_upload(Bucket=BUCKET, Key="assembled")["UploadId"]
    named = {"Bucket": BUCKET, "Key": "assembled", "UploadId": upload}
    big = os.urandom(5 << 20)
    etags = {}
    for number, body in ((3, b"tail"), (1, big), (2, big[::-1]), (1, big[1:] + b"!")):
        etags[number] = s3.upload_part(**named, PartNumber=number, Body=body)["ETag"]
    same(keys(Prefix="assembled"), [])
    listed = s3.list_parts(**named)["Parts"]
    same([(part["PartNumber"], part["Size"]) for part in listed], [(1, 5 << 20), (2, 5 << 20), (3, 4)])
    pages = s3.get_paginator("list_parts").paginate(**named, PaginationConfig={"PageSize": 2})
    same([part["PartNumber"] for page in pages for part in page["Parts"]], [1, 2, 3])
    uploads = s3.list_multipart_uploads(Bucket=BUCKET, Prefix="assembled")["Uploads"]
    same(sorted(entry["UploadId"] for entry in uploads), sorted([upload, other]))

    def complete(*parts):
        return {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in parts]}

    done = s3.complete_multipart_upload
    refused("InvalidPart", done, **named, MultipartUpload=complete((1, '"00000000000000000000000000000000"')))
    refused("InvalidPart", done, **named, MultipartUpload=complete((1, etags[1]), (9, etags[2])))
    refused("InvalidPartOrder", done, **named, MultipartUpload=complete((2, etags[2]), (1, etags[1])))
    etags[4] = s3.upload_part(**named, PartNumber=4, Body=b"x")["ETag"]
    refused("EntityTooSmall", done, **named, MultipartUpload=complete((2, etags[2]), (3, etags[3]), (4, etags[4])))
    s3.complete_multipart_upload(**named, MultipartUpload=complete((1, etags[1]), (2, etags[2]), (3, etags[3])))
    same(get("assembled"), big[1:] + b"!" + big[::-1] + b"tail")
    same(s3.head_object(Bucket=BUCKET, Key="assembled")["ContentType"], "text/x-margay")
    s3.abort_multipart_upload(Bucket=BUCKET, Key="assembled", UploadId=other)
    refused("NoSuchUpload", s3.upload_part, Bucket=BUCKET, Key="assembled", UploadId=other, PartNumber=1, Body=b"x")
    refused("NoSuchUpload", s3.list_parts, Bucket=BUCKET, Key="assembled", UploadId=other)
    same(s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []), [])


def check_part_copy():
    put("part source", file("100k"))
    named = {"Bucket": BUCKET, "Key": "from parts"}
    named["UploadId"] = s3.create_multipart_upload(**named)["UploadId"]
    source = {"Bucket": BUCKET, "Key": "part source"}
    etag = s3.upload_part_copy(**named, PartNumber=1, CopySource=source, CopySourceRange="bytes=100-199")["CopyPartResult"]["ETag"]
    refused("InvalidRange", s3.upload_part_copy, **named, PartNumber=2, CopySource=source, CopySourceRange="bytes=0-999999")
    s3.complete_multipart_upload(**named, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    same(get("from parts"), file("100k")[100:200])


def encode(number, size):
    return base64.b64encode(number.to_bytes(size, "big")).decode()


def check_checksums():
    body = file("100k")
    sums = {
        "CRC32": encode(zlib.crc32(body), 4),
        "CRC32C": encode(crt.crc32c(body), 4),
        "CRC64NVME": encode(crt.crc64nvme(body), 8),
        "SHA1": base64.b64encode(hashlib.sha1(body).digest()).decode(),
        "SHA256": base64.b64encode(hashlib.sha256(body).digest()).decode(),
    }
    same(put("sum", body).get("ChecksumCRC32"), sums["CRC32"])  # what botocore sends unasked
    for name, value in sums.items():
        same(put("sum", body, ChecksumAlgorithm=name)[f"Checksum{name}"], value)
        answer = s3.get_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")  # botocore compares on the way
        same((answer[f"Checksum{name}"], answer["Body"].read() == body), (value, True))
        same(s3.head_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")[f"Checksum{name}"], value)
        put("sum", body, **{f"Checksum{name}": value})
        wrong = base64.b64encode(bytes(len(base64.b64decode(value)))).decode()
        refused("BadDigest", put, key="sum", body=b"other", **{f"Checksum{name}": wrong})
    same(get("sum"), body)
    digest = base64.b64encode(hashlib.md5(body).digest()).decode()
    put("sum", body, ContentMD5=digest)
    refused("BadDigest", put, key="sum", body=b"other", ContentMD5=digest)
    same(get("sum"), body)


def check_checksums_of_streams():
    for name in ("CRC32", "CRC32C", "CRC64NVME", "SHA256"):  # bodies that cannot be rewound go aws-chunked with a trailer
        with open(f"{FILES}/100k", "rb") as handle:
            put("stream", handle, ChecksumAlgorithm=name)
        same(get("stream", ChecksumMode="ENABLED"), file("100k"))


def check_checksums_of_multipart():
    for algorithm, kind in (("CRC32", "COMPOSITE"), ("SHA256", "COMPOSITE"), ("CRC64NVME", "FULL_OBJECT"), ("CRC32C", "FULL_OBJECT")):
        config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
        s3.upload_file(f"{FILES}/large", BUCKET, "large sum", Config=config,
                       ExtraArgs={"ChecksumAlgorithm": algorithm, "ChecksumType": kind})
        head = s3.head_object(Bucket=BUCKET, Key="large sum", ChecksumMode="ENABLED")
        same((algorithm, head.get("ChecksumType")), (algorithm, kind))
        value = head[f"Checksum{algorithm}"]
        if algorithm == "CRC64NVME":
            same(value, encode(crt.crc64nvme(file("large")), 8))
        if kind == "COMPOSITE":
            same(value[-2:], "-5")
        same(hashlib.md5(get("large sum", ChecksumMode="ENABLED")).digest(), hashlib.md5(file("large")).digest())


def check_signed_payload():
    signed = client(config={"s3": {"addressing_style": "path", "payload_signing_enabled": True}, "request_checksum_calculation": "when_required"})
    signed.put_object(Bucket=BUCKET, Key="signed", Body=file("100k"))
    same(get("signed"), file("100k"))


def check_presigned():
    import urllib.error
    import urllib.request

    put("presigned key +%", b"by url")
    signing = client(config={"signature_version": "s3v4"})  # boto3 still presigns with V2 unless told
    url = signing.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "presigned key +%"}, ExpiresIn=60)
    same(urllib.request.urlopen(url).read(), b"by url")
    url = signing.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "put by url"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(url, data=b"new", method="PUT"))
    same(get("put by url"), b"new")
    try:
        urllib.request.urlopen(url.replace("url?", "uri?"))
        raise AssertionError("a broken signature was accepted")
    except urllib.error.HTTPError as error:
        same(error.code, 403)


def check_errors():
    refused("NoSuchKey", get, key="nothing", status=404)
    refused("404", s3.head_object, Bucket=BUCKET, Key="nothing")
    refused("NoSuchBucket", s3.list_objects_v2, Bucket=f"{BUCKET}-none", status=404)
    refused("NoSuchBucket", s3.put_object, Bucket=f"{BUCKET}-none", Key="k", Body=b"")
    refused("404", s3.head_bucket, Bucket=f"{BUCKET}-none")
    refused("BucketNotEmpty", s3.delete_bucket, Bucket=BUCKET, status=409)
    refused("NoSuchBucket", s3.delete_bucket, Bucket=f"{BUCKET}-none", status=404)
    unknown = client(aws_access_key_id="NOSUCHKEYNOSUCHKEY00", aws_secret_access_key="x")
    refused("InvalidAccessKeyId", unknown.list_objects_v2, Bucket=BUCKET, status=403)
    wrong = client(aws_secret_access_key="wrong", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"])
    refused("SignatureDoesNotMatch", wrong.list_objects_v2, Bucket=BUCKET, status=403)
    refused("MalformedXML", s3.delete_objects, Bucket=BUCKET, Delete={"Objects": []}, status=400)
    same(s3.delete_object(Bucket=BUCKET, Key="nothing")["ResponseMetadata"]["HTTPStatusCode"], 204)
    again = s3.create_bucket
    try:
        again(Bucket=BUCKET)  # us-east-1 says yes to the owner, other regions BucketAlreadyOwnedByYou
    except ClientError as error:
        same(error.response["Error"]["Code"], "BucketAlreadyOwnedByYou")


def check_connection_after_refused_body():
    # A client that waits for 100 Continue and is refused never sends its body. The connection must go on, or say that it ends.
    import http.client
    import socket
    from urllib.parse import urlsplit

    if ENDPOINT.startswith("https"):
        return
    where = urlsplit(ENDPOINT)
    connection = socket.create_connection((where.hostname, where.port), timeout=60)
    head = f"PUT /{BUCKET}/refused HTTP/1.1\r\nHost: {where.netloc}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    connection.sendall(head.encode())
    answer = http.client.HTTPResponse(connection, method="PUT")
    answer.begin()
    answer.read()
    same(answer.status, 403)
    if answer.getheader("connection", "").lower() != "close":
        connection.sendall(f"HEAD /-/health HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        answer = http.client.HTTPResponse(connection, method="HEAD")
        answer.begin()
        same(answer.status, 200)


def check_encryption():
    body = os.urandom(300_000)
    same(put("locked", body, ServerSideEncryption="AES256")["ServerSideEncryption"], "AES256")
    same(s3.head_object(Bucket=BUCKET, Key="locked")["ServerSideEncryption"], "AES256")
    same(get("locked"), body)
    same(get("locked", Range="bytes=65530-131080"), body[65530:131081])
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    s3.put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": [rule]})
    shown = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"][0]
    same(shown["ApplyServerSideEncryptionByDefault"], rule["ApplyServerSideEncryptionByDefault"])
    same(put("default", b"x")["ServerSideEncryption"], "AES256")
    s3.delete_bucket_encryption(Bucket=BUCKET)
    if ENDPOINT.startswith("https:"):
        mine = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": os.urandom(32)}
        put("mine", body, **mine)
        same(get("mine", **mine), body)
        refused("InvalidRequest", s3.get_object, Bucket=BUCKET, Key="mine", status=400)
        refused("AccessDenied", s3.get_object, Bucket=BUCKET, Key="mine", status=403,
                SSECustomerAlgorithm="AES256", SSECustomerKey=os.urandom(32))


def select(key, expression, source, result, **more):
    """The records of the result, and the statistics; an answer without its end is an error."""
    answer = s3.select_object_content(Bucket=BUCKET, Key=key, ExpressionType="SQL", Expression=expression, InputSerialization=source,
                                      OutputSerialization=result, **more)
    events = list(answer["Payload"])
    same([name for event in events[-2:] for name in event], ["Stats", "End"])
    return b"".join(event["Records"]["Payload"] for event in events if "Records" in event), events[-2]["Stats"]["Details"]


def check_select():
    people = b"name,age\n" + b"ann,34\nbob,7\n" * 3000
    put("select.csv", people)
    put("select.csv.gz", gzip.compress(people))
    csv, rows = {"CSV": {"FileHeaderInfo": "USE"}}, {"CSV": {}}
    found, stats = select("select.csv", "select count(*), sum(cast(s.age as int)) from s3object s where s.name = 'ann'", csv, rows)
    same(found, f"3000,{3000 * 34}\n".encode())
    same((stats["BytesScanned"], stats["BytesReturned"]), (len(people), len(found)))
    found, _ = select("select.csv", "select * from s3object s limit 2", csv, {"JSON": {}})
    same(found, b'{"name":"ann","age":"34"}\n{"name":"bob","age":"7"}\n')
    whole, stats = select("select.csv.gz", "select s.name from s3object s", {**csv, "CompressionType": "GZIP"}, rows,
                          RequestProgress={"Enabled": True})
    same((len(whole), stats["BytesProcessed"]), (4 * 6000, len(people)))
    half = len(people) // 2
    parts = [select("select.csv", "select s.name from s3object s", csv, rows, ScanRange=part)[0]
             for part in ({"Start": 0, "End": half - 1}, {"Start": half})]
    same((b"".join(parts), bool(parts[1])), (whole, True))
    put("select.json", json.dumps({"all": [{"id": number, "even": number % 2 == 0} for number in range(1000)]}).encode())
    found, _ = select("select.json", "select s.id from s3object[*].all[*] s where s.even = true limit 2", {"JSON": {"Type": "DOCUMENT"}}, {"JSON": {}})
    same(found, b'{"id":0}\n{"id":2}\n')
    for code, status, key, expression, source in [
        ("ParseUnexpectedToken", 400, "select.csv", "select from", csv),
        ("NotImplemented", 501, "select.csv", "select 1 from s3object", {"Parquet": {}}),
        ("NoSuchKey", 404, "nothing", "select 1 from s3object", csv),
    ]:
        refused(code, select, status=status, key=key, expression=expression, source=source, result=rows)


def check_not_implemented_is_said():
    refused("NotImplemented", s3.put_object, Bucket=BUCKET, Key="k", Body=b"", ServerSideEncryption="aws:kms:dsse", status=501)


def check_unusual_calls():
    s3.get_bucket_acl(Bucket=BUCKET)
    same(s3.get_bucket_versioning(Bucket=BUCKET).get("Status"), None)


def check_versions_and_locks():
    name = BUCKET + "-versions"
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    same(s3.get_bucket_versioning(Bucket=name)["Status"], "Enabled")
    ids = [s3.put_object(Bucket=name, Key="a/k", Body=body)["VersionId"] for body in (b"one", b"two")]
    marker = s3.delete_object(Bucket=name, Key="a/k")
    same(marker["DeleteMarker"], True)
    refused("NoSuchKey", s3.get_object, Bucket=name, Key="a/k")
    same(s3.list_objects_v2(Bucket=name, Delimiter="/").get("CommonPrefixes", []), [])
    listed = s3.list_object_versions(Bucket=name)
    same([one["VersionId"] for one in listed["Versions"]], ids[::-1])
    same([one["IsLatest"] for one in listed["DeleteMarkers"]], [True])
    s3.copy_object(Bucket=name, Key="a/k", CopySource={"Bucket": name, "Key": "a/k", "VersionId": ids[0]})
    same(s3.get_object(Bucket=name, Key="a/k")["Body"].read(), b"one")
    s3.put_object_legal_hold(Bucket=name, Key="a/k", VersionId=ids[1], LegalHold={"Status": "ON"})
    refused("AccessDenied", s3.delete_object, Bucket=name, Key="a/k", VersionId=ids[1], status=403)
    s3.put_object_legal_hold(Bucket=name, Key="a/k", VersionId=ids[1], LegalHold={"Status": "OFF"})
    listed = s3.list_object_versions(Bucket=name)
    rest = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in listed["Versions"] + listed["DeleteMarkers"]]
    same(s3.delete_objects(Bucket=name, Delete={"Objects": rest, "Quiet": True}).get("Errors", []), [])
    s3.delete_bucket(Bucket=name)


def check_concurrent_puts():
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: put(f"together/{number % 10}/{number:04}", str(number).encode()), range(400)))
    same(len(keys(Prefix="together/")), 400)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: s3.delete_object(Bucket=BUCKET, Key=f"together/{number % 10}/{number:04}"), range(400)))
    same(keys(Prefix="together/"), [])


def check_remove_everything():
    for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    rest = keys()
    for start in range(0, len(rest), 1000):
        answer = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in rest[start : start + 1000]], "Quiet": True})
        same(answer.get("Errors", []), [])
    s3.delete_bucket(Bucket=BUCKET)
    refused("NoSuchBucket", s3.list_objects_v2, Bucket=BUCKET)


run(globals())
