"""Writers and readers of a volume of several servers, and what each key may have: a register that is checked while things break."""

import hashlib
import random
import re
import threading
import time

from cluster import ask

KEYS_EACH = 12
SIZES = [10, 100, 3000, 4096, 70_000, 300_000, 2_000_000]
ABSENT = "absent"


def content(key, number, size):
    head = f"{key} {number} {size} ".encode()
    seed = hashlib.sha256(head).digest()
    return (head + seed * (size // 32 + 1))[: max(size, len(head))]


class Register:
    """What a key may have: the last acknowledged state, and all whose outcome nobody knows."""

    def __init__(self):
        self.lock, self.last, self.unknown, self.doubtful = threading.Lock(), ABSENT, [], set()
        self.history = []

    def allowed(self):
        return {self.last, *self.unknown, *self.doubtful}

    def read_begins(self):
        """What it may have now, and how long its history is."""
        with self.lock:
            return self.allowed(), len(self.history)

    def read_ends(self, begun):
        """What may have been read: also what began and ended meanwhile, but nothing that was over before."""
        before, mark = begun
        with self.lock:
            return before | self.allowed() | {state for _, state, _ in self.history[mark:]}

    def begins(self, state):
        with self.lock:
            self.unknown.append(state)

    def ends(self, state, is_acknowledged):
        with self.lock:
            self.unknown.remove(state)
            if is_acknowledged:
                self.last = state
            else:
                # A request that was not answered may be carried out later, also after the next one was acknowledged.
                self.doubtful.add(state)
            self.history.append((round(time.time(), 3), state, is_acknowledged))


class Load:
    """Writers, each of keys of its own, and readers, at any of the servers, until `end`."""

    def __init__(self, nodes, bucket, writers, seed):
        self.nodes, self.bucket, self.seed, self.over = nodes, bucket, seed, threading.Event()
        self.registers = {f"w{writer}/{key}": Register() for writer in range(writers) for key in range(KEYS_EACH)}
        self.wrong, self.counts, self.lock = [], {}, threading.Lock()
        self.longest, self.internal = 0.0, []
        self.threads = [threading.Thread(target=self.write, args=(writer,)) for writer in range(writers)]
        self.threads += [threading.Thread(target=self.read, args=(reader,)) for reader in range(3)]
        for thread in self.threads:
            thread.start()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def done(self):
        """Writes that were acknowledged."""
        with self.lock:
            return sum(count for what, count in self.counts.items() if what in ("PUT done", "DELETE done"))

    def write(self, writer):
        chance, number, gap = random.Random(f"{self.seed} w {writer}"), 0, time.monotonic()
        while not self.over.is_set():
            number += 1
            key = f"w{writer}/{chance.randrange(KEYS_EACH)}"
            node, register = chance.choice(self.nodes), self.registers[key]
            if chance.randrange(8) == 0:
                state, method, body = ABSENT, "DELETE", b""
            else:
                size = chance.choice(SIZES)
                state, method, body = f"{number} {size}", "PUT", content(key, number, size)
            register.begins(state)
            try:
                status, said = ask(node, method, f"/{self.bucket}/{key}", body=body)
            except OSError:
                status = 0
            if status == 500:
                self.internal.append((time.time(), node.name, method, key, said))
            is_done = status in (200, 204)
            register.ends(state, is_done)
            self.count(f"{method} {'done' if is_done else status}")
            if is_done:
                with self.lock:
                    self.longest = max(self.longest, time.monotonic() - gap)
                gap = time.monotonic()
            else:
                time.sleep(0.05)

    def read(self, reader):
        chance = random.Random(f"{self.seed} r {reader}")
        while not self.over.is_set():
            node = chance.choice(self.nodes)
            if reader == 0 and chance.randrange(4) == 0:
                self.list(node)
            else:
                self.check(node, chance.choice(list(self.registers)))

    def check(self, node, key):
        """Whether the read was answered."""
        register = self.registers[key]
        begun = register.read_begins()
        try:
            status, body = ask(node, "GET", f"/{self.bucket}/{key}")
        except OSError:
            self.count("GET 0")
            return False
        states = register.read_ends(begun)
        self.count(f"GET {status}")
        if status == 500:
            self.internal.append((time.time(), node.name, "GET", key, body))
        if status not in (200, 404):
            return False
        found = ABSENT
        if status == 200:
            words = body.split(b" ", 3)
            found = f"{words[1].decode()} {words[2].decode()}" if len(words) > 3 else "torn"
            if len(words) < 4 or body != content(words[0].decode(), int(words[1]), int(words[2])) or words[0].decode() != key:
                found = f"torn: {body[:60]}"
        if found not in states:
            self.wrong.append((time.time(), node.name, key, found, sorted(states), register.history[-5:]))
        return True

    def list(self, node):
        begun = {key: register.read_begins() for key, register in self.registers.items()}
        try:
            status, page = ask(node, "GET", f"/{self.bucket}", "list-type=2")
        except OSError:
            return
        self.count(f"LIST {status}")
        if status != 200:
            return
        shown = set(re.findall(r"<Key>([^<]*)</Key>", page.decode()))
        for key, register in self.registers.items():
            states = register.read_ends(begun[key])
            if (key in shown and states == {ABSENT}) or (key not in shown and ABSENT not in states):
                self.wrong.append((time.time(), node.name, key, f"listing, shown: {key in shown}", sorted(states), register.history[-5:]))

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
