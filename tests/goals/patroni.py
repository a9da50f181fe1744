"""Hosts of a cluster on this machine, each with etcd, Patroni, PostgreSQL and `margay serve`, as `margay cluster init` sets them up: what runs is
what its unit files and settings say, with other folders, and addresses of loopback or of a network namespace for each host.

PATRONI names the program (default: the first on PATH), MARGAY_POSTGRES the version of PostgreSQL. Patroni 4 and later get --patroni 4 --quorum.
"""

import contextlib
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

from cluster import Node, World, ask
from server import ACCESS, BINARY, SECRET, Server

STARTED_SECONDS, ENDED_SECONDS, LOOK_SECONDS, PATRONI_PORT = 300, 60, 0.1, 8008
PROGRAMS = {"patroni": "PATRONI", "etcd": "ETCD"}
NAMES = "abcdefg"


def program(name):
    return os.environ.get(PROGRAMS[name]) or shutil.which(name)


def postgres_version():
    found = [int(path.split("/")[4]) for path in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    return os.environ.get("MARGAY_POSTGRES") or (found and str(max(found)))


def missing():
    """Why there can be no such cluster here, or nothing."""
    if not postgres_version():
        return "this machine has no PostgreSQL"
    absent = [name for name in PROGRAMS if not program(name)]
    if absent:
        return f"this machine has no {' and no '.join(absent)}"
    as_postgres = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"] if os.getuid() == 0 else []
    if subprocess.run([*as_postgres, program("patroni"), "--version"], capture_output=True, check=False).returncode:
        return f"the user postgres cannot run {program('patroni')}"
    return None


def patroni_version():
    told = subprocess.run([program("patroni"), "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"(\d+)\.", told)[1])


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Host:
    """`place`: its address, and what leads into its namespace."""

    def __init__(self, folder, name, place):
        self.folder, self.name, (self.address, self.before) = pathlib.Path(folder) / name, name, place
        self.running, self.groups = {}, []

    def take(self, made):
        """What `cluster init` has written for it, with the folders of this test."""
        self.folder.mkdir(mode=0o755)
        places = {
            "/etc/margay": self.folder,
            "/var/lib/margay-etcd": self.folder / "etcd",
            "/var/lib/margay-postgresql": self.folder / "pg",
            "/run/margay-postgresql": self.folder / "run",
            "/var/lib/margay": self.folder / "data",
            "/usr/bin/patroni": program("patroni"),
            "/usr/bin/etcd": program("etcd"),
            "/usr/local/bin/margay": BINARY,
            # Who asks from this machine has another address than its hosts.
            "/32 scram": "/8 scram" if self.address.startswith("127.") else "/24 scram",
        }
        for file in made.iterdir():
            text = file.read_text()
            for place, here in places.items():
                text = text.replace(place, str(here))
            text = re.sub("(MARGAY_ACCESS_KEY=).*", rf"\g<1>{ACCESS}", text)
            text = re.sub("(MARGAY_SECRET_KEY=).*", rf"\g<1>{SECRET}", text)
            (self.folder / file.name).write_text(text)
            (self.folder / file.name).chmod(file.stat().st_mode)
        for name, mode in [("etcd", 0o700), ("pg", 0o700), ("run", 0o755), ("data", 0o700)]:
            (self.folder / name).mkdir(mode=mode)
        for key in ("identity-key", "encryption-keys"):
            shutil.move(self.folder / key, self.folder / "data")
        if os.getuid() == 0:
            for owner, names in {"etcd": ["etcd"], "postgres": ["pg", "run", "patroni.yml", "bootstrap.sh"]}.items():
                for name in names:
                    shutil.chown(self.folder / name, owner, owner)

    def unit(self, name):
        """What systemd would run."""
        lines = [line.partition("=") for line in (self.folder / f"{name}.service").read_text().splitlines()]
        settings = {key: value for key, _, value in lines}
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MARGAY_", "AWS_", "PG", "ETCD"))}
        if "EnvironmentFile" in settings:
            said = pathlib.Path(settings["EnvironmentFile"]).read_text().splitlines()
            environment |= dict(line.split("=", 1) for line in said if "=" in line and not line.startswith("#"))
        user = settings.get("User")
        change = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user and os.getuid() == 0 else []
        return [*self.before, *change, *shlex.split(settings["ExecStart"])], environment

    def start(self, name):
        """`margay-etcd` or `margay-patroni`."""
        command, environment = self.unit(name)
        with open(self.folder / f"{name}.log", "ab") as log:
            # A group of its own: Patroni starts PostgreSQL and other programs, and all of them are to be gone in the end.
            self.running[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
            self.groups.append(self.running[name].pid)

    def is_running(self, name):
        return name in self.running and self.running[name].poll() is None

    def pids(self, name):
        """Also `postgres`, which has several."""
        if name != "postgres":
            return [self.running[name].pid] if self.is_running(name) else []
        try:
            first = int((self.folder / "pg/data/postmaster.pid").read_text().split()[0])
            if b"postgres" not in pathlib.Path(f"/proc/{first}/cmdline").read_bytes():
                return []
        except (OSError, IndexError, ValueError):
            return []
        children = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True).stdout.split()
        return [first, *map(int, children)]

    def signal(self, name, number):
        for pid in self.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, *names):
        for name in names:
            self.signal(name, signal.SIGKILL)
        for name in names:
            if name in self.running:
                self.running[name].wait()

    def end(self):
        """All that was started here, until nothing of it is left: its folder is removed after that."""
        end = time.monotonic() + ENDED_SECONDS
        postgres = self.pids("postgres")
        self.kill("margay-patroni")
        self.kill("postgres", "margay-etcd")
        while left := [pid for pid in {*postgres, *self.pids("postgres"), *self.of_groups()} if lives(pid)]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > end:
                print(f"left of {self.name}: {left}")
                return
            time.sleep(LOOK_SECONDS)

    def of_groups(self):
        """PostgreSQL itself makes a group of its own, and is known by its file."""
        return [int(pid) for group in self.groups for pid in subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True).stdout.split()]

    def asks(self, path, timeout=2):
        """What Patroni answers: status and content, 0 if nothing."""
        try:
            with urllib.request.urlopen(f"http://{self.address}:{PATRONI_PORT}{path}", timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, b""
        except OSError:
            return 0, b""


class UnitServer(Server):
    """`margay serve` as the unit says."""

    def __init__(self, host):
        super().__init__(host.folder / "data", address=host.address, before=host.before)
        self.unit, self.port, self.admin_port = host, 9000, 9001
        self.host = f"{host.address}:9000"

    def spawn(self):
        command, environment = self.unit.unit("margay")
        with open(self.data + ".log", "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class HostNode(Node):
    """The server of a host."""

    def __init__(self, host):
        self.name, self.data, self.server, self.host = host.name, str(host.folder / "data"), UnitServer(host), host


class Hosts(World):
    """Hosts that run, and a bucket. `network`: each is in a namespace."""

    def __init__(self, bucket, count, copies, write, folder, network=None):
        self.folder, self.network, self.made = folder, network, count
        number = os.getpid()
        places = [network.place() if network else (f"127.{100 + number % 100}.{number // 100 % 250}.{at + 1}", ()) for at in range(count)]
        self.hosts = [Host(folder, NAMES[at], places[at]) for at in range(count)]
        self.nodes = [HostNode(host) for host in self.hosts]
        try:
            self.bring_up(bucket, copies, write)
        except BaseException:
            self.close()
            raise

    def bring_up(self, bucket, copies, write):
        words = [word for host in self.hosts for word in ("--host", f"{host.name}={host.address}")]
        made = pathlib.Path(self.folder) / "made"
        more = ["--patroni", "4", "--quorum"] if patroni_version() >= 4 else ["--patroni", "3"]
        subprocess.run([BINARY, "cluster", "init", *words, *more, "--postgres", postgres_version(), "--out", made], check=True, stdout=subprocess.DEVNULL)
        for host in self.hosts:
            host.take(made / host.name)
        shutil.rmtree(made)
        settings = (self.hosts[0].folder / "margay.env").read_text()
        self.secrets = dict(line.split("=", 1) for line in settings.splitlines() if "=" in line)
        for name in ("PGPASSWORD", "MARGAY_PATRONI_PASSWORD"):
            os.environ[name] = self.secrets[name]
        self.postgres = self
        self.url = re.search('metadata = "(.*)"', (self.hosts[0].folder / "margay.toml").read_text())[1]
        for name in ("margay-etcd", "margay-patroni"):
            for host in self.hosts:
                host.start(name)
        self.until("there is a primary with its standbys", lambda: self.is_whole())
        self.nodes[0].server.spawn()
        self.nodes[0].wait()
        for node in self.nodes[1:]:
            node.server.spawn()
        for node in self.nodes[1:]:
            node.wait()
        done = self.cluster("set", "--copies", str(copies), "--write", str(write))
        assert done.returncode == 0, done.stderr
        # Servers look at the settings of the cluster each second.
        time.sleep(1.5)
        self.until("there is a bucket", lambda: self.has_bucket(bucket))

    def has_bucket(self, bucket):
        try:
            status, _ = ask(self.nodes[0], "PUT", f"/{bucket}")
        except OSError:
            return False
        # An answer that was lost has made it too.
        return status in (200, 409)

    def until(self, what, is_so, seconds=STARTED_SECONDS):
        end = time.monotonic() + seconds
        while not (found := is_so()):
            if time.monotonic() > end:
                raise SystemExit(f"not within {seconds} s: {what}; see {self.folder}")
            time.sleep(LOOK_SECONDS)
        return found

    def primary(self):
        """Whom Patroni takes for it, if there is one."""
        found = [host for host in self.hosts if host.asks("/primary")[0] == 200]
        return found[0] if len(found) == 1 else None

    def members(self):
        for host in self.hosts:
            status, said = host.asks("/cluster")
            if status == 200:
                return json.loads(said)["members"]
        return []

    def is_whole(self):
        """A primary, from which all others stream now, and one at least confirms."""
        primary = self.primary()
        if not primary:
            return False
        status, said = primary.asks("/patroni")
        streams = [one["sync_state"] for one in json.loads(said).get("replication", []) if one["state"] == "streaming"] if status == 200 else []
        return len(streams) == len(self.hosts) - 1 and bool({"sync", "quorum"} & set(streams))

    def close(self):
        for host, node in zip(self.hosts, self.nodes):
            if node.server.process and node.server.process.poll() is None:
                node.server.kill()
            host.end()
        if self.network:
            self.network.close()
