"""A network that can be broken: a process that passes connections on, and does what its standard input says.

`pass` passes, `refuse` takes no connections, `hole` takes them and every byte and passes nothing on, `cut` ends those that are there. All but
`pass` and `cut` end or silence what was there before. Standard library only.
"""

import asyncio
import subprocess
import sys


class Network:
    """The process; addresses are HOST:PORT."""

    def __init__(self, listens, target):
        command = [sys.executable, __file__, listens, target]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def order(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def end(self):
        self.process.kill()
        self.process.wait()


class Passing:
    def __init__(self, listens, target):
        self.listens, self.target = listens.split(":"), target.split(":")
        self.open, self.is_hole, self.server = set(), False, None

    async def listen(self):
        self.server = await asyncio.start_server(self.connected, *self.listens)

    async def connected(self, reader, writer):
        self.open.add(writer)
        there = None
        try:
            if self.is_hole:
                return await self.pump(reader, None)
            from_target, there = await asyncio.open_connection(*self.target)
            self.open.add(there)
            ways = [self.pump(reader, there), self.pump(from_target, writer)]
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # Who says that it ends may still wait for the answer only with half-closed connections: HTTP has none.
            for task in tasks:
                task.cancel()
        except OSError:
            pass
        finally:
            for one in filter(None, [writer, there]):
                self.open.discard(one)
                one.close()

    async def pump(self, source, target):
        while data := await source.read(1 << 16):
            if not self.is_hole and target:
                target.write(data)
                await target.drain()

    def cut(self):
        for one in list(self.open):
            one.transport.abort()

    async def order(self, word):
        was_hole, self.is_hole = self.is_hole, word == "hole"
        if word in ("cut", "refuse") or was_hole and not self.is_hole:
            self.cut()
        if word == "refuse" and self.server:
            self.server.close()
            self.server = None
        elif word != "refuse" and not self.server:
            await self.listen()


async def main(listens, target):
    passing = Passing(listens, target)
    await passing.listen()
    print("ready", flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        await passing.order(line.decode().strip())
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
