"""A follower: what it costs the program that it follows, and how long clients wait when that is killed."""

import contextlib
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import threading
import time

from common import listens, middle, wait_for

from .runs import Failed, children, hindcast, tree_cpu

WAYS = {"as it is": None, "recorded": ["--record"], "followed": ["--follow", "1"]}
CONNECTIONS = 4


def words(bench, way):
    if WAYS[way] is None:
        return []
    more = [bench.recording()] if way == "recorded" else []
    return [hindcast(), "exec", *WAYS[way], *more, "--"]


@contextlib.contextmanager
def running(bench, program, way):
    """The launcher and the program itself."""
    before = words(bench, way)
    child = bench._start([*before, *program.command], program.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_for(program.name, lambda: listens(program.port) or child.poll() is not None)
        if child.poll() is not None:
            raise Failed(f"{program.name}, {way}: {bench._stderr()}")
        yield child, min(children(child.pid)) if before else child.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        # What the launcher had started ends with it, a little later.
        wait_for(f"the end of {program.name}", lambda: not listens(program.port))
        for argument in before:
            if isinstance(argument, pathlib.Path):
                bench.forget(argument)


def load(bench, program, way):
    """Seconds that the load takes, and of the processor: the program's, and that of all that runs."""
    with running(bench, program, way) as (child, leader):
        time.sleep(0.3)
        own, everything, start = cpu_of(leader), tree_cpu(child.pid), time.monotonic()
        done = subprocess.run([*map(str, program.load)], capture_output=True, text=True, timeout=120)
        wall = time.monotonic() - start
        if done.returncode or (program.expect and program.expect not in done.stdout):
            raise Failed(f"the load of {program.name}, {way}: {done.stdout[-300:]}{done.stderr[-300:]}")
        return wall, cpu_of(leader) - own, tree_cpu(child.pid) - everything


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Clients:
    """Connections that ask one thing after the other, and the longest time between two answers of each."""

    def __init__(self, port, ask, answers):
        self.stop, self.failed, self.count = False, [], 0
        self.gaps = [0.0] * CONNECTIONS
        self.threads = [threading.Thread(target=self.run, args=(number, port, ask, answers)) for number in range(CONNECTIONS)]
        for thread in self.threads:
            thread.start()

    def run(self, number, port, ask, answers):
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            stream = connection.makefile("rb")
            last, counted = time.monotonic(), 0
            while not self.stop:
                counted += 1
                connection.sendall(ask(number, counted))
                if (line := stream.readline()) not in answers(counted):
                    raise Failed(f"{line!r} is not answer {counted}")
                now = time.monotonic()
                self.gaps[number], last, self.count = max(self.gaps[number], now - last), now, self.count + 1
        except (OSError, Failed) as error:
            self.failed.append(f"{error!r}")

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()


ASKING = {
    "redis": (lambda number, _: b"INCR count-%d\r\n" % number, lambda counted: (b":%d\r\n" % counted,)),
    # The first makes the counter.
    "memcached, 4 threads": (
        lambda number, counted: b"incr count-%d 1\r\n" % number if counted > 1 else b"set count-%d 0 0 1\r\n0\r\n" % number,
        lambda counted: (b"%d\r\n" % (counted - 1),) if counted > 1 else (b"STORED\r\n",),
    ),
}


def kill(bench, program, after):
    """The longest time that a client waited, in seconds, and whether every answer was right."""
    with running(bench, program, "followed") as (_, leader):
        time.sleep(0.3)
        clients = Clients(program.port, *ASKING[program.name])
        time.sleep(after)
        before = clients.count
        os.kill(leader, signal.SIGKILL)
        time.sleep(1)
        clients.end()
        went_on = clients.count > before + CONNECTIONS
        return max(clients.gaps), not clients.failed and went_on


def part(bench, given, chosen, Table):
    cost = Table("", *(f"{what}, {way}" for way in list(WAYS)[1:] for what in ("wall", "CPU of the program", "CPU of all")))
    takeover = Table("", "kills", "every answer right, no connection lost", "longest wait of a client, ms")
    for program in chosen:
        ratios = {way: ([], [], []) for way in list(WAYS)[1:]}
        for _ in range(given.rounds):
            off = load(bench, program, "as it is")
            for way, columns in ratios.items():
                for column, value, base in zip(columns, load(bench, program, way), off):
                    column.append(value / max(base, 0.01))
        cost.row(program.name, *(middle(column) for columns in ratios.values() for column in columns))
        waits, right = [], 0
        for number in range(10 * given.rounds):
            waited, is_right = kill(bench, program, 0.2 + number % 7 * 0.1)
            waits.append(waited * 1e3)
            right += is_right
        takeover.row(program.name, str(len(waits)), str(right), f"{statistics.median(waits):.1f} ({min(waits):.1f}–{max(waits):.1f})")
    return f"""## Followers

Multiples of the run as it is, under the load of the table above; the follower runs on the same cores as the program and its clients. Then the program is killed under {CONNECTIONS} clients that check each answer, at
another moment each time.

{cost}
{takeover}"""
