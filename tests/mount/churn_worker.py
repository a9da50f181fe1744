"""One process of churn.py: changes files of its own directory through both doors, and knows every byte of them.

Names lead to numbers and numbers to bytes, as in a file system; `pending` are the states that a crash may leave while an
operation runs. What an operation changed is synced before the next one begins.
"""

import ctypes
import errno
import hashlib
import http.client
import os
import pathlib
import random
import re
import sys
import time
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import sign

BUCKET = "work"
ACCESS, SECRET = "CHURNCHURN", "churn/secret+churn/secret"
# Copies and uploads there go by themselves after a second.
SHORT = "short-lived/"
RULES = f"""<LifecycleConfiguration><Rule><ID>all</ID><Filter><Prefix>{SHORT}</Prefix></Filter><Status>Enabled</Status>
<Expiration><Days>1</Days></Expiration><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>
<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>"""
FILES_MAX = 24
SIZES = [90, 5_000, 70_000, 300_000, 300_000]
FILE_BYTES_MAX = 700_000
HELD_MAX = 3
VERSIONS_MAX = 3
# Looks at a file that S3 has just changed are repeated so long: an answer may not wait for the kernel.
LATE_SECONDS = 60
FALLOC_PUNCH = 3
LIBC = ctypes.CDLL(None, use_errno=True)
GONE = (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)


class Wrong(Exception):
    """Something is not as the model says."""


class S3:
    def __init__(self, port):
        self.port, self.connection = port, None

    def ask(self, method, key, query="", body=b"", more=None, good=(200, 204)):
        path = f"/{BUCKET}/{key}" if key else f"/{BUCKET}"
        host = f"127.0.0.1:{self.port}"
        signed = sign.headers(method, host, path, query, ACCESS, SECRET, more=more)
        try:
            self.connection = self.connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            self.connection.request(method, path + ("?" + query if query else ""), body, signed)
            answer = self.connection.getresponse()
            data = answer.read()
        except (http.client.HTTPException, OSError) as error:
            self.connection = None
            raise OSError(errno.ECONNABORTED, f"S3 {method} {key}: {error}") from error
        if answer.status not in good:
            if answer.status >= 500:
                raise OSError(errno.EIO, f"S3 {method} {key}: {answer.status} {data[:300]!r}")
            raise Wrong(f"S3 {method} {key} {query}: {answer.status} {data[:300]!r}")
        return answer, data

    def get(self, key, version=None):
        answer, data = self.ask("GET", key, f"versionId={version}" if version else "", good=(200, 404))
        return data if answer.status == 200 else None

    def version(self, key):
        return self.ask("HEAD", key)[0].getheader("x-amz-version-id")


def told(data):
    return "nothing" if data is None else f"{len(data)} bytes {hashlib.md5(data).hexdigest()[:8]}"


def same(what, found, wanted):
    if found != wanted:
        at = next((i for i, (a, b) in enumerate(zip(found or b"", wanted or b"")) if a != b), "end")
        raise Wrong(f"{what}: {told(found)} instead of {told(wanted)}, differs at {at}")


