#!/usr/bin/env python3
"""What is shipped, from outside: packages that are installed, upgraded and removed, the image, the chart, the list of contents.

    tests/dist.py [files] [memory] [deb] [rpm] [image] [compose] [arm64] [chart] [sbom]     all of them without a name

DIST names a directory that tools/dist.sh has filled. Without it packages are made here from MARGAY_BIN (default:
target/release/margay), stripped: everything but that the program is static and small is looked at then. What this machine has no
tool for is left out by name (`skipped:`); tools/prepare.sh dist installs them. As root. Standard library only, but for the
chart, whose YAML is read where Python can (python3-yaml).
"""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import memory as functions_of_memory  # noqa: E402
import sign  # noqa: E402
from ports import free_port  # noqa: E402

ARCH = platform.machine()
DEB = {"x86_64": "amd64", "aarch64": "arm64"}[ARCH]
PROGRAM_BYTES_MAX = 25_000_000
# For a server to start or end; only a test that fails waits so long.
LONG_SECONDS = 120
SECRET_VARIABLES = {"MARGAY_ACCESS_KEY": "DISTDISTDISTDISTDIST", "MARGAY_SECRET_KEY": "dist/secret+dist/secret+dist/secret+dist"}
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
MOUNTS = "MARGAY_NO_FUSE" not in os.environ


class Skipped(Exception):
    """Something is not here that the part needs."""


class Part:
    """The checks of one part."""

    def __init__(self, name):
        self.name, self.good = name, 0

    def check(self, what, holds, told=""):
        if not holds:
            raise AssertionError(f"{what}: {told}" if told else what)
        self.good += 1


def call(*words, status=0, **more):
    """The output of a program, both streams; it must end with this status."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if status is not None and done.returncode != status:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}")
    return done.stdout


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skipped(f"{program} is missing")


def wait_until(what, holds):
    end = time.monotonic() + LONG_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {LONG_SECONDS} s")
        time.sleep(0.1)


def request(port, keys, method, path, body=None, query=""):
    """Status and body of one signed request."""
    host = f"127.0.0.1:{port}"
    link = http.client.HTTPConnection(host, timeout=30)
    try:
        head = sign.headers(method, host, path, query, *keys)
        link.request(method, f"{path}?{query}" if query else path, body=body, headers=head)
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


# --- a root to install into ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def scratch_root():
    """This machine's files, with all changes apart: an overlay whose upper layer is thrown away."""
    if os.geteuid() != 0:
        raise Skipped("this is not root")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="margay-dist."))
    mounted = []

    def mount(*words):
        where = words[-1]
        try:
            call("mount", *words)
        except AssertionError as error:
            raise Skipped(f"no overlay can be mounted here: {error}") from error
        mounted.append(where)

    try:
        mount("-t", "tmpfs", "tmpfs", folder)
        for name in ("upper", "work", "root"):
            (folder / name).mkdir()
        root = folder / "root"
        mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work", root)
        for name in ("dev", "proc", "sys"):
            (root / name).mkdir(exist_ok=True)
            mount("--rbind", f"/{name}", root / name)
            call("mount", "--make-rslave", root / name)
        # Data of its own, on a disk: an overlay on tmpfs cannot do all that a data directory needs.
        (root / "var/lib/margay").mkdir(exist_ok=True)
        (folder.parent / f"{folder.name}.data").mkdir()
        mount("--bind", folder.parent / f"{folder.name}.data", root / "var/lib/margay")
        yield root
    finally:
        for where in reversed(mounted):
            subprocess.run(["umount", "-l", where], check=False)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.parent / f"{folder.name}.data", ignore_errors=True)


def inside(root, *words, **more):
    return call("chroot", root, *words, env=ENVIRONMENT, **more)


