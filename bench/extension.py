#!/usr/bin/env python3
"""What recording by the extension costs Postgres.

  bench/extension.py [--pairs 40] [--clients 8] [--script select|simple-update]

Needs the server programs of Postgres, pgbench, and the extension in their folders (`hindcast extension install`). One run of
pgbench, in which recording is switched off and on in turn, every two seconds; the first second after a switch does not count,
and what was recorded is taken then. Processor time is that of pgbench's backends, as the kernel counts it in nanoseconds.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

from common import machine
from ddl import Server, programs

SCALE = 10


class Psql:
    """A session that stays."""

    def __init__(self, port):
        command = [programs() / "psql", "-XAtq", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-d", "postgres"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, statement):
        self.process.stdin.write(f"{statement};\n\\echo ended\n")
        return [line.strip() for line in iter(self.process.stdout.readline, "ended\n")]


def on_processor(pids):
    """Microseconds."""
    return sum(int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e3


def seconds(pgbench):
    """Transactions in each second of the run, as they come."""
    for line in pgbench.stderr:
        found = re.search(r"progress: ([\d.]+) s, ([\d.]+) tps", line)
        if found:
            yield float(found[1]), float(found[2])


def measure(server, arguments):
    psql = Psql(server.port)
    psql.ask("CREATE EXTENSION hindcast")
    command = [programs() / "pgbench", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-n", "-P", "1", "-M", "simple"]
    command += ["-c", str(arguments.clients), "-j", "2", "-T", str(4 * arguments.pairs + 10), "-b", {"select": "select-only"}.get(arguments.script, arguments.script)]
    pgbench = subprocess.Popen([*command, "postgres"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    ticks = seconds(pgbench)
    next(ticks)
    pids = psql.ask("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench'")
    found = {"on": [], "off": []}
    for pair in range(arguments.pairs):
        for value in ("on", "off") if pair % 2 else ("off", "on"):
            psql.ask(f"ALTER SYSTEM SET hindcast.enabled = {value}")
            psql.ask("SELECT pg_reload_conf()")
            psql.ask("SELECT count(*) FROM hindcast.take(1000000)")
            began, _ = next(ticks)
            before = on_processor(pids)
            ended, rate = next(ticks)
            found[value].append(((on_processor(pids) - before) / (rate * (ended - began)), rate))
    pgbench.kill()
    pgbench.wait()
    lost = psql.ask("SELECT lost FROM hindcast.status()")
    psql.process.kill()
    return found, lost[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--script", choices=["select", "simple-update"], default="select")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hindcast-bench-") as folder:
        server = Server(pathlib.Path(folder), "shared_preload_libraries=hindcast")
        try:
            server.call("pgbench", "-i", "-q", "-s", str(SCALE), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "postgres")
            time.sleep(1)
            found, lost = measure(server, arguments)
        finally:
            server.stop()
    print(f"{arguments.script}, {arguments.clients} clients, {arguments.pairs} pairs, {lost} records lost; {machine('fsync off')}")
    for at, name in enumerate(["µs of processor per transaction", "transactions per second"]):
        off, on = ([each[at] for each in found[value]] for value in ("off", "on"))
        low, ratio, high = statistics.quantiles([a / b for a, b in zip(on, off)], n=4)
        print(f"{name:34} off {statistics.median(off):9,.1f}  on {statistics.median(on):9,.1f}  ratio {ratio:.3f} ({low:.3f}–{high:.3f})")


if __name__ == "__main__":
    main()
