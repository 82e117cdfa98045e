"""What the programs of this folder share."""

import contextlib
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "target" / "release"
TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, fact, patience=60):
    deadline = time.monotonic() + patience
    while not fact():
        if time.monotonic() > deadline:
            raise SystemExit(f"Error: waited {patience} s in vain for {what}")
        time.sleep(0.02)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def tree(pid):
    """A process and all that it has started."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [pid] + [one for child in children for one in tree(int(child))]


def middle(values, digits=2):
    """Median and range."""
    if len(values) == 1:
        return f"{values[0]:,.{digits}f}"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def machine(settings="fsync and synchronous_commit off"):
    """What it was measured on. Without settings also without Postgres."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    postgres = subprocess.run("ls /usr/lib/postgresql | sort -V | tail -n 1", shell=True, capture_output=True, text=True).stdout.strip()
    with_postgres = f", Postgres {postgres} with {settings}" if settings else ""
    return f"{os.cpu_count()} cores ({model}), {memory_gb:.0f} GB, Linux {platform.release()}{with_postgres}"
