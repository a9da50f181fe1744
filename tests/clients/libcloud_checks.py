"""Apache Libcloud's S3 driver against $ENDPOINT; started by run.sh."""

import hashlib
import io
import os

from libcloud.common.types import InvalidCredsError
from libcloud.storage.drivers.s3 import S3StorageDriver
from libcloud.storage.types import ContainerDoesNotExistError, ContainerIsNotEmptyError, ObjectDoesNotExistError
from report import FILES, fetch, file, raises, run, same

BUCKET, SEEDED, WORK = "clients-libcloud", os.environ["SEEDED"], os.environ["WORK"]
HOST, PORT = os.environ["HOST"].rsplit(":", 1)
ODD_KEYS = ["with space", "plus+plus", "per%cent", "ünïcödé/日本語", "amp&and=equals", "hash#tag", "question?mark=1", "at@colon:tilde~bang!", "a", "a/b", "a-b"]


def driver(secret=os.environ["AWS_SECRET_ACCESS_KEY"]):
    return S3StorageDriver(os.environ["AWS_ACCESS_KEY_ID"], secret, host=HOST, port=int(PORT), secure=False, region="us-east-1")


s3 = driver()


def container():
    return s3.get_container(BUCKET)


def put(key, body, **more):
    return s3.upload_object_via_stream(io.BytesIO(body), container(), key, **more)


def get(key):
    return b"".join(s3.get_object(BUCKET, key).as_stream())


def check_make_bucket():
    same(s3.create_container(BUCKET).name, BUCKET)
    assert BUCKET in [one.name for one in s3.iterate_containers()]


def check_put_and_get():
    for name in ("one", "100k"):
        done = s3.upload_object(f"{FILES}/{name}", container(), name)
        same((done.size, done.hash), (len(file(name)), hashlib.md5(file(name)).hexdigest()))
        same(get(name), file(name))
        s3.get_object(BUCKET, name).download(f"{WORK}/back", overwrite_existing=True)
        with open(f"{WORK}/back", "rb") as handle:
            same(handle.read(), file(name))


def check_multipart():
    put("large", file("large"))
    same(get("large") == file("large"), True)
    s3.upload_object(f"{FILES}/large", container(), "large from a file")
    same(s3.get_object(BUCKET, "large from a file").size, len(file("large")))
    same(list(s3.ex_iterate_multipart_uploads(container())), [])


def check_abandoned_uploads():
    upload = s3._initiate_multipart(container(), "abandoned")
    found = list(s3.ex_iterate_multipart_uploads(container()))
    same([(one.key, one.id) for one in found], [("abandoned", upload)])
    s3.ex_cleanup_all_multipart_uploads(container())
    same(list(s3.ex_iterate_multipart_uploads(container())), [])


def check_ranges():
    found = s3.get_object(BUCKET, "100k")
    same(b"".join(found.range_as_stream(1000, 2000)), file("100k")[1000:2000])
    same(b"".join(found.range_as_stream(102_000)), file("100k")[102_000:])
    found.download_range(f"{WORK}/part", 5, 10, overwrite_existing=True)
    with open(f"{WORK}/part", "rb") as handle:
        same(handle.read(), file("100k")[5:10])


def check_metadata():
    put("meta", b"m", extra={"content_type": "text/x-margay", "meta_data": {"colour": "green"}})
    found = s3.get_object(BUCKET, "meta")
    same((found.extra["content_type"], found.meta_data["colour"]), ("text/x-margay", "green"))


def check_odd_keys():
    for key in ODD_KEYS:
        put(f"odd/{key}", key.encode())
    for key in ODD_KEYS:
        same(get(f"odd/{key}"), key.encode())
    found = [one.name for one in s3.iterate_container_objects(container(), prefix="odd/")]
    same(found, sorted((f"odd/{key}" for key in ODD_KEYS), key=lambda key: key.encode()))


def check_list():
    found = [one.name for one in s3.iterate_container_objects(s3.get_container(SEEDED))]
    same(found, [f"many/{number:06}" for number in range(2500)])


def check_presigned():
    link = s3.get_object_cdn_url(s3.get_object(BUCKET, "100k"), ex_expiry=1)
    # The driver signs the host without its port.
    same(fetch(link, headers={"Host": HOST}), (200, file("100k")))


def check_errors():
    raises(ObjectDoesNotExistError, "nothing", s3.get_object, BUCKET, "nothing")
    raises(ContainerDoesNotExistError, "", s3.get_container, "clients-no-such-bucket")
    raises(InvalidCredsError, "", driver("wrong-secret").list_containers)
    raises(ContainerIsNotEmptyError, "", s3.delete_container, container())


def check_remove_everything():
    for one in s3.list_container_objects(container()):
        s3.delete_object(one)
    same(s3.list_container_objects(container()), [])
    s3.delete_container(container())
    raises(ContainerDoesNotExistError, "", s3.get_container, BUCKET)


run(globals())
