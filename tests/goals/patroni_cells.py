"""What befalls the hosts of a cluster (patroni.py), and how long nothing can be written then; cells of cluster_nothing_lost.py:
  primary   the primary's PostgreSQL is killed
  host      etcd, Patroni, PostgreSQL and the server of the primary's host are killed, and start again a while later
  lost      the primary's host reaches nobody, and nobody reaches it; without a word (network namespaces; needs root)
  hang      the primary's PostgreSQL stands still (SIGSTOP) for 2 to 20 seconds
  frozen    all of the primary's host stands still for 25 to 40 seconds
  patroni   the primary's Patroni is killed for 30 seconds, PostgreSQL goes on
  standby   a standby is killed for some seconds
  standbys  all standbys are killed for some seconds: nothing may be answered meanwhile
  etcd      one etcd is killed for some seconds
  etcds     most of etcd is killed for 10 to 30 seconds
"""

import os
import signal
import time

from cluster import Network, ask
from patroni import Hosts
from server import goal, median

CELLS = ["primary", "host", "lost", "hang", "frozen", "patroni", "standby", "standbys", "etcd", "etcds"]
# In seconds, until writes are answered again.
LIMITS = {"primary": 10, "host": 30, "lost": 30}
WHOLE_SECONDS, AGAIN_SECONDS, PROBE_SECONDS = 120, 90, 0.05
SETTLED_SECONDS = 5
# After the last standby is gone, in which an answer may be on its way.
ON_ITS_WAY_SECONDS = 1
ALL = ("margay-patroni", "postgres", "margay-etcd")


class HostTurns(Hosts):
    def __init__(self, arguments, bucket, chance, folder):
        self.arguments, self.chance, self.bucket = arguments, chance, bucket
        self.cells, self.took, self.probes, self.acknowledged = arguments.cells.split(","), {}, 0, []
        network = Network() if "lost" in self.cells else None
        super().__init__(bucket, arguments.servers, arguments.copies, arguments.write, folder, network)

    def turn(self, cell, load):
        # A standby that confirms since a moment only may lack the end of the log; without the primary Patroni then takes nobody.
        self.until("the cluster is whole", self.is_whole, WHOLE_SECONDS)
        time.sleep(SETTLED_SECONDS)
        self.until("the cluster stays whole", self.is_whole, WHOLE_SECONDS)
        # It answers late now and then.
        primary = self.until("there is one primary", self.primary, WHOLE_SECONDS)
        of_primary = {"primary": self.killed, "host": self.host, "lost": self.lost, "hang": self.hang, "frozen": self.frozen, "patroni": self.patroni}
        if cell in of_primary:
            of_primary[cell](primary)
        elif cell == "standby":
            self.without([self.chance.choice([host for host in self.hosts if host is not primary])], ALL[:2], (3, 10))
        elif cell == "standbys":
            self.standbys([host for host in self.hosts if host is not primary], load)
        elif cell == "etcd":
            self.without([self.chance.choice(self.hosts)], ALL[2:], (3, 10))
        elif cell == "etcds":
            self.without(self.chance.sample(self.hosts, len(self.hosts) // 2 + 1), ALL[2:], (10, 30))
        else:
            return False
        self.until("the cluster is whole again", self.is_whole, WHOLE_SECONDS)
        for node in self.nodes:
            node.wait()
        return True

    def again(self, cell, began, without=None):
        """Until a write that began since then is answered."""
        nodes = [node for node in self.nodes if node.host is not without]
        while time.monotonic() < began + AGAIN_SECONDS:
            self.probes += 1
            try:
                status, _ = ask(nodes[self.probes % len(nodes)], "PUT", f"/{self.bucket}/probe/{self.probes % 20}", body=b"probe")
            except OSError:
                status = 0
            if status == 200:
                self.took.setdefault(cell, []).append(time.monotonic() - began)
                return
            time.sleep(PROBE_SECONDS)
        raise SystemExit(f"{cell}: nothing is written for {AGAIN_SECONDS} s; see {self.folder}")

    def begin(self, host, *names):
        for name in names:
            if not host.is_running(name):
                host.start(name)

    def killed(self, primary):
        began = time.monotonic()
        primary.kill("postgres")
        self.again("primary", began)

    def host(self, primary):
        node = next(node for node in self.nodes if node.host is primary)
        began = time.monotonic()
        primary.kill(*ALL)
        node.server.kill()
        self.again("host", began, primary)
        self.begin(primary, "margay-etcd", "margay-patroni")
        node.server.spawn()

    def lost(self, primary):
        node = next(node for node in self.nodes if node.host is primary)
        began = time.monotonic()
        self.network.cut(node, True)
        self.again("lost", began, primary)
        time.sleep(self.chance.uniform(0, 5))
        self.network.cut(node, False)

    def hang(self, primary):
        primary.signal("postgres", signal.SIGSTOP)
        time.sleep(self.chance.uniform(2, 20))
        began = time.monotonic()
        primary.signal("postgres", signal.SIGCONT)
        self.again("hang", began)

    def frozen(self, primary):
        node = next(node for node in self.nodes if node.host is primary)
        began = time.monotonic()
        for name in ALL:
            primary.signal(name, signal.SIGSTOP)
        os.kill(node.server.process.pid, signal.SIGSTOP)
        self.again("frozen", began, primary)
        time.sleep(self.chance.uniform(0, 15))
        # The server first: it still has connections to the old primary.
        os.kill(node.server.process.pid, signal.SIGCONT)
        for name in reversed(ALL):
            primary.signal(name, signal.SIGCONT)

    def patroni(self, primary):
        began = time.monotonic()
        primary.kill("margay-patroni")
        time.sleep(30)
        self.again("patroni", began + 30)
        self.begin(primary, "margay-patroni")

    def without(self, hosts, names, seconds):
        for host in hosts:
            host.kill(*names)
        time.sleep(self.chance.uniform(*seconds))
        for host in hosts:
            self.begin(host, *(name for name in names if name != "postgres"))

    def standbys(self, hosts, load):
        for host in hosts:
            host.kill(*ALL[:2])
        time.sleep(ON_ITS_WAY_SECONDS)
        before = load.done()
        time.sleep(self.chance.uniform(5, 12))
        after = load.done()
        self.acknowledged.append(after - before)
        began = time.monotonic()
        for host in hosts:
            self.begin(host, "margay-patroni")
        self.again("standbys", began)

    def tell(self):
        for cell, took in self.took.items():
            text = f"{cell}: writes are answered again after {median(took):.1f} s, at most {max(took):.1f} s, {len(took)} times"
            if cell in LIMITS:
                goal(f"{text} ({LIMITS[cell]})", max(took) <= LIMITS[cell])
            else:
                print(text)
        if self.acknowledged:
            goal(f"without standbys {sum(self.acknowledged)} writes were answered, {len(self.acknowledged)} times", not any(self.acknowledged))