class Service:
    """What systemd does with the installed unit, as far as the unit says so; systemd itself is not in the scratch root."""

    def __init__(self, root):
        self.root, self.process = root, None
        text = (root / "usr/lib/systemd/system/margay.service").read_text()
        self.lines = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
        self.capabilities = ["+" + name.removeprefix("CAP_").lower() for name in self.lines["AmbientCapabilities"].split()]

    def start(self):
        state = self.root / "var/lib" / self.lines["StateDirectory"]
        state.chmod(int(self.lines["StateDirectoryMode"], 8))
        entry = re.search(r"^margay:[^:]*:(\d+):(\d+):", (self.root / "etc/passwd").read_text(), re.M)
        os.chown(state, int(entry[1]), int(entry[2]))
        ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = self.root / "tmp/margay-notify"
        path.unlink(missing_ok=True)
        ready.bind(str(path))
        path.chmod(0o666)
        ready.settimeout(LONG_SECONDS)
        allowed = ",".join(["-all", *self.capabilities])
        drop = ["setpriv", "--reuid", self.lines["User"], "--regid", self.lines["Group"], "--clear-groups"]
        drop += ["--inh-caps", allowed, "--ambient-caps", allowed, "--bounding-set", allowed]
        environment = {**ENVIRONMENT, "NOTIFY_SOCKET": "/tmp/margay-notify"}
        self.log = open(self.root.parent / "log", "a+")
        words = ["chroot", self.root, *drop, *self.lines["ExecStart"].split()]
        self.process = subprocess.Popen(words, env=environment, stdout=self.log, stderr=self.log)
        try:
            told = ready.recv(64)
        except TimeoutError:
            self.log.seek(0)
            raise AssertionError(f"the service is not ready:\n{self.log.read()}") from None
        assert told == b"READY=1", told

    def stop(self):
        """As `systemctl stop`: SIGTERM, and it must end well."""
        self.process.send_signal(getattr(signal, self.lines["KillSignal"]))
        status = self.process.wait(LONG_SECONDS)
        assert status == 0, f"the service ended with {status}"
        self.process = None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Load(threading.Thread):
    """Puts objects one after the other until it is told to end, and notes what was acknowledged."""

    def __init__(self, port, keys, name):
        super().__init__(daemon=True)
        self.port, self.keys, self.name, self.ending = port, keys, name, False
        self.acknowledged = []

    def run(self):
        number = 0
        while not self.ending:
            key, body = f"load/{self.name}/{number}", self.body(number)
            try:
                if request(self.port, self.keys, "PUT", f"/photos/{key}", body)[0] == 200:
                    self.acknowledged.append(number)
            except (OSError, http.client.HTTPException):
                # The server is away for a moment; nothing was acknowledged.
                time.sleep(0.02)
            number += 1

    def body(self, number):
        # Small ones travel in the log, large ones in segments.
        return hashlib.sha256(f"{self.name}/{number}".encode()).digest() * (8 if number % 8 else 20_000)

    def lost(self):
        """What was acknowledged and is not there as it was."""
        found = lambda number: request(self.port, self.keys, "GET", f"/photos/load/{self.name}/{number}")
        return [number for number in self.acknowledged if found(number) != (200, self.body(number))]


# --- the parts -------------------------------------------------------------------------------------------------------------


def prepare_config(root):
    """Free ports in the settings, as an administrator changes them."""
    port, admin = free_port(), free_port()
    path = root / "etc/margay/margay.toml"
    path.write_text(path.read_text().replace("127.0.0.1:9000", f"127.0.0.1:{port}").replace("127.0.0.1:9001", f"127.0.0.1:{admin}"))
    return port


def memory(part):
    needs(os.environ.get("CC", "cc"))
    count = functions_of_memory.check_all()
    part.check("memcmp, memcpy, memmove and memset do what Python does", count > 100_000, count)
    print(f"evidence: memory functions of the static program: {count} comparisons with Python")


