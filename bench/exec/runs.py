"""Runs of a program: as it is, recorded, replayed; and what each of them took."""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

from common import PROGRAMS, free_port, listens, wait_for

ORDERS = ("total", "vector", "relaxed", "edge")
WAITING = ("adaptive", "spin", "wait")
SOURCES = pathlib.Path(__file__).resolve().parent
PATIENCE = 120
# Arguments that do not fit, a divergence or a standstill, or it could not be done.
HINDCAST_FAILED = (2, 124, 125)


class Failed(Exception):
    """A run did not do what it should; the other measurements are made all the same."""


@dataclasses.dataclass
class Took:
    """What a run took. Of a server, `wall` and `cpu` are those of its load while it was asked, and of all of it when it is replayed."""

    wall: float
    cpu: float
    cpu_total: float
    log_bytes: int = 0


@dataclasses.dataclass
class Program:
    """Something that is run. With a `load` it is a server: it is asked for its load, and then told to end."""

    name: str
    command: list
    load: list | None = None
    port: int | None = None
    folder: pathlib.Path | None = None
    # The time is taken between the lines `begin` and `end` that it writes.
    marks: bool = False
    # What starting and ending takes is taken off.
    net: bool = False
    # How many pairs, rows or requests, to say what one of them took.
    units: int = 0
    record: tuple = ()
    # What a load must have said, so that a server that answered errors is not measured.
    expect: str | None = None


def build(folder):
    """The C programs of this folder."""
    for source in SOURCES.glob("*.c"):
        libraries = ["-lsqlite3"] if "sqlite3.h" in source.read_text() else []
        command = ["cc", "-O2", "-w", "-o", folder / source.stem, source, "-lpthread", *libraries]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"Error: {source.name} does not compile\n{done.stderr}Hint: scripts/setup bench")


def need(program):
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        raise SystemExit(f"Error: {program} is not installed\nHint: scripts/setup bench")
    return found


def hindcast():
    return pathlib.Path(os.environ.get("HINDCAST", PROGRAMS / "hindcast"))


def log_bytes(recording):
    """What the logs of a recording take on disk, without the description beside them."""
    files = [file for file in recording.rglob("*") if file.is_file() and file.name != "recording.json"]
    return sum(min(file.stat().st_blocks * 512, file.stat().st_size) for file in files)


class Bench:
    """A folder in which things are run, and what launching by itself takes."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        self.launching = {"off": 0.0, "record": 0.0, "replay": 0.0}
        build(folder)
        # Whoever takes the time gets a core when there is something to see, not when the measured threads have used up theirs. What it starts is not so.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))

    def __getitem__(self, program):
        """A C program of this folder."""
        return self.folder / program

    def recording(self):
        self.count += 1
        return self.folder / f"recording-{self.count}"

    def off(self, program):
        return self._net(program, "off", self._serve(program, []) if program.load else self._run(program, []))

    def _net(self, program, run, took):
        if program.net:
            took.wall = max(took.wall - self.launching[run], 1e-3)
        return took

    def recorded(self, program, recording, order="edge", *more):
        words = [hindcast(), "exec", "--record", recording, "--order", order, *program.record, *more, "--"]
        took = self._serve(program, words) if program.load else self._run(program, words)
        if (said := self._stderr()) and "went on without" in said:
            raise Failed(f"recorded only in part: {said}")
        took.log_bytes = log_bytes(recording)
        return self._net(program, "record", took)

    def copied(self):
        """How long `dd` says that copying took, in seconds."""
        said = self._stderr()
        if not (found := re.search(r"copied, ([0-9.e-]+) s", said)):
            raise Failed(f"dd said nothing of its time: {said}")
        return float(found[1])

    def replayed(self, program, recording, waiting="adaptive"):
        # Its load is in the recording.
        alone = dataclasses.replace(program, command=[])
        return self._net(program, "replay", self._run(alone, [hindcast(), "exec", "--replay", recording, "--waiting", waiting]))

    def forget(self, recording):
        shutil.rmtree(recording, ignore_errors=True)

    def _start(self, command, folder=None, **streams):
        # A session of its own, so that whatever it leaves behind can be ended with it.
        return subprocess.Popen([*map(str, command)], stderr=open(self.folder / "stderr", "wb"), cwd=folder or self.folder, start_new_session=True, **streams)

    def _finish(self, child, began, patience=PATIENCE):
        """What it took in all, its children included."""
        late = threading.Timer(patience, os.killpg, (child.pid, signal.SIGKILL))
        late.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - began
        late.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        if wall >= patience:
            raise Failed(f"not done after {patience} s")
        return Took(wall, usage.ru_utime + usage.ru_stime, usage.ru_utime + usage.ru_stime)

    def _run(self, program, before):
        """Something that ends by itself."""
        command = [*before, *program.command]
        began = time.monotonic()
        if not program.marks:
            child = self._start(command, program.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            took = self._finish(child, began)
        else:
            child = self._start(command, program.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            marks = {}
            for line in child.stdout:
                marks[line.strip()] = time.monotonic()
            took = self._finish(child, began)
            if b"end" in marks and b"begin" in marks:
                took.wall = marks[b"end"] - marks[b"begin"]
            elif child.returncode == 0:
                raise Failed("it did not say begin and end")
        # Of a server it is what its end by a signal came to.
        if child.returncode != 0 and not (program.load and child.returncode not in HINDCAST_FAILED):
            raise Failed(f"exit status {child.returncode}: {self._stderr()}")
        return took

    def _serve(self, program, before):
        """A server under its load."""
        began = time.monotonic()
        child = self._start([*before, *program.command], program.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            wait_for(program.name, lambda: listens(program.port) or child.poll() is not None)
            server = innermost(child.pid)
            cpu, start = tree_cpu(server), time.monotonic()
            load = subprocess.run([*map(str, program.load)], capture_output=True, text=True, timeout=PATIENCE)
            wall, cpu = time.monotonic() - start, tree_cpu(server) - cpu
            if load.returncode or (program.expect and program.expect not in load.stdout):
                raise Failed(f"the load of {program.name}: {load.stdout[-500:]}{load.stderr[-500:]}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGTERM)
            took = self._finish(child, began)
        except (subprocess.TimeoutExpired, ProcessLookupError, FileNotFoundError) as error:
            raise Failed(f"{program.name}: {error} {self._stderr()}") from error
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        return Took(wall, cpu, took.cpu)

    def _stderr(self):
        return (self.folder / "stderr").read_text(errors="replace").strip()[:600]


def children(pid):
    found = []
    with contextlib.suppress(FileNotFoundError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def innermost(pid):
    """The server itself: below a launcher, the process that it started."""
    while pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "hindcast":
        below = children(pid)
        if not below:
            break
        pid = below[0]
    return pid


def tree_cpu(pid):
    """CPU seconds of a process, by the scheduler's own account of its threads, and of what it started."""
    own = 0.0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            own += int((task / "schedstat").read_text().split()[0]) / 1e9
    return own + sum(tree_cpu(child) for child in children(pid))


__all__ = ["ORDERS", "WAITING", "Bench", "Failed", "Program", "Took", "free_port", "hindcast", "need"]
