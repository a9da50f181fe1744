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
    """One server; `options` are more of its own, `place` is its address and what leads into its namespace."""

    def __init__(self, folder, name, url, options=(), place=("127.0.0.1", ())):
        self.name, self.data, (address, before) = name, os.path.join(folder, name), place
        options = (*options, "--metadata", url, "--store-address", f"{address}:{free_port()}")
        self.server = Server(self.data, *options, address=address, before=before)

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
    connection = http.client.HTTPConnection(node.server.address, node.server.port, timeout=ANSWER_SECONDS)
    try:
        headers = sign.headers(method, node.server.host, path, query, ACCESS, SECRET)
        connection.request(method, path + ("?" + query if query else ""), body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


class Network:
    """A network namespace for each server, on one bridge of this machine, which clients and PostgreSQL are at."""

    def __init__(self):
        self.name, self.count = f"mg{os.getpid() % 10000}", 0
        self.net = f"10.{80 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self.address = f"{self.net}.1"
        ip("link", "add", self.name, "type", "bridge")
        ip("addr", "add", f"{self.address}/24", "dev", self.name)
        ip("link", "set", self.name, "up")

    def place(self):
        """Of a new server."""
        self.count += 1
        space, near, address = f"{self.name}n{self.count}", f"{self.name}v{self.count}", f"{self.net}.{self.count + 1}"
        ip("netns", "add", space)
        ip("link", "add", near, "type", "veth", "peer", "name", "net0", "netns", space)
        ip("link", "set", near, "master", self.name, "up")
        for words in [("addr", "add", f"{address}/24", "dev", "net0"), ("link", "set", "net0", "up"), ("link", "set", "lo", "up")]:
            ip("-n", space, *words)
        return address, ("ip", "netns", "exec", space)

    def cut(self, node, is_cut):
        """A server reaches nobody, and nobody reaches it."""
        number = int(node.server.address.rpartition(".")[2]) - 1
        ip("link", "set", f"{self.name}v{number}", "down" if is_cut else "up")

    def close(self):
        for number in range(1, self.count + 1):
            ip("netns", "del", f"{self.name}n{number}")
        ip("link", "del", self.name)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class World:
    """A database, servers, and a bucket. `network`: servers are in namespaces of their own. `address`: of PostgreSQL, else a socket."""

    def __init__(self, bucket, servers, copies, write, folder=None, options=lambda number: (), network=None, address=None):
        self.options, self.network = options, network
        self.folder = folder or tempfile.mkdtemp(prefix="cluster-")
        os.chmod(self.folder, 0o755)
        self.postgres = Postgres(os.path.join(self.folder, "pg"), network.address if network else address).start()
        self.nodes, self.made = [], 0
        for _ in range(servers):
            self.add()
        self.cluster("set", "--copies", str(copies), "--write", str(write))
        # Within a second all servers know it.
        time.sleep(1.5)
        ask(self.nodes[0], "PUT", f"/{bucket}")

    def add(self, place=None):
        node = self.begin()
        node.wait()
        if self.made == 1:
            os.mkdir(os.path.join(self.folder, "keys"))
            for name in ("identity-key", "encryption-keys"):
                shutil.copy(os.path.join(node.data, name), os.path.join(self.folder, "keys"))
        if place is None:
            self.nodes.append(node)
        else:
            self.nodes[place] = node

    def begin(self):
        """A server that may not answer yet."""
        at = self.network.place() if self.network else ("127.0.0.1", ())
        node = Node(self.folder, f"n{self.made}", self.postgres.url, self.options(self.made), at)
        os.mkdir(node.data, 0o700)
        self.made_folder(node)
        if self.made:
            for name in ("identity-key", "encryption-keys"):
                shutil.copy(os.path.join(self.folder, "keys", name), node.data)
        self.made += 1
        node.server.spawn()
        return node

    def made_folder(self, node):
        """The empty folder of a server that is not started yet."""

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
        self.lost_folder(node)
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

    def lost_folder(self, node):
        shutil.rmtree(node.data)

    def close(self):
        for node in self.nodes:
            node.server.kill()
        self.postgres.stop()
        if self.network:
            self.network.close()