def installed(part, root):
    """The files of either package."""
    version = inside(root, "/usr/bin/margay", "--version").split()
    part.check("the program says its version", version[:2] == ["margay", World.version], version)
    user = re.search(r"^margay:x:\d+:\d+:.*:(.*):(.*)$", (root / "etc/passwd").read_text(), re.M)
    part.check("there is a user that cannot log in", user and user[1] == "/var/lib/margay" and user[2].endswith("nologin"), user)
    part.check("mount(8) finds its helper", os.readlink(root / "usr/sbin/mount.margay") == "../bin/margay")
    config = (root / "etc/margay/margay.toml").stat()
    part.check("settings are not for everybody", config.st_mode & 0o777 == 0o640, oct(config.st_mode))
    rows = json.loads(inside(root, "/usr/bin/margay", "config", "--json", "--config", "/etc/margay/margay.toml"))
    data = next(row for row in rows if row["name"] == "data")
    part.check("the skeleton of settings is right", data["value"] == "/var/lib/margay", data)
    call("bash", "-n", root / "usr/share/bash-completion/completions/margay")
    part.check("pages are there", (root / "usr/share/man/man1/margay-bucket-quota.1.gz").stat().st_size > 300)
    part.check("licences of what is inside are there", (root / "usr/share/doc/margay/THIRD-PARTY.gz").stat().st_size > 10_000)
    unit = root / "usr/lib/systemd/system/margay.service"
    program = re.search(r"^ExecStart=(\S+) ", unit.read_text(), re.M)[1]
    part.check("the unit starts what is installed", os.access(root / program.lstrip("/"), os.X_OK), program)
    if shutil.which("systemd-analyze"):
        told = call("systemd-analyze", "verify", f"--root={root}", "--man=no", "/usr/lib/systemd/system/margay.service", status=None)
        part.check("systemd finds nothing wrong in the unit", "margay.service" not in told, told)
    told = inside(root, "/usr/bin/margay", "health", "--data", "/var/lib/margay", status=1)
    part.check("without a server it is not healthy", "no server runs" in told, told)


def deb(part):
    needs("dpkg", "dpkg-deb", "setpriv")
    first, second = World.package("deb"), World.newer("deb")
    with scratch_root() as root:
        began = time.monotonic()
        dpkg = ["dpkg", f"--root={root}", "--force-confdef", "--force-confold"]
        # Gate: from the package to a server, a bucket and a mount in five commands. The package starts the service where there
        # is systemd, so that is one command; here the two are apart.
        commands = [lambda: call(*dpkg, "-i", first, env=ENVIRONMENT)]
        commands[0]()
        installed(part, root)
        port = prepare_config(root)
        service = Service(root)
        try:
            service.start()
            keys = load_keys(root)
            commands += [lambda: inside(root, "/usr/bin/margay", "client", "mb", "s3://photos", "--config", "/etc/margay/margay.toml",
                                        "--endpoint", f"http://127.0.0.1:{port}")]
            commands[1]()
            inside(root, "/usr/bin/margay", "health", "--data", "/var/lib/margay")
            inside(root, "/usr/bin/margay", "health", "--endpoint", f"http://127.0.0.1:{port}")
            part.check("it is healthy over its socket and over HTTP", True)
            if MOUNTS:
                commands += [lambda: (root / "mnt/photos").mkdir(exist_ok=True),
                             lambda: inside(root, "/usr/bin/margay", "mount", "photos", "/mnt/photos", "--data", "/var/lib/margay")]
                for command in commands[2:]:
                    command()
                mounted(part, root, port, keys)
            took = time.monotonic() - began
            part.check("five commands", len(commands) <= 5, len(commands))
            print(f"evidence: from the package to a server, a bucket{' and a mount' if MOUNTS else ''}: {len(commands)} commands, {took:.1f} s")
            upgraded(part, root, service, port, keys, lambda: call(*dpkg, "-i", second, env=ENVIRONMENT))
            service.stop()
        finally:
            service.kill()
        call(*dpkg, "-r", "margay", env=ENVIRONMENT)
        part.check("the program is removed, settings stay", removed(root) and (root / "etc/margay/margay.toml").exists())
        told = call(*dpkg, "-P", "margay", env=ENVIRONMENT)
        part.check("settings are purged", not (root / "etc/margay").exists())
        part.check("data stays, and that is said", any((root / "var/lib/margay").iterdir()) and "are kept" in told, told)