def read_file(path):
    """From the server: what the kernel holds of it is dropped first."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        data = bytearray()
        while piece := os.pread(file, 1 << 20, len(data)):
            data += piece
        return bytes(data)
    finally:
        os.close(file)


class Worker:
    def __init__(self, number, options, state=None):
        self.number, self.options = number, options
        self.random = random.Random(f"{options['seed']} {number} {options['round']}")
        self.folder = f"w{number}"
        self.path = os.path.join(options["mount"], self.folder)
        self.s3 = S3(options["port"])
        self.names, self.data, self.next, self.pending = {}, {}, 0, []
        self.held, self.versions, self.by_s3 = [], {}, set()
        self.done, self.checks = {}, 0
        if state:
            self.names, self.data, self.next = state["names"], state["data"], state["next"]
            self.pending, self.versions = state["pending"], state["versions"]
            self.done, self.checks = state["done"], state["checks"]

    def state(self):
        return {
            "number": self.number, "names": self.names, "data": self.data, "next": self.next, "pending": self.pending,
            "versions": self.versions, "done": self.done, "checks": self.checks,
        }

    # The model.

    def bytes_of(self, name):
        return self.data[self.names[name]]

    def links(self, number):
        return [name for name, other in self.names.items() if other == number]

    def new(self, name, data):
        self.next += 1
        self.names[name], self.data[self.next] = self.next, data

    def drop(self, name):
        number = self.names.pop(name)
        if number not in self.names.values():
            del self.data[number]

    def some(self):
        return self.random.choice(sorted(self.names))

    def fresh_name(self):
        return f"f{self.random.randrange(10 * FILES_MAX)}"

    def content(self):
        return self.random.randbytes(max(1, self.random.choice(SIZES) - self.random.randrange(50)))

    # The doors.

    def at(self, name):
        return os.path.join(self.path, name)

    def key(self, name):
        return f"{self.folder}/{name}"

    def sync(self):
        """Commits are ordered: what came before is durable with this."""
        file = os.open(self.at(".anchor"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def change(self, name, work, after):
        """Changes bytes of a file in one publish."""
        number = self.names[name]
        self.pending = [{link: after for link in self.links(number)}]
        file = os.open(self.at(name), os.O_RDWR)
        try:
            work(file)
            os.fsync(file)
        finally:
            os.close(file)
        self.data[number] = after
        self.kept(name)

    def kept(self, name):
        """Notes the version that a door has made."""
        if not self.options["versions"]:
            return
        ids = self.versions.setdefault(name, [])
        version = self.s3.version(self.key(name))
        if not ids or ids[-1][0] != version:
            ids.append((version, self.bytes_of(name)))
        else:
            ids[-1] = (version, self.bytes_of(name))
        while len(ids) > VERSIONS_MAX:
            gone = ids.pop(self.random.randrange(len(ids) - 1))
            self.s3.ask("DELETE", self.key(name), f"versionId={gone[0]}")

    # Operations.

    def put(self):
        name, data = self.fresh_name(), self.content()
        if name in self.names:
            self.pending = [{link: some for link in self.links(self.names[name])} for some in (b"", data)]
        else:
            self.pending = [{name: b""}, {name: data}]
        file = os.open(self.at(name), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        try:
            os.write(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        if name in self.names:
            self.data[self.names[name]] = data
        else:
            self.new(name, data)
        self.kept(name)

    def byte(self):
        """A byte in the middle of a file, which splits the run that it lies in."""
        name = self.some()
        before = self.bytes_of(name)
        if before:
            at = self.random.randrange(len(before))
            self.change(name, lambda file: os.pwrite(file, b"!", at), before[:at] + b"!" + before[at + 1:])

    def write(self):
        name = self.some()
        before, piece = self.bytes_of(name), self.content()[: self.random.choice([10, 4096, 60_000])]
        at = self.random.randrange(len(before) + 1)
        self.change(name, lambda file: os.pwrite(file, piece, at), before[:at] + piece + before[at + len(piece):])

    def append(self):
        name = self.some()
        before, piece = self.bytes_of(name), self.content()[: self.random.choice([10, 4096, 60_000])]
        if len(before) < FILE_BYTES_MAX:
            self.change(name, lambda file: os.pwrite(file, piece, len(before)), before + piece)

    def truncate(self):
        name = self.some()
        before = self.bytes_of(name)
        size = self.random.randrange(min(FILE_BYTES_MAX, len(before) + 50_000) + 1)
        self.change(name, lambda file: os.ftruncate(file, size), before[:size] + bytes(max(0, size - len(before))))

    def punch(self):
        name = self.some()
        before = self.bytes_of(name)
        at, length = self.random.randrange(len(before) + 1), self.random.randrange(1, 100_000)

        def hole(file):
            if LIBC.fallocate(file, FALLOC_PUNCH, ctypes.c_long(at), ctypes.c_long(length)) != 0:
                raise OSError(ctypes.get_errno(), "fallocate")

        end = min(len(before), at + length)
        self.change(name, hole, before[:at] + bytes(max(0, end - at)) + before[end:])

    def copy_range(self):
        source, name = self.some(), self.some()
        data, before = self.bytes_of(source), self.bytes_of(name)
        if self.names[source] == self.names[name] or not data:
            return
        start = self.random.choice([0, self.random.randrange(len(data))])
        length = self.random.randrange(1, len(data) - start + 1)
        at = self.random.choice([0, self.random.randrange(len(before) + 1)])
        if at + length > FILE_BYTES_MAX:
            return
        other = os.open(self.at(source), os.O_RDONLY)

        def copy(file):
            done = 0
            while done < length:
                count = os.copy_file_range(other, file, length - done, start + done, at + done)
                if count == 0:
                    raise Wrong(f"copy_file_range of {source} ends {length - done} bytes early")
                done += count

        try:
            self.change(name, copy, before[:at] + data[start: start + length] + before[at + length:])
        finally:
            os.close(other)

    def rename(self):
        name, other = self.some(), self.fresh_name()
        if name == other or self.names.get(other) == self.names[name]:
            return
        data = self.bytes_of(name)
        # In a bucket with versions a rename is a new version and a delete marker.
        self.pending = [{name: None, other: data}]
        os.rename(self.at(name), self.at(other))
        self.sync()
        if other in self.names:
            self.drop(other)
        self.names[other] = self.names.pop(name)
        self.kept(other)

    def link(self):
        name, other = self.some(), self.fresh_name()
        if other not in self.names and not self.options["versions"]:
            self.pending = [{other: self.bytes_of(name)}]
            os.link(self.at(name), self.at(other))
            self.sync()
            self.names[other] = self.names[name]

    def unlink(self):
        name = self.some()
        hold = len(self.held) < HELD_MAX and self.random.random() < 0.3
        held = (os.open(self.at(name), os.O_RDONLY), self.bytes_of(name)) if hold else None
        alone = len(self.links(self.names[name])) == 1
        if held and alone:
            self.held.append(held)
        elif held:
            os.close(held[0])
        self.pending = [{name: None}]
        os.unlink(self.at(name))
        self.sync()
        self.drop(name)

    def look_at_held(self):
        if self.held:
            file, data = self.held.pop(0)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            found = b"".join(iter_file(file))
            os.close(file)
            same("a file without a name", found, data)
            self.checks += 1

    def s3_changed(self, name, data):
        if name in self.names:
            self.drop(name)
        self.new(name, data)
        self.by_s3.add(name)

    def s3_put(self):
        name, data = self.random.choice([self.some(), self.fresh_name()]), self.content()
        self.pending = [{name: data}]
        self.s3.ask("PUT", self.key(name), body=data)
        self.s3_changed(name, data)
        self.kept(name)

    def s3_copy(self):
        source, name = self.some(), self.random.choice([self.some(), self.fresh_name()])
        if source == name:
            return
        data = self.bytes_of(source)
        self.pending = [{name: data}]
        self.s3.ask("PUT", self.key(name), more={"x-amz-copy-source": f"/{BUCKET}/{self.key(source)}"})
        self.s3_changed(name, data)
        self.kept(name)

    def s3_multipart(self):
        name, data, source = self.fresh_name(), self.content(), self.some()
        _, said = self.s3.ask("POST", self.key(name), "uploads=")
        upload = re.search(rb"<UploadId>([^<]+)", said)[1].decode()
        if self.random.random() < 0.5 or not self.bytes_of(source):
            answer, _ = self.s3.ask("PUT", self.key(name), f"partNumber=1&uploadId={upload}", data)
            etag = answer.getheader("etag")
        else:
            data = self.bytes_of(source)
            copied = {"x-amz-copy-source": f"/{BUCKET}/{self.key(source)}"}
            _, said = self.s3.ask("PUT", self.key(name), f"partNumber=1&uploadId={upload}", more=copied)
            etag = next(one.text for one in xml.fromstring(said).iter() if one.tag.endswith("ETag"))
        if self.random.random() < 0.2:
            self.s3.ask("DELETE", self.key(name), f"uploadId={upload}")
            return
        self.pending = [{name: data}]
        part = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
        body = f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode()
        self.s3.ask("POST", self.key(name), f"uploadId={upload}", body)
        self.s3_changed(name, data)
        self.kept(name)

    def s3_short_lived(self):
        """A copy or an upload that shares bytes with a file, and expires."""
        source, short = self.some(), f"{SHORT}{self.folder}-{self.random.randrange(10)}"
        copied = {"x-amz-copy-source": f"/{BUCKET}/{self.key(source)}"}
        if self.random.random() < 0.7 or not self.bytes_of(source):
            self.s3.ask("PUT", short, more=copied)
            return
        _, said = self.s3.ask("POST", short, "uploads=")
        upload = re.search(rb"<UploadId>([^<]+)", said)[1].decode()
        self.s3.ask("PUT", short, f"partNumber=1&uploadId={upload}", more=copied, good=(200, 404))

    def s3_delete(self):
        name = self.some()
        self.pending = [{name: None}]
        self.s3.ask("DELETE", self.key(name))
        self.drop(name)
        self.by_s3.add(name)

    # Looks.

    def look(self, name):
        wanted = self.bytes_of(name)
        same(f"S3 GET of {self.key(name)}", self.s3.get(self.key(name)), wanted)
        deadline = time.monotonic() + LATE_SECONDS
        while True:
            try:
                same(f"the mount's {self.key(name)}", read_file(self.at(name)), wanted)
                break
            except (Wrong, FileNotFoundError) as error:
                if name not in self.by_s3 or time.monotonic() > deadline:
                    raise Wrong(str(error)) from error
                time.sleep(0.05)
        self.by_s3.discard(name)
        self.checks += 2
        for version, data in self.versions.get(name, [])[-VERSIONS_MAX:]:
            if self.random.random() < 0.3:
                same(f"version {version} of {self.key(name)}", self.s3.get(self.key(name), version), data)
                self.checks += 1

    def look_at_all(self):
        for name in sorted(self.names):
            self.look(name)
        deadline = time.monotonic() + LATE_SECONDS
        while True:
            found = {name for name in os.listdir(self.path) if name != ".anchor"}
            if found == set(self.names):
                break
            if time.monotonic() > deadline:
                raise Wrong(f"{self.path} shows {sorted(found ^ set(self.names))[:9]} wrongly")
            time.sleep(0.1)
        self.by_s3.clear()

    def operations(self):
        mount = [self.put] * 4 + [self.byte] * 8 + [self.write] * 3 + [self.append] * 2
        mount += [self.truncate, self.punch, self.copy_range, self.copy_range, self.rename, self.link, self.unlink]
        mount += [self.look_at_held]
        s3 = [self.s3_put] * 3 + [self.s3_copy] * 2 + [self.s3_multipart, self.s3_delete, self.s3_short_lived]
        return mount + (s3 if self.options["s3"] else [])

    def step(self):
        full = len(self.names) >= FILES_MAX
        if not self.names:
            work = self.put
        elif full and self.random.random() < 0.5:
            work = self.s3_delete if self.options["s3"] and self.random.random() < 0.5 else self.unlink
        else:
            work = self.random.choice(self.operations())
        work()
        self.pending = []
        self.done[work.__name__] = self.done.get(work.__name__, 0) + 1
        if self.names and self.random.random() < 0.3:
            self.look(self.some())

    def run(self, until, may_end):
        """Works until then, or until the server is gone when that is expected; gives what is wrong."""
        try:
            os.makedirs(self.path, exist_ok=True)
            while time.time() < until.value:
                self.step()
            self.look_at_all()
        except Wrong as wrong:
            return str(wrong)
        except OSError as error:
            if not (may_end.is_set() and error.errno in GONE):
                return f"{type(error).__name__}: {error}"
        finally:
            for file, _ in self.held:
                try:
                    os.close(file)
                except OSError:
                    pass
            self.held = []
        return None

    def after_crash(self):
        """What is there is the model, or that with one of the pending changes whole; it is the model from now on."""
        found, numbers = {}, {}
        for line in os.listdir(self.path) if os.path.isdir(self.path) else []:
            if line != ".anchor":
                found[line], numbers[line] = read_file(self.at(line)), os.stat(self.at(line)).st_ino
        base = {name: self.bytes_of(name) for name in self.names}
        for change in [{}] + self.pending:
            right = {name: data for name, data in {**base, **change}.items() if data is not None}
            if found == right:
                break
        else:
            lost = sorted(set(base) - set(found) - {name for change in self.pending for name in change})
            torn = sorted(name for name in found if found[name] != base.get(name)
                          and all(change.get(name) != found[name] for change in self.pending))
            raise Wrong(f"{self.folder}: lost {lost}, torn {torn}, pending {[sorted(one) for one in self.pending]}")
        for name, data in found.items():
            same(f"S3 GET of {self.key(name)} after a crash", self.s3.get(self.key(name)), data)
        self.checks += 2 * len(found)
        self.names, self.pending = numbers, []
        self.data = {number: found[name] for name, number in numbers.items()}
        self.next = max([self.next, *self.data])
        for name, versions in self.versions.items():
            for version, data in versions[:-1]:
                same(f"version {version} of {self.key(name)}", self.s3.get(self.key(name), version), data)


def iter_file(file):
    at = 0
    while piece := os.pread(file, 1 << 20, at):
        at += len(piece)
        yield piece
