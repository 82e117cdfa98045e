#!/usr/bin/env python3
"""A process that survives its machine: a campaign of losses under clients that check each answer, and what protection costs.

    bench/protect.py [--rounds N] [--attach-rounds N] [--disk-rounds N] [--checkpoint-rounds N] [--start-rounds N] [--link-rounds N] [--cost-rounds N] [PROGRAM ...]

As root: client, primary and backup are network namespaces of this machine. Uses target/release/hindcast, or what HINDCAST names. Prints the tables of
docs/results/protect.md.
"""

import argparse
import collections
import contextlib
import ctypes
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from common import PROGRAMS, machine, middle, wait_for

HINDCAST = os.environ.get("HINDCAST", str(PROGRAMS / "hindcast"))
NAME = f"hcb{os.getpid()}"
SERVICE, PORT = "10.9.0.10", 7070
LOSSES = ("program", "launcher", "stopped", "machine")
# While a new backup catches up. The first two are of the backup: nobody may notice. The others are of the program's machine.
LOSSES_IN_BETWEEN = ("backup", "backup stopped", "program", "launcher", "stopped", "machine")
# Of a backup that takes checkpoints.
CHECKPOINT_EVERY = "1s"
LOSSES_WITH_CHECKPOINTS = (
    "the primary, at any time",
    "the primary, while one is taken",
    "the backup, while one is taken",
    "the survivor, while a new backup begins at one",
    "a new backup, while it begins at one",
    "the survivor, while it goes live",
)
LINK_CUTS = ("shorter than is noticed", "longer than is noticed")
LOSSES_AT_START = ("program", "launcher", "machine", "backup")
CLIENTS = 6
PAGES = 8


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def inside(end, *words):
    return ["ip", "netns", "exec", NAME + end, *map(str, words)]


def unplug():
    for end in "cpbs":
        pids = subprocess.run(["ip", "netns", "pids", NAME + end], capture_output=True, text=True).stdout.split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        subprocess.run(["ip", "netns", "del", NAME + end], capture_output=True)


def plug():
    unplug()
    ip("netns", "add", NAME + "s")
    ip("-n", NAME + "s", "link", "add", "br0", "type", "bridge")
    ip("-n", NAME + "s", "link", "set", "br0", "up")
    for number, end in enumerate("cpb", 1):
        ip("netns", "add", NAME + end)
        ip("link", "add", "to-" + end, "netns", NAME + "s", "type", "veth", "peer", "name", "eth0", "netns", NAME + end)
        ip("-n", NAME + "s", "link", "set", "to-" + end, "master", "br0", "up")
        ip("-n", NAME + end, "address", "add", f"10.9.0.{number}/24", "dev", "eth0")
        ip("-n", NAME + end, "link", "set", "eth0", "up")
        ip("-n", NAME + end, "link", "set", "lo", "up")


def page(number):
    return bytes(97 + (at * 7 + number * 13) % 26 for at in range(65536))