def rpm(part):
    needs("rpm", "rpmbuild", "setpriv")
    first, second = World.package("rpm"), World.newer("rpm")
    with scratch_root() as root:
        # The packages that this one names are dpkg's here.
        rpm = ["rpm", "--root", root, "--nodeps"]
        call(*rpm, "-i", first, env=ENVIRONMENT)
        installed(part, root)
        port = prepare_config(root)
        service = Service(root)
        try:
            service.start()
            keys = load_keys(root)
            part.check("a bucket is made", request(port, keys, "PUT", "/photos")[0] == 200)
            upgraded(part, root, service, port, keys, lambda: call(*rpm, "-U", second, env=ENVIRONMENT))
            service.stop()
        finally:
            service.kill()
        call(*rpm, "-e", "margay", env=ENVIRONMENT)
        part.check("the program is removed", removed(root))
        part.check("changed settings stay, data too", (root / "etc/margay/margay.toml.rpmsave").exists() and any((root / "var/lib/margay").iterdir()))


def load_keys(root):
    text = (root / "var/lib/margay/keys").read_text()
    return [re.search(rf"^{name} *= *(\S+)$", text, re.M)[1] for name in ("aws_access_key_id", "aws_secret_access_key")]


def mounted(part, root, port, keys):
    place = root / "mnt/photos"
    (place / "cat.txt").write_text("meow")
    part.check("a file is an object", request(port, keys, "GET", "/photos/cat.txt") == (200, b"meow"))
    part.check("an object is stored", request(port, keys, "PUT", "/photos/dog.txt", b"woof")[0] == 200)
    part.check("an object is a file", (place / "dog.txt").read_text() == "woof")
    # The service is not root, and yet everybody may use the mount.
    told = inside(root, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "ls", "/mnt/photos")
    part.check("other users see the mount", "dog.txt" in told, told)


def upgraded(part, root, service, port, keys, install):
    """The other version is installed under load; the service restarts as the package has systemd do it."""
    loads = [Load(port, keys, f"{number}") for number in range(4)]
    for load in loads:
        load.start()
    some = lambda more: lambda: all(len(load.acknowledged) >= more[load.name] + 20 for load in loads)
    wait_until("writes before the upgrade", some({load.name: 0 for load in loads}))
    install()
    before = {load.name: len(load.acknowledged) for load in loads}
    service.stop()
    service.start()
    wait_until("writes after the upgrade", some(before))
    for load in loads:
        load.ending = True
    for load in loads:
        load.join(LONG_SECONDS)
    version = inside(root, "/usr/bin/dpkg-query", "-W", "margay", status=None) + call("rpm", "--root", root, "-q", "margay", status=None)
    part.check("the newer package is installed", World.newer_version in version, version)
    part.check("the settings are as they were", str(port) in (root / "etc/margay/margay.toml").read_text())
    count = sum(len(load.acknowledged) for load in loads)
    lost = {load.name: load.lost() for load in loads}
    part.check("no acknowledged write is lost", not any(lost.values()), lost)
    print(f"evidence: upgrade of the {part.name} under load: {count} acknowledged writes, 0 lost")


def removed(root):
    gone = ["usr/bin/margay", "usr/sbin/mount.margay", "usr/lib/systemd/system/margay.service", "usr/share/man/man1/margay.1.gz"]
    return not any(os.path.lexists(root / path) for path in gone)


def archive_of_image():
    """The image; made here when DIST names nothing."""
    needs("podman", "runc")
    archive = World.dist / f"margay-{World.version}-image-{DEB}.tar"
    if not archive.exists():
        if World.is_given:
            raise Skipped("DIST has no image")
        needs("buildah")
        if "INTERP" in call("readelf", "--program-headers", World.program):
            raise Skipped("an image has no libraries, and the program of MARGAY_BIN is not static")
        World.make("image")
    return archive


