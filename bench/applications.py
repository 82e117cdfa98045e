#!/usr/bin/env python3
"""What recording, replaying and retroacting an application as people run it comes to.

  bench/applications.py NAME [--rounds 3] [--replays 3] [--binary PATH]

NAME is a folder of tests/applications. Its program `run` installs, prepares, serves and loads it, names an index that changes nothing, and the requests
that a change of one line touches. One that knows `run outside` is recorded by two proxies, since nothing can be loaded into it. Needs `cargo build --release -p hindcast-cli -p hindcast-preload`, the server programs of Postgres and the extension in
their folders (`hindcast extension install`). Prints a row for docs/results/applications.md; fails where a retroaction reports other requests than the
change touches.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from common import PROGRAMS, ROOT, free_port, listens, machine, middle, wait_for
from ddl import Server

DATABASE = "app"


class Application:
    def __init__(self, name, hindcast, folder):
        self.program = ROOT / "tests" / "applications" / name / "run"
        self.hindcast, self.folder, self.port = hindcast, folder, free_port()
        self.outside = subprocess.run([self.program, "outside"], stderr=subprocess.DEVNULL).returncode == 0
        # Where clients reach it, and where it reaches its database, while it is recorded from outside.
        self.ingress, self.gateway = free_port(), free_port()
        settings = ["shared_preload_libraries=hindcast", "wal_level=logical", "max_prepared_transactions=50", "max_connections=200"]
        self.server = Server(folder, *settings)
        url = self.url(self.server.port)
        self.environment = os.environ | {"DATABASE_URL": url, "HINDCAST_POSTGRES": url}
        self.environment["HINDCAST_SECRETS_KEY"] = str(folder / "secrets.key")
        self.log = open(folder / "log", "w")
        self.run("install")

    @staticmethod
    def url(port):
        return f"postgres://postgres@127.0.0.1:{port}/{DATABASE}"

    def run(self, *arguments, **more):
        return subprocess.run([self.program, *arguments], env=self.environment, check=True, **more)

    def say(self, what):
        """What its program prints."""
        return self.run(what, stdout=subprocess.PIPE, text=True).stdout.strip()

    def prepare(self):
        """A database as nobody has used it."""
        force = f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE);\nCREATE DATABASE {DATABASE};\n"
        self.server.psql(self.server.port, force)
        self.server.psql(self.server.port, "CREATE EXTENSION hindcast;", DATABASE)
        self.run("prepare")

    @contextlib.contextmanager
    def running(self, command, port, **environment):
        process = subprocess.Popen(command, env=self.environment | environment, stdout=self.log, stderr=self.log)
        wait_for("the application", lambda: listens(port))
        yield
        process.send_signal(signal.SIGINT)
        process.wait()

    def serve(self):
        return [self.program, "serve", str(self.port)]

    def load(self, port=None):
        """Seconds that the load took."""
        begun = time.monotonic()
        self.run("load", str(port or self.port))
        return time.monotonic() - begun

    def unrecorded(self):
        self.prepare()
        with self.running(self.serve(), self.port):
            return self.load()

    def record(self, trace):
        self.prepare()
        record = [self.hindcast, "record", "--base", "template", "--trace", trace]
        if not self.outside:
            with self.running([*record, "--", *self.serve()], self.port):
                return self.load()
        listen, database = f"127.0.0.1:{self.ingress}", f"127.0.0.1:{self.gateway}"
        proxies = ["--listen", listen, "--app", f"http://127.0.0.1:{self.port}", "--pg-listen", database]
        with self.running([*record, *proxies], self.ingress):
            with self.running(self.serve(), self.port, DATABASE_URL=self.url(self.gateway)):
                return self.load(self.ingress)

    def ask(self, command, trace, *arguments):
        """What a command says as JSON. That something differs is no failure."""
        if self.outside and command == "replay":
            arguments = ["--app", self.started(), *arguments]
        whole = [self.hindcast, command, "--trace", trace, "--json", *arguments]
        done = subprocess.run(whole, env=self.environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        if done.returncode not in (0, 1):
            raise SystemExit(f"Error: hindcast {command} ended with {done.returncode}; see {self.folder / 'log'}")
        return [json.loads(line) for line in done.stdout.splitlines()] if command == "ls" else json.loads(done.stdout)

    def started(self, environment=""):
        """How a replay starts it."""
        if self.outside:
            environment += f" DATABASE_URL={self.url(self.gateway)}"
        return f"{environment} exec {self.program} serve {self.port}"

    def retro(self, trace, environment, *arguments):
        return self.ask("retro", trace, "--app", self.started(environment), *arguments)


def replayed(application, trace, replays):
    """How many replays were faithful, the kinds of all divergences, reads that moved, and transactions of no request."""
    faithful, causes, moved, ghosts = 0, collections.Counter(), 0, 0
    for _ in range(replays):
        verdict = application.ask("replay", trace, "--keep-going")
        faithful += verdict["faithful"]
        causes.update(one["kind"] for one in verdict["divergences"])
        moved += sum(one["reads"] for one in verdict["remarks"] if one["remark"] == "moved_reads")
        ghosts = verdict["counts"]["ghosts"]
    return faithful, causes, moved, ghosts


def changed(report):
    return {one["request"] for one in report["responses"]["changed"]}


def retroacted(application, trace, requests):
    """What an index and a change of one line make different, as text. Fails where that is not what they touch."""
    index = application.folder / "index.sql"
    index.write_text(application.say("index"))
    report = application.retro(trace, "", "--migrate", str(index))
    by_index = len(changed(report)), report["counts"]["changed"] + report["counts"]["added"] + report["counts"]["deleted"]
    affected = re.compile(application.say("affected"))
    touched = {int(one["request"]) for one in requests if affected.search(f"{one['method']} {one['target']}")}
    found = changed(application.retro(trace, "CHANGED=1"))
    if found != touched:
        raise SystemExit(f"Error: the change touches {sorted(touched)}, and retro reports {sorted(found)}")
    return "{} responses, different transactions: {}".format(*by_index), f"{len(found)} of {len(touched)}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--replays", type=int, default=3)
    arguments.add_argument("--binary", type=pathlib.Path, default=PROGRAMS / "hindcast")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        application = Application(given.name, given.binary.resolve(), pathlib.Path(folder))
        try:
            kept = []
            for number in range(given.rounds):
                trace = str(application.folder / f"trace{number}")
                kept.append(application.unrecorded() / application.record(trace))
            requests = application.ask("ls", trace, "--limit", "0")
            faithful, causes, moved, ghosts = replayed(application, trace, given.replays)
            index, change = retroacted(application, trace, requests)
        finally:
            application.server.stop()
    causes = ", ".join(f"{count} {kind}" for kind, count in causes.items()) or "none"
    known = sum(one["transactions"] for one in requests)
    row = [given.name, f"{len(requests):,}", f"{known + ghosts:,}", f"{known:,}", f"{faithful} of {given.replays}", causes, str(moved), index, change, middle(kept)]
    print("| " + " | ".join(row) + " |")
    print(f"\nMade with `bench/applications.py {given.name} --rounds {given.rounds} --replays {given.replays}`: {machine('fsync off')}.")


if __name__ == "__main__":
    main()