def programs(folder):
    pages = folder / "pages"
    pages.mkdir(exist_ok=True)
    for number in range(PAGES):
        (pages / f"{number}.html").write_bytes(page(number))
    (folder / "lighttpd.conf").write_text(
        f'server.document-root = "{pages}"\nserver.port = {PORT}\nserver.bind = "0.0.0.0"\nserver.max-keep-alive-requests = 1000000\n'
    )
    return {
        "redis": ["redis-server", "--port", str(PORT), "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""],
        "memcached -t 4": ["memcached", "-t", "4", "-p", str(PORT), "-U", "0", "-l", "0.0.0.0", "-u", "nobody"],
        "lighttpd": ["lighttpd", "-D", "-f", str(folder / "lighttpd.conf")],
    }


class Pair:
    """A program on the primary, and a backup; or the program alone; or redis with a replica of its own."""

    def __init__(self, command, folder, way="protected", of_backup=()):
        plug()
        self.children, self.folder, self.of_backup = [], folder, of_backup
        if way not in ("protected", "starting"):
            self.start(inside("p", *command), "direct")
            self.address = "10.9.0.2"
            if way == "replicated":
                self.start(inside("b", *command, "--repl-diskless-load", "on-empty-db", "--replicaof", self.address, PORT), "replica")
        else:
            fixed = ["--no-key", "--address", f"{SERVICE}/24"]
            self.start_backup("backup")
            run = ["protect", "run", "--to", "10.9.0.3:7400", "--listen", ":7401", *fixed, "--", *command]
            self.primary = self.start(inside("p", HINDCAST, *run), "primary")
            self.address = SERVICE
        if way == "starting":
            return
        wait_for("the service", self.listens)
        if way == "replicated":
            wait_for("the replica", self.is_replicated)

    def start(self, words, name):
        # Where it keeps its log, if that is to be a disk of its own.
        disk = {"TMPDIR": str(self.folder / f"disk-{name}")} if (self.folder / f"disk-{name}").exists() else {}
        with open(self.folder / name, "wb") as said:
            child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said, stdin=subprocess.DEVNULL, env=os.environ | disk)
        self.children.append(child)
        return child

    def start_backup(self, name, end="b"):
        words = ["protect", "backup", "--listen", ":7400", "--no-key", "--address", f"{SERVICE}/24", *self.of_backup]
        self.backup = self.start(inside(end, HINDCAST, *words), name)
        wait_for("the backup", lambda: "stands by" in self.said(name))

    def attach(self, name, at="10.9.0.2:7401", to="10.9.0.3:7400"):
        """Begins to; whether it has been done is what it ends with."""
        return self.start(inside("p", HINDCAST, "protect", "attach", "--at", at, "--to", to, "--no-key"), name)

    def lose_backup(self, word="runs on unprotected"):
        before = self.said("primary").count(word)
        self.backup.kill()
        self.backup.wait()
        wait_for("a word about it", lambda: self.said("primary").count(word) > before)

    def has_gone_on(self, name):
        """Whether the backup of this name says so. The word comes a moment behind the first answers."""
        with contextlib.suppress(SystemExit):
            wait_for("the takeover", lambda: "goes on here after" in self.said(name), 2)
        said = self.said(name)
        return "goes on here after" in said and "could not be kept" not in said

    def said(self, name):
        return (self.folder / name).read_text(errors="replace")

    def listens(self):
        with elsewhere("c"), contextlib.suppress(OSError), socket.create_connection((self.address, PORT), 1):
            return True
        return False

    def is_replicated(self):
        told = subprocess.run(inside("c", "redis-cli", "-h", self.address, "-p", PORT, "info", "replication"), capture_output=True, text=True)
        return "state=online" in told.stdout

    def program(self, name="primary"):
        """Its number, by what its launcher says."""
        return int(self.said(name).split("(pid ")[-1].split(")")[0])

    def started(self, end, but="hindcast-"):
        """The program that the launcher at this end has started, also before it says so."""
        launcher = getattr(self, end).pid
        for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            if not pathlib.Path(f"/proc/{child}/comm").read_text().startswith(but):
                return int(child)
        raise IndexError(end)

    def lose(self, what):
        if what == "program":
            os.kill(self.program(), 9)
        elif what == "launcher":
            self.primary.kill()
        elif what == "backup":
            self.backup.kill()
        elif what == "backup stopped":
            self.backup.send_signal(signal.SIGSTOP)
        elif what == "stopped":
            self.primary.send_signal(signal.SIGSTOP)
        else:
            ip("-n", NAME + "s", "link", "set", "to-p", "down")

    def end(self):
        unplug()
        for child in self.children:
            child.wait()


def enter(space):
    # os.setns is younger than Debian's Python.
    if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def elsewhere(end):
    """What this thread connects meanwhile is connected from there."""
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{NAME}{end}") as there:
        enter(there)
        try:
            yield
        finally:
            enter(here)


