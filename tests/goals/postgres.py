"""A PostgreSQL server for the goal programs: the machine's own, in a folder of its own, with every sync."""

import glob
import os
import pathlib
import signal
import subprocess
import time

from server import free_port


class Postgres:
    connections = 200

    def __init__(self, folder, address=None):
        """On a socket in the folder, or also at an address, whose network it trusts."""
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
        if not found:
            raise SystemExit("no PostgreSQL is installed: apt-get install postgresql")
        self.programs, self.folder = found[-1], pathlib.Path(folder)
        self.folder.mkdir(mode=0o755)
        self.user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"] if os.getuid() == 0 else []
        if self.user:
            subprocess.run(["chown", "postgres", folder], check=True)
        self.run("initdb", "-A", "trust", "-U", "margay", "-E", "UTF8", "--locale=C", "-D", self.folder / "data")
        self.listen = ""
        if address:
            port = free_port()
            self.listen = f"{address} -p {port}"
            with open(self.folder / "data/pg_hba.conf", "a") as rules:
                rules.write(f"host all all {address}/24 trust\n")
            self.url = f"postgres://margay@{address}:{port}/postgres"
            return
        self.url = f"postgres://margay@{str(folder).replace('/', '%2F')}/postgres"

    def run(self, program, *words):
        command = [*self.user, f"{self.programs}/{program}", *map(str, words)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    def start(self):
        settings = f"-k {self.folder} -c listen_addresses={self.listen} -c max_connections={self.connections} -c max_locks_per_transaction=256"
        for last in [False] * 30 + [True]:
            try:
                self.run("pg_ctl", "-w", "-o", settings, "-l", self.folder / "log", "-D", self.folder / "data", "start")
                return self
            except subprocess.CalledProcessError:
                # The memory of a killed one is in use until its last process is gone.
                if last:
                    raise
                time.sleep(1)

    def kill(self):
        """As a crash of the machine's PostgreSQL: no process of it is left."""
        first = int((self.folder / "data/postmaster.pid").read_text().split()[0])
        children = subprocess.run(["pgrep", "-P", str(first)], capture_output=True, text=True).stdout.split()
        for process in [first, *map(int, children)]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def stop(self):
        self.run("pg_ctl", "-m", "immediate", "-D", self.folder / "data", "stop")