def image(part):
    archive = archive_of_image()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="margay-image."))
    podman = ["podman", "--storage-driver", "vfs", "--root", folder / "storage", "--runroot", folder / "run", "--cgroup-manager", "cgroupfs",
              "--runtime", shutil.which("runc")]
    # No more than this machine has: a sandbox may not raise them.
    options = ["--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
    for name, value in SECRET_VARIABLES.items():
        options += ["--env", f"{name}={value}"]
    keys, port = list(SECRET_VARIABLES.values()), free_port()
    options += ["--env", f"MARGAY_ADDRESS=127.0.0.1:{port}", "--env", f"MARGAY_ADMIN_ADDRESS=127.0.0.1:{free_port()}"]
    name = f"docker.io/library/margay:{World.version}"
    healthy = lambda which: subprocess.run([*podman, "healthcheck", "run", which], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).returncode == 0
    try:
        call(*podman, "load", "--quiet", "--input", archive)
        told = call(*podman, "run", "--rm", *options, name, "--version", status=None)
        # podman complains above it where there is no systemd.
        if not any(line.startswith("margay ") for line in told.splitlines()):
            raise Skipped(f"podman cannot run a container here: {told.strip()}")
        (folder / "data").mkdir()
        call(*podman, "run", "--detach", "--name", "plain", *options, "--volume", f"{folder}/data:/data", name)
        wait_until("the container is healthy by its own check", lambda: healthy("plain"))
        part.check("a bucket and an object", request(port, keys, "PUT", "/photos")[0] == 200 and request(port, keys, "PUT", "/photos/a", b"x")[0] == 200)
        part.check("the object is read", request(port, keys, "GET", "/photos/a") == (200, b"x"))
        call(*podman, "stop", "--time", str(LONG_SECONDS), "plain")
        part.check("it stopped well", call(*podman, "inspect", "--format", "{{.State.ExitCode}}", "plain").strip() == "0")
        # Without the device and the right there is one line, and S3 is served.
        place = folder / "mnt"
        place.mkdir()
        words = ["--volume", f"{folder}/data:/data"]
        call(*podman, "run", "--detach", "--name", "lame", *options, *words, name, "serve", "--mount", "photos=/mnt")
        wait_until("it serves without a mount", lambda: healthy("lame"))
        lines = [line for line in call(*podman, "logs", "lame").splitlines() if "not mounted; S3 is served all the same" in line]
        part.check("one line says what the mount lacks", len(lines) == 1 and "/dev/fuse" in lines[0], call(*podman, "logs", "lame"))
        call(*podman, "stop", "--time", str(LONG_SECONDS), "lame")
        if MOUNTS:
            call("mount", "--bind", place, place)
            call("mount", "--make-shared", place)
            try:
                words += ["--device", "/dev/fuse", "--cap-add", "SYS_ADMIN", "--volume", f"{place}:/mnt/photos:rshared"]
                call(*podman, "run", "--detach", "--name", "mounted", *options, *words, name, "serve", "--mount", "photos=/mnt/photos")
                wait_until("the bucket is a directory of the host", lambda: (place / "a").exists())
                (place / "b").write_text("from the host")
                part.check("a file of the host is an object", request(port, keys, "GET", "/photos/b") == (200, b"from the host"))
                call(*podman, "stop", "--time", str(LONG_SECONDS), "mounted")
                part.check("the mount went with the container", not (place / "a").exists())
            finally:
                subprocess.run([*podman, "rm", "--force", "mounted"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                subprocess.run(["umount", "-R", "-l", place], check=False)
    finally:
        subprocess.run([*podman, "rm", "--force", "--all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(["umount", "-l", folder / "storage/overlay"], stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def compose(part):
    """The files of packaging/compose, by podman-compose; its network is the host's, and its ports are free ones."""
    tool = shutil.which("podman-compose") or pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "dist-tools/bin/podman-compose"
    needs(tool)
    archive = archive_of_image()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="margay-compose."))
    keys, port = list(SECRET_VARIABLES.values()), free_port()
    place = folder / "photos"
    place.mkdir()
    (folder / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n')
    (folder / "containers.conf").write_text(f"""[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
volume_path = "{folder}/volumes"
[engine.runtimes]
runc = ["{shutil.which('runc')}"]
""")
    (folder / "here.yaml").write_text(f"""services:
  margay:
    network_mode: host
    environment:
      MARGAY_ADDRESS: 127.0.0.1:{port}
      MARGAY_ADMIN_ADDRESS: 127.0.0.1:{free_port()}
""")
    environment = {**os.environ, **SECRET_VARIABLES, "MARGAY_VERSION": World.version}
    environment |= {"CONTAINERS_CONF": str(folder / "containers.conf"), "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}
    source = ROOT / "packaging/compose"

    def run(*words, files=("compose.yaml",), **more):
        named = [word for name in files for word in ("-f", source / name)]
        return call(tool, "--project-name", "try", *named, "-f", folder / "here.yaml", *words, env=environment, **more)

    def is_healthy():
        found = call("podman", "ps", "--all", "--format", "{{.Names}}", env=environment).split()
        return bool(found) and subprocess.run(["podman", "healthcheck", "run", found[0]], env=environment, stdout=subprocess.PIPE).returncode == 0

    try:
        call("podman", "load", "--quiet", "--input", archive, env=environment)
        run("up", "--detach")
        wait_until("it is healthy by the check of the file", is_healthy)
        part.check("a bucket and an object", request(port, keys, "PUT", "/photos")[0] == 200 and request(port, keys, "PUT", "/photos/a", b"x")[0] == 200)
        run("down")
        run("up", "--detach")
        wait_until("it is healthy again", is_healthy)
        part.check("the volume has outlived the container", request(port, keys, "GET", "/photos/a") == (200, b"x"))
        run("down")
        refused = subprocess.run([tool, "-f", source / "compose.yaml", "config"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env={name: value for name, value in environment.items() if name not in SECRET_VARIABLES})
        part.check("without keys it says so", refused.returncode != 0 and "choose one" in refused.stdout, refused.stdout)
        if MOUNTS:
            # The directory of the file is the host's; here it is another one.
            text = (source / "mount.yaml").read_text()
            part.check("mount.yaml names the directory once", text.count("source: /mnt/photos") == 1)
            (folder / "mount.yaml").write_text(text.replace("source: /mnt/photos", f"source: {place}"))
            call("mount", "--bind", place, place)
            call("mount", "--make-shared", place)
            run("up", "--detach", files=("compose.yaml", folder / "mount.yaml"))
            wait_until("the bucket is a directory of the host", lambda: (place / "a").exists())
            part.check("an object is a file", (place / "a").read_text() == "x")
            run("down", files=("compose.yaml", folder / "mount.yaml"))
            part.check("the mount went with the container", not (place / "a").exists())
    finally:
        subprocess.run(["podman", "rm", "--force", "--all"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if MOUNTS:
            subprocess.run(["umount", "-R", "-l", place], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["umount", "-l", folder / "storage/overlay"], stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def arm64(part):
    program = World.dist / "bin/margay-aarch64"
    if not program.exists():
        raise Skipped("tools/dist.sh binary has not built it")
    needs("qemu-aarch64")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="margay-arm64.") as folder:
        words = ["qemu-aarch64", program, "serve", "--data", f"{folder}/data", "--address", f"127.0.0.1:{port}", "--admin-address", "off"]
        with open(f"{folder}/log", "w+") as log:
            server = subprocess.Popen(words, env={**ENVIRONMENT, **SECRET_VARIABLES}, stdout=log, stderr=log)
            try:
                keys = list(SECRET_VARIABLES.values())
                serves(part, port, keys, lambda: pathlib.Path(f"{folder}/log").read_text(), server)
                server.send_signal(signal.SIGTERM)
                part.check("it stops well", server.wait(LONG_SECONDS) == 0)
            finally:
                server.kill()
                server.wait()


def serves(part, port, keys, log, server):
    def answers():
        if server.poll() is not None:
            raise AssertionError(f"it ended with {server.returncode}:\n{log()}")
        with contextlib.suppress(OSError):
            return request(port, keys, "GET", "/-/health")[0] == 200
        return False

    wait_until("it answers", answers)
    part.check("a bucket", request(port, keys, "PUT", "/photos")[0] == 200)
    bodies = {"small": b"x", "large": os.urandom(3 << 20)}
    for name, body in bodies.items():
        part.check(f"PUT {name}", request(port, keys, "PUT", f"/photos/{name}", body)[0] == 200)
        part.check(f"GET {name}", request(port, keys, "GET", f"/photos/{name}") == (200, body))
    status, listing = request(port, keys, "GET", "/photos", query="list-type=2")
    part.check("a listing", status == 200 and re.findall(rb"<Key>(.*?)</Key>", listing) == [b"large", b"small"], listing)


def known_variables():
    rows = json.loads(call(World.program, "config", "--json", env=ENVIRONMENT))
    return {row["environment"] for row in rows} | set(SECRET_VARIABLES)


def chart(part):
    needs("helm")
    try:
        import yaml
    except ImportError as error:
        raise Skipped("Python has no yaml (python3-yaml)") from error
    helm, known = ROOT / "packaging/helm", known_variables()
    call("helm", "lint", "--strict", helm)
    variants = {
        "defaults": [],
        "tls": ["--set", "tls.existingSecret=cert", "--set", "rootKeys.existingSecret=mine", "--set", "settings.MARGAY_LIMITS_CACHE_BYTES=1GiB"],
        "mounts": ["--set", "mounts[0].bucket=photos,mounts[0].hostPath=/mnt/photos", "--set", "service.type=NodePort,storage.className=fast"],
    }
    for name, words in variants.items():
        rows = [row for row in yaml.safe_load_all(call("helm", "template", "try", helm, *words)) if row]
        kinds = sorted(row["kind"] for row in rows)
        part.check(f"{name}: what there is", kinds == ["Secret"] * (name != "tls") + ["Service", "StatefulSet"], kinds)
        spec = next(row for row in rows if row["kind"] == "StatefulSet")["spec"]
        pod = spec["template"]["spec"]
        container = pod["containers"][0]
        variables = {row["name"] for row in container["env"]}
        part.check(f"{name}: variables that the program knows", variables <= known, variables - known)
        labels = spec["template"]["metadata"]["labels"]
        part.check(f"{name}: the selector selects", spec["selector"]["matchLabels"].items() <= labels.items(), labels)
        service = next(row for row in rows if row["kind"] == "Service")["spec"]
        part.check(f"{name}: the service selects", service["selector"].items() <= labels.items(), service)
        volumes = {row["name"] for row in pod["volumes"] or []} | {row["metadata"]["name"] for row in spec["volumeClaimTemplates"]}
        part.check(f"{name}: volumes exist", {row["name"] for row in container["volumeMounts"]} == volumes, volumes)
        part.check(f"{name}: one server of a data directory", spec["replicas"] == 1)
        probe = container["readinessProbe"]["httpGet"]
        part.check(f"{name}: it is asked whether it is ready", probe["path"] == "/-/ready" and probe["scheme"] == ("HTTPS" if name == "tls" else "HTTP"), probe)
        # The program itself takes the words, up to where it would serve.
        words = [word for word in container["args"][1:] if not word.startswith("--tls")]
        call(World.program, "config", *words, env=ENVIRONMENT)
        is_privileged = container["securityContext"].get("privileged", False)
        part.check(f"{name}: privileged only for mounts", is_privileged == (name == "mounts") and bool(pod.get("securityContext")) != is_privileged)
    for name in ("compose", "mount"):
        service = yaml.safe_load((ROOT / f"packaging/compose/{name}.yaml").read_text())["services"]["margay"]
        unknown = set(service.get("environment", {})) - known
        part.check(f"{name}.yaml: variables that the program knows", not unknown, unknown)
        call(World.program, "config", *service["command"][1:], env=ENVIRONMENT)


def sbom(part):
    # On a new machine cargo tells on stderr what it fetches.
    def listed():
        return json.loads(subprocess.check_output([ROOT / "tools/sbom.py", "sbom", World.version, "x86_64", "aarch64"]))

    found = listed()
    names = {row["name"] for row in found["components"]}
    part.check("what is linked is named", {"ring", "mimalloc", "hyper", "musl", "margay-volume"} <= names, names)
    part.check("what only tests use is not", not {"proptest", "margay-sim"} & names)
    references = [row["bom-ref"] for row in found["components"]] + [found["metadata"]["component"]["bom-ref"]]
    part.check("each is named once", len(references) == len(set(references)))
    dangling = {need for row in found["dependencies"] for need in row["dependsOn"]} - set(references)
    part.check("dependencies are in the list", not dangling, dangling)
    part.check("each has a licence", all(row.get("licenses") for row in found["components"]))
    bare = [row["name"] for row in found["components"] if not row.get("hashes") and not row["name"].startswith(("margay", "musl"))]
    part.check("each of the registry has its checksum", not bare, bare)
    part.check("the same source gives the same list", found == listed())


def files(part):
    """Sizes, checksums, and that a second making gives the same bytes."""
    if World.is_given:
        for program in sorted((World.dist / "bin").iterdir()):
            size = program.stat().st_size
            part.check(f"{program.name} is small", size <= PROGRAM_BYTES_MAX, f"{size} bytes, at most {PROGRAM_BYTES_MAX}")
            told = call("readelf", "--program-headers", "--dynamic", program)
            part.check(f"{program.name} is static", "INTERP" not in told and "NEEDED" not in told)
            part.check(f"{program.name} is stripped", ".symtab" not in call("readelf", "--sections", "--wide", program))
            print(f"evidence: {program.name} has {size} bytes, static and stripped")
        if (World.dist / "SHA256SUMS").exists():
            call("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=World.dist)
            part.check("checksums are right", True)
    else:
        print("skipped: dist that the program is static and small, because DIST names nothing that tools/dist.sh binary has built")
    packages = [World.package("deb")] if shutil.which("dpkg-deb") else []
    packages += [World.package("rpm")] if shutil.which("rpmbuild") else []
    with tempfile.TemporaryDirectory() as folder:
        again = pathlib.Path(folder)
        (again / "bin").mkdir()
        shutil.copy(World.program, again / "bin" / f"margay-{ARCH}")
        World.make("packages", dist=again)
        for package in packages:
            part.check(f"{package.name} is the same when it is made again", package.read_bytes() == (again / package.name).read_bytes())


# --- what is tested --------------------------------------------------------------------------------------------------------


class World:
    """The directory with what is shipped, given or made here."""

    version = newer_version = ""
    is_given = "DIST" in os.environ
    folder = dist = program = None

    @classmethod
    def open(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="margay-dist-made."))
        cls.version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        cls.newer_version = f"{cls.version}.1"
        cls.dist = pathlib.Path(os.environ["DIST"]).resolve() if cls.is_given else cls.folder / "dist"
        cls.program = cls.dist / "bin" / f"margay-{ARCH}"
        if not cls.is_given:
            target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
            cls.program.parent.mkdir(parents=True)
            call("strip", "-o", cls.program, os.environ.get("MARGAY_BIN") or target / "release/margay")

    @classmethod
    def make(cls, part, dist=None, **more):
        environment = {**os.environ, "DIST": str(dist or cls.dist), "ARCHES": ARCH, **more}
        return call(ROOT / "tools/dist.sh", part, env=environment)

    @classmethod
    def package(cls, kind, dist=None, version=None, **more):
        version = version or cls.version
        name = f"margay_{version}-1_{DEB}.deb" if kind == "deb" else f"margay-{version}-1.{ARCH}.rpm"
        path = (dist or cls.dist) / name
        if not path.exists():
            needs("dpkg-deb", "rpmbuild")
            cls.make("packages", dist, **more)
        return path

    @classmethod
    def newer(cls, kind):
        """The same program in a package of a later version."""
        dist = cls.folder / "newer"
        (dist / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(cls.program, dist / "bin")
        return cls.package(kind, dist, cls.newer_version, DIST_VERSION=cls.newer_version)


PARTS = {"files": files, "memory": memory, "deb": deb, "rpm": rpm, "image": image, "compose": compose, "arm64": arm64, "chart": chart, "sbom": sbom}


def main(names):
    World.open()
    is_good = True
    try:
        for name in names or PARTS:
            part = Part(name)
            try:
                PARTS[name](part)
                print(f"client dist-{name}: {part.good} checks passed", flush=True)
            except Skipped as reason:
                print(f"skipped: dist {name}, because {reason}", flush=True)
            except (AssertionError, subprocess.SubprocessError, OSError) as error:
                is_good = False
                print(f"{name}: {error}\nclient dist-{name}: FAILED, 1 of {part.good + 1} checks", flush=True)
    finally:
        shutil.rmtree(World.folder)
    sys.exit(0 if is_good else 1)


main(sys.argv[1:])