class Client:
    """Asks on one connection and compares each answer with what it must be."""

    def __init__(self, program, address, number):
        with elsewhere("c"):
            self.connection = socket.create_connection((address, PORT), 30)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.connection.makefile("rb")
        self.number, self.count, self.model, self.random = number, 0, {}, random.Random(number)
        self.ask = {"redis": self.redis, "replicated": self.replicated, "memcached -t 4": self.memcached, "lighttpd": self.lighttpd}[program]
        if program == "memcached -t 4":
            self.say(f"set n{number} 0 0 1\r\n0\r\n".encode())
            assert self.answers.readline() == b"STORED\r\n"

    def say(self, what):
        self.connection.sendall(what)

    def is_at_end(self):
        """Whether an answer was not wrong, but cut off."""
        self.connection.settimeout(0.2)
        with contextlib.suppress(OSError):
            return self.answers.read1(1) == b""
        return False

    def redis(self):
        self.count += 1
        self.say(f"INCR c{self.number}\r\n".encode())
        assert self.answers.readline() == b":%d\r\n" % self.count

    def replicated(self):
        """As redis' own means have it: an answer counts once a replica has the write."""
        self.count += 1
        self.say(f"INCR c{self.number}\r\nWAIT 1 0\r\n".encode())
        assert self.answers.readline() == b":%d\r\n" % self.count
        assert self.answers.readline() == b":1\r\n"

    def memcached(self):
        key = f"k{self.number}-{self.random.randrange(50)}"
        match self.random.randrange(3):
            case 0:
                self.count += 1
                self.say(f"incr n{self.number} 1\r\n".encode())
                assert self.answers.readline().strip() == b"%d" % self.count
            case 1:
                value = b"v" * self.random.randrange(2000)
                self.say(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value))
                assert self.answers.readline() == b"STORED\r\n"
                self.model[key] = value
            case _:
                self.say(f"get {key}\r\n".encode())
                line = self.answers.readline()
                found = None
                if line != b"END\r\n":
                    found = self.answers.read(int(line.split()[3]) + 2)[:-2]
                    assert self.answers.readline() == b"END\r\n"
                assert found == self.model.get(key)

    def lighttpd(self):
        number = self.random.randrange(PAGES)
        self.say(f"GET /{number}.html HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        length = 0
        assert b"200" in self.answers.readline()
        while (line := self.answers.readline()) != b"\r\n":
            assert line
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert self.answers.read(length) == page_of[number]


page_of = [page(number) for number in range(PAGES)]


def round_of(program, command, loss, folder):
    """The longest wait of a client in milliseconds, and how long the takeover took; None if a client was let down."""
    pair = Pair(command, folder)
    try:
        clients = [Client(program, pair.address, number) for number in range(CLIENTS)]
        end, waits, failures = time.monotonic() + 2.5, [0.0] * CLIENTS, []

        def run(number):
            try:
                while time.monotonic() < end:
                    begun = time.monotonic()
                    clients[number].ask()
                    waits[number] = max(waits[number], time.monotonic() - begun)
            except (AssertionError, OSError, ValueError, IndexError) as error:
                failures.append(f"{type(error).__name__} {error}")

        threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        time.sleep(0.7 + random.random() / 2)
        pair.lose(loss)
        for thread in threads:
            thread.join()
        has_gone_on, said = pair.has_gone_on("backup"), pair.said("backup")
        if failures or not has_gone_on:
            print(f"  {program}, {loss}: {failures[:2]} {said.strip().splitlines()[-3:]}", file=sys.stderr)
            return None
        return max(waits) * 1000, float(said.split("goes on here after ")[1].split(" ms")[0])
    finally:
        pair.end()


class Asking:
    """Clients that ask until they are to stop, or are let down. With pauses where a new backup is to catch up that has no processor of its own."""

    def __init__(self, program, address, pause=0.01):
        self.pause = pause
        clients = [Client(program, address, number) for number in range(CLIENTS)]
        self.stopped, self.answers, self.wrong, self.cut = False, [0] * CLIENTS, [], []
        self.threads = [threading.Thread(target=self.run, args=(clients[number], number)) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self, client, number):
        try:
            while not self.stopped:
                client.ask()
                self.answers[number] += 1
                time.sleep(self.pause)
        except OSError as error:
            self.cut.append(repr(error))
        except (AssertionError, ValueError, IndexError) as error:
            (self.cut if client.is_at_end() else self.wrong).append(repr(error))

    def all_answered(self, more, patience=60):
        before = list(self.answers)
        with contextlib.suppress(SystemExit):
            wait_for("answers", lambda: self.cut or self.wrong or all(now >= then + more for now, then in zip(self.answers, before)), patience)
            return not self.cut and not self.wrong
        return False

    def end(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()


def attached_round(program, command, loss, folder):
    """The backup is lost, and another is attached; then this one, or what it is attached to, is lost before it protects. What came of it."""
    pair = Pair(command, folder)
    asking = None
    try:
        asking = Asking(program, pair.address)
        if not asking.all_answered(20):
            return "let down before"
        pair.lose_backup()
        pair.start_backup("second")
        attach = pair.attach("attach")
        time.sleep(random.random() * 0.6)
        protects = attach.poll() == 0
        pair.lose(loss)
        if loss.startswith("backup"):
            return again(pair, asking, loss)
        # Nobody protects it until the backup is told to: then it is gone, for everybody.
        survived = asking.all_answered(50)
        if asking.wrong:
            return f"inconsistent: {asking.wrong}"
        # A program whose launcher stands still goes on answering while nobody protects it.
        goes_on = pair.has_gone_on("second") or (loss == "stopped" and not protects)
        if survived != goes_on or (protects and not survived):
            return f"wrong: survived {survived}, protected {protects}, {asking.cut[:1]} {pair.said('second').splitlines()[-2:]}"
        return "survived" if survived else "ended with its machine"
    finally:
        if asking:
            asking.stopped = True
        pair.end()
        if asking:
            asking.end()


def again(pair, asking, loss):
    """The new backup was lost: the program goes on, gets one more, and survives by it."""
    # One that only stands still may have taken over, and answers wait for it, until it has ended.
    time.sleep(random.random())
    pair.backup.kill()
    pair.backup.wait()
    if not asking.all_answered(50):
        return f"let down by the loss of a backup: {asking.cut[:1]} {asking.wrong[:1]}"
    pair.start_backup("third")
    for attempt in range(40):
        attach = pair.attach(f"attach-{attempt}")
        if attach.wait() == 0:
            break
        time.sleep(0.5)
    else:
        return f"not attached again: {pair.said('attach-39').splitlines()}"
    if not asking.all_answered(20):
        return f"let down once it was attached again: {asking.cut} {asking.wrong}"
    pair.lose("program")
    if not asking.all_answered(50) or not pair.has_gone_on("third"):
        return f"not survived once it was attached again: {asking.cut} {asking.wrong} {pair.said('third').splitlines()}"
    return "survived"


def checkpointed_round(program, command, moment, folder):
    """A backup that takes checkpoints, and what is lost at such a moment."""
    (folder / "disk-backup").mkdir(exist_ok=True)
    pair = Pair(command, folder, of_backup=["--checkpoint-every", CHECKPOINT_EVERY])
    asking = None
    try:
        asking = Asking(program, pair.address, random.choice((0, 0.005)))
        if not asking.all_answered(20):
            return "let down before"
        if moment.endswith("one is taken"):
            begun = lambda: any((folder / "disk-backup").glob("*/checkpoints/new-*"))
            wait_for("a checkpoint", begun)
            time.sleep(random.random() * 0.02)
        elif "begins at one" in moment:
            wait_for("a checkpoint", lambda: any((folder / "disk-backup").glob("*/checkpoints/[0-9]*")))
            time.sleep(random.random())
        else:
            time.sleep(0.5 + random.random() * 2)
        if moment.startswith("the backup"):
            return again(pair, asking, "backup")
        pair.lose(random.choice(LOSSES))
        if moment.endswith("goes live"):
            time.sleep(random.random() * 0.5)
            os.kill(pair.started("backup"), 9)
            asking.all_answered(1, 2)
            return f"inconsistent: {asking.wrong}" if asking.wrong else "nothing contradicted"
        if not asking.all_answered(50) or not pair.has_gone_on("backup"):
            return f"let down: {asking.cut[:1]} {asking.wrong[:1]} {pair.said('backup').splitlines()[-2:]}"
        if "checkpoint" in pair.said("backup"):
            return f"no more checkpoints: {pair.said('backup').splitlines()}"
        return began_at_one(pair, asking, moment) if "begins at one" in moment else "survived"
    finally:
        if asking:
            asking.stopped = True
        pair.end()
        if asking:
            asking.end()
        shutil.rmtree(folder / "disk-backup")


def began_at_one(pair, asking, moment):
    """A survivor is given a new backup, on the machine that was lost; either is lost meanwhile."""
    pair.primary.kill()
    pair.primary.wait()
    ip("-n", NAME + "s", "link", "set", "to-p", "up")
    survivor, places = pair.backup, ("10.9.0.3:7400", "10.9.0.2:7400")
    pair.start_backup("second", "p")
    attach = pair.attach("attach", *places)
    if moment.startswith("the survivor"):
        time.sleep(random.random() * 1.5)
        protects = attach.poll() == 0
        if random.random() < 0.5:
            os.kill(pair.program("backup"), 9)
        else:
            survivor.kill()
        # A program that nobody protects answers until its launcher's death has ended it.
        time.sleep(1)
        survived = asking.all_answered(50, 8 if not protects else 60)
        if asking.wrong:
            return f"inconsistent: {asking.wrong}"
        if protects and not survived or survived != pair.has_gone_on("second"):
            return f"wrong: survived {survived}, protected {protects}, {asking.cut[:1]} {pair.said('second').splitlines()[-2:]}"
        return "survived" if survived else "ended with its machine"
    time.sleep(random.random() * 1.5)
    pair.backup.kill()
    pair.backup.wait()
    if not asking.all_answered(50):
        return f"let down by the loss of a backup: {asking.cut[:1]} {asking.wrong[:1]}"
    pair.start_backup("third", "p")
    for attempt in range(40):
        # The first attempt may have found this one in the place of the one that was lost.
        if pair.attach(f"attach-{attempt}", *places).wait() == 0 or "has caught up" in pair.said("third"):
            break
        time.sleep(0.5)
    else:
        return f"not attached again: {[pair.said(f'attach-{at}').splitlines() for at in (0, 1, 39)]} {pair.said('third').splitlines()}"
    if "begins at a checkpoint" not in pair.said("third"):
        return f"not from a checkpoint: {pair.said('third').splitlines()}"
    os.kill(pair.program("backup"), 9)
    if not asking.all_answered(50) or not pair.has_gone_on("third"):
        return f"not survived once it was attached again: {asking.cut} {asking.wrong} {pair.said('third').splitlines()}"
    return "survived"


def answers(pair, program):
    """Whether a new client is answered. One that was connected in the moment of the loss is told to connect again."""
    for _ in range(3):
        with contextlib.suppress(ConnectionResetError, ConnectionRefusedError, AssertionError):
            if not pair.listens():
                return False
            Client(program, pair.address, random.randrange(1 << 30)).ask()
            return True
    return False


def starting_round(program, command, loss, folder):
    """What is lost within the first second. The service is there afterwards, or both machines have said why not."""
    pair = Pair(command, folder, way="starting")
    try:
        time.sleep(random.random())
        if loss == "program":
            with contextlib.suppress(OSError, IndexError):
                os.kill(pair.started("primary"), 9)
        else:
            pair.lose(loss)
        over = lambda: answers(pair, program) or pair.primary.poll() is not None or loss == "machine" and pair.backup.poll() is not None
        with contextlib.suppress(SystemExit):
            wait_for("an end", over, 45)
            time.sleep(1)
        if answers(pair, program):
            return "answers"
        if over():
            word = pair.said("backup").splitlines()[-1]
            return "nothing had begun" if "stands by" in word else f"ended: {word}"
        return f"hangs: {pair.said('primary').splitlines()} {pair.said('backup').splitlines()}"
    finally:
        pair.end()


def healed_round(program, command, length, folder):
    """The primary's link is cut and healed. Shorter than is noticed: it goes on where it was; longer: on the backup, and the primary ends."""
    pair = Pair(command, folder, of_backup=["--detect", "3s" if length.startswith("shorter") else "1s"])
    asking = None
    try:
        asking = Asking(program, pair.address, 0.002)
        if not asking.all_answered(20):
            return "let down before"
        time.sleep(random.random())
        for _ in range(3 if length.startswith("shorter") else 1):
            pair.lose("machine")
            time.sleep(random.random() * 0.6 if length.startswith("shorter") else 1.2 + random.random() * 2)
            ip("-n", NAME + "s", "link", "set", "to-p", "up")
            time.sleep(random.random() * 0.5)
        if not asking.all_answered(50):
            return f"let down: {asking.cut[:1]} {asking.wrong[:1]} {pair.said('primary').splitlines()[-2:]} {pair.said('backup').splitlines()[-2:]}"
        if length.startswith("shorter"):
            moved = "goes on here after" in pair.said("backup")
            protected = "unprotected" not in pair.said("primary")
            return "went on at the backup" if moved else "went on where it was" if protected else f"unprotected: {pair.said('primary').splitlines()[-2:]}"
        with contextlib.suppress(subprocess.TimeoutExpired):
            pair.primary.wait(20)
        if pair.primary.returncode is None or not pair.has_gone_on("backup"):
            return f"the primary ended: {pair.primary.returncode}; {pair.said('primary').splitlines()[-2:]} {pair.said('backup').splitlines()[-2:]}"
        return "went on at the backup"
    finally:
        if asking:
            asking.stopped = True
        pair.end()
        if asking:
            asking.end()


def disk_round(program, command, end, folder):
    """The disk of the primary or of the backup is full from a moment on. The program runs on, unprotected, and that is said."""
    disk = folder / f"disk-{end}"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", disk], check=True)
    pair, asking = None, None
    try:
        pair = Pair(command, folder)
        asking = Asking(program, pair.address, 0)
        time.sleep(random.random())
        with contextlib.suppress(OSError), open(disk / "all", "wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        with contextlib.suppress(SystemExit):
            wait_for("a word about it", lambda: "runs on unprotected" in pair.said("primary") or asking.cut or asking.wrong, 60)
        if not asking.all_answered(100):
            return f"let down: {asking.cut[:1]} {asking.wrong[:1]} {pair.said('primary').splitlines()[-2:]}"
        return "went on, and said so" if "runs on unprotected" in pair.said("primary") else "not full within 60 s"
    finally:
        if asking:
            asking.stopped = True
        if pair:
            pair.end()
        if asking:
            asking.end()
        subprocess.run(["umount", "-l", disk], check=True)
        disk.rmdir()


def counted(round_of_kind, kinds, heading, rounds, chosen, commands, folder):
    """A table of what came of so many rounds of each kind."""
    print(f"| program | {heading} | rounds | what came of it |\n|---|---|---|---|")
    for program in chosen:
        for kind in kinds:
            found = collections.Counter()
            for _ in range(rounds):
                came = round_of_kind(program, commands[program], kind, folder)
                found[came] += 1
                print(f"  {program}, {kind}: {came}", file=sys.stderr, flush=True)
            print(f"| {program} | {kind} | {rounds} | {', '.join(f'{count} {what}' for what, count in found.most_common())} |", flush=True)


def campaign(rounds, chosen, commands, folder):
    print("| program | lost | rounds | survived | longest wait of a client, ms | of that the takeover, ms |\n|---|---|---|---|---|---|")
    for program in chosen:
        for loss in LOSSES:
            results = [round_of(program, commands[program], loss, folder) for _ in range(rounds)]
            whole = [result for result in results if result]
            waits, took = ([result[at] for result in whole] or [0.0] for at in (0, 1))
            print(f"| {program} | {loss} | {rounds} | {len(whole)} | {middle(waits, 0)} | {middle(took, 0)} |", flush=True)


def measured(pair, program, seconds=2):
    """Response times of one client, µs, and answers per second of several."""
    client, times, end = Client(program, pair.address, 0), [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        client.ask()
        times.append((time.perf_counter() - begun) * 1e6)
    times.sort()
    bench = inside("c", "redis-benchmark", "-h", pair.address, "-p", PORT, "-t", "set", "-n", "40000", "-c", "20", "-P", "1", "--csv")
    csv = subprocess.run(bench, capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]
    return statistics.median(times), times[len(times) * 99 // 100], float(csv.split(",")[1].strip('"'))


def cost(rounds, commands, folder):
    ways = {"as it is": "direct", "a replica of its own, `WAIT 1`": "replicated", "protected": "protected"}
    found = {way: [] for way in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            pair = Pair(commands["redis"], folder, way)
            try:
                found[name].append(measured(pair, "replicated" if way == "replicated" else "redis"))
            finally:
                pair.end()
    print("| redis | response p50, µs | response p99, µs | SET/s of 20 clients |\n|---|---|---|---|")
    for name, results in found.items():
        columns = [middle([result[at] for result in results], 0) for at in range(3)]
        if ways[name] == "replicated":
            # redis-benchmark does not wait for the replica.
            columns[2] = "—"
        print(f"| {name} | {' | '.join(columns)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="of each program and loss")
    parser.add_argument("--attach-rounds", type=int, default=0, help="of each program and loss while a new backup catches up")
    parser.add_argument("--disk-rounds", type=int, default=0, help="of each program and end whose disk is full")
    parser.add_argument("--checkpoint-rounds", type=int, default=0, help="of each program and moment, with a backup that takes checkpoints")
    parser.add_argument("--link-rounds", type=int, default=0, help="of each program whose primary is cut off for a while")
    parser.add_argument("--start-rounds", type=int, default=0, help="of each program and loss within the first second")
    parser.add_argument("--cost-rounds", type=int, default=3)
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("Error: network namespaces take root")
    with tempfile.TemporaryDirectory(prefix="hindcast-protect-bench-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        commands = programs(folder)
        print(f"On {machine(None)}.\n")
        chosen = options.programs or list(commands)
        try:
            if options.rounds:
                campaign(options.rounds, chosen, commands, folder)
            if options.attach_rounds:
                heading = "lost while a new backup catches up"
                counted(attached_round, LOSSES_IN_BETWEEN, heading, options.attach_rounds, chosen, commands, folder)
            if options.checkpoint_rounds:
                counted(checkpointed_round, LOSSES_WITH_CHECKPOINTS, "lost", options.checkpoint_rounds, chosen, commands, folder)
            if options.link_rounds:
                counted(healed_round, LINK_CUTS, "link cut and healed", options.link_rounds, chosen, commands, folder)
            if options.start_rounds:
                counted(starting_round, LOSSES_AT_START, "lost within the first second", options.start_rounds, chosen, commands, folder)
            if options.disk_rounds:
                counted(disk_round, ("primary", "backup"), "full disk", options.disk_rounds, chosen, commands, folder)
            if options.cost_rounds:
                cost(options.cost_rounds, commands, folder)
        finally:
            unplug()


if __name__ == "__main__":
    main()
