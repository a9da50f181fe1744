"""Some `margay serve` that share a volume on one PostgreSQL, for the goal programs beside this file and for `make cluster`."""

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time

from postgres import Postgres
from server import ACCESS, BINARY, SECRET, Server, free_port, sign

ANSWER_SECONDS, STARTED_SECONDS = 30, 60


class Node:
    """One server; `options` are more of its own."""

    def __init__(self, folder, name, url, options=()):
        self.name, self.data = name, os.path.join(folder, name)
        self.server = Server(self.data, *options, "--metadata", url, "--store-address", f"127.0.0.1:{free_port()}")

    def wait(self):
        end = time.monotonic() + STARTED_SECONDS
        while time.monotonic() < end:
            if self.server.process.poll() is not None:
                time.sleep(0.5)
                self.server.spawn()
            try:
                if ask(self, "GET", "/")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"{self.name} did not start; see {self.data}.log")


def ask(node, method, path, query="", body=b""):
    connection = http.client.HTTPConnection("127.0.0.1", node.server.port, timeout=ANSWER_SECONDS)
    try:
        headers = sign.headers(method, node.server.host, path, query, ACCESS, SECRET)
        connection.request(method, path + ("?" + query if query else ""), body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


class World:
    """A database, servers, and a bucket."""

    def __init__(self, bucket, servers, copies, write, folder=None, options=lambda number: ()):
        self.options = options
        self.folder = folder or tempfile.mkdtemp(prefix="cluster-")
        os.chmod(self.folder, 0o755)
        self.postgres = Postgres(os.path.join(self.folder, "pg")).start()
        self.nodes, self.made = [], 0
        for _ in range(servers):
            self.add()
        self.cluster("set", "--copies", str(copies), "--write", str(write))
        # Within a second all servers know it.
        time.sleep(1.5)
        ask(self.nodes[0], "PUT", f"/{bucket}")

    def add(self, place=None):
        node = Node(self.folder, f"n{self.made}", self.postgres.url, self.options(self.made))
        if self.made:
            os.mkdir(node.data, 0o700)
            for name in ("identity-key", "encryption-keys"):
                shutil.copy(os.path.join(self.folder, "keys", name), node.data)
        self.made += 1
        node.server.spawn()
        node.wait()
        if self.made == 1:
            os.mkdir(os.path.join(self.folder, "keys"))
            for name in ("identity-key", "encryption-keys"):
                shutil.copy(os.path.join(node.data, name), os.path.join(self.folder, "keys"))
        if place is None:
            self.nodes.append(node)
        else:
            self.nodes[place] = node

    def cluster(self, *words):
        command = [BINARY, "cluster", *words, "--metadata", self.postgres.url]
        return subprocess.run(command, capture_output=True, text=True)

    def status(self):
        return json.loads(self.cluster("status", "--json").stdout)

    def until_copied(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status = self.status()
            if status["segments_with_too_few_copies"] == 0:
                return True
            time.sleep(0.5)
        return False

    def lose_disk(self, place):
        """A server is killed, its disk is gone, and a new one takes its place."""
        node = self.nodes[place]
        port = node.server.options[-1]
        node.server.kill()
        shutil.rmtree(node.data)
        store = None
        end = time.monotonic() + 60
        while time.monotonic() < end:
            stores = self.status()["stores"]
            gone = [one["store"] for one in stores if one["state"] == "not running"]
            if gone:
                store = gone[0]
                said = self.cluster("detach", str(store))
                if said.returncode == 0:
                    break
                raise SystemExit(f"store {store} at {port} cannot be detached: {said.stderr}{self.cluster('status').stdout}")
            time.sleep(0.5)
        self.add(place)

    def close(self):
        for node in self.nodes:
            node.server.kill()
        self.postgres.stop()
