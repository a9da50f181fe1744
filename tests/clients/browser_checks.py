"""Uploads of a real browser (a headless Chromium) against $ENDPOINT; started by run.sh.

The page comes from a server of this script, so to the browser the S3 server is another origin: it asks before it sends
(CORS), keeps answers from the page that the bucket does not share, and follows the redirection after a form.
"""

import functools
import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from checks import client, run, same

BROWSER_SECONDS_MAX = 90
BUCKET, UNSHARED = "clients-browser", "clients-browser-unshared"
PAGE = Path(__file__).with_name("browser.html").read_bytes()
WORK = os.environ["WORK"]
s3 = client(config={"signature_version": "s3v4"})


def work_for(origin):
    """What the page shall do: forms and URLs that were signed for it."""
    done = f"{origin}/done?who=page"
    small = [["content-length-range", 1, 10]]
    url = functools.partial(s3.generate_presigned_url, ExpiresIn=300)
    return {
        "redirectForm": s3.generate_presigned_post(
            BUCKET, "form/${filename}", Fields={"success_action_redirect": done}, Conditions=[{"success_action_redirect": done}]
        ),
        "statusForm": s3.generate_presigned_post(
            BUCKET, "form/${filename}", Fields={"success_action_status": "201"}, Conditions=[{"success_action_status": "201"}]
        ),
        "smallForm": s3.generate_presigned_post(BUCKET, "small", Conditions=small),
        "put": url("put_object", Params={"Bucket": BUCKET, "Key": "put", "Metadata": {"colour": "green"}, "ContentType": "text/x-cat"}),
        "get": url("get_object", Params={"Bucket": BUCKET, "Key": "put"}),
        "remove": url("delete_object", Params={"Bucket": BUCKET, "Key": "put"}),
        "otherBucket": url("put_object", Params={"Bucket": UNSHARED, "Key": "never"}),
    }


class PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), PageHandler)
        self.origin = f"http://127.0.0.1:{self.server_port}"
        self.work, self.report, self.reported = {}, {}, threading.Event()


class PageHandler(BaseHTTPRequestHandler):
    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/work":
            self.answer("application/json", json.dumps(self.server.work).encode())
        else:
            self.answer("text/html; charset=utf-8", PAGE if self.path == "/" else b"<title>done</title>")

    def do_POST(self):
        self.server.report = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer("text/plain", b"")
        self.server.reported.set()

    def log_message(self, *arguments):
        pass


@functools.cache
def browsed():
    """What the browser says that came of its work, and the origin of its page."""
    s3.create_bucket(Bucket=BUCKET)
    s3.create_bucket(Bucket=UNSHARED)
    server = PageServer()
    rule = {"AllowedOrigins": [server.origin], "AllowedMethods": ["GET", "PUT", "POST"], "AllowedHeaders": ["*"],
            "ExposeHeaders": ["ETag", "x-amz-meta-colour"], "MaxAgeSeconds": 60}
    s3.put_bucket_cors(Bucket=BUCKET, CORSConfiguration={"CORSRules": [rule]})
    server.work = work_for(server.origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={WORK}/profile"]
    with open(f"{WORK}/browser.log", "wb") as log:
        browser = subprocess.Popen([os.environ["BROWSER"], *options, f"{server.origin}/"], stdout=log, stderr=log)
        try:
            reported = server.reported.wait(BROWSER_SECONDS_MAX)
        finally:
            browser.terminate()
            browser.wait()
    assert reported, Path(f"{WORK}/browser.log").read_text(errors="replace")[-400:]
    return server.report, server.origin


def content(key):
    return s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def check_form_with_redirect():
    report, origin = browsed()
    key = 'form/kätzchen "1".txt'
    assert report["formWithRedirect"].startswith(f"{origin}/done?who=page&bucket={BUCKET}&key=form/k%C3%A4tzchen%20%221%22.txt&etag="), report
    same(content(key), b"meow")
    etag = s3.head_object(Bucket=BUCKET, Key=key)["ETag"].strip('"')
    assert report["formWithRedirect"].endswith(f"&etag=%22{etag}%22"), report["formWithRedirect"]


def check_form_with_status():
    same(browsed()[0]["formWithStatus"], None)
    same(content("form/dog.txt"), b"woof")


def check_form_by_script():
    answer = browsed()[0]["formByScript"]
    same(answer["status"], 201)
    assert "<Key>form/cow.txt</Key>" in answer["text"], answer
    same(answer["etag"], s3.head_object(Bucket=BUCKET, Key="form/cow.txt")["ETag"])


def check_form_that_its_policy_refuses():
    answer = browsed()[0]["formRefused"]
    assert answer["status"] == 400 and "EntityTooLarge" in answer["text"], answer


def check_put_and_get_after_preflight():
    report = browsed()[0]
    same(report["put"]["status"], 200)
    head = s3.head_object(Bucket=BUCKET, Key="put")
    same((report["put"]["etag"], head["ContentType"], head["Metadata"]), (head["ETag"], "text/x-cat", {"colour": "green"}))
    same((report["get"]["status"], report["get"]["text"], report["get"]["colour"]), (200, "by fetch", "green"))


def check_what_the_bucket_does_not_share():
    report = browsed()[0]
    same([report["remove"], report["otherBucket"]], [{"error": "TypeError"}] * 2)
    same(content("put"), b"by fetch")
    same(s3.list_objects_v2(Bucket=UNSHARED)["KeyCount"], 0)


def check_remove_everything():
    for entry in s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
        s3.delete_object(Bucket=BUCKET, Key=entry["Key"])
    s3.delete_bucket(Bucket=BUCKET)
    s3.delete_bucket(Bucket=UNSHARED)


run(globals())
