#!/usr/bin/env python3
"""What DDL costs through the gateway, in a database with many tables.

  bench/ddl.py [--tables 10000] [--rounds 3] [--binary PATH …]

Needs `cargo build --release -p hindcast-cli` and the server programs of Postgres. The first row is without a gateway; to
compare builds, name several binaries. Each round is psql with one script; times in seconds, median and range.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from common import PROGRAMS, free_port, listens, machine, middle, wait_for

COUNT = 20


def each(text):
    return "".join(text.replace("@", str(number)) for number in range(COUNT))


SCRIPTS = {
    "20 CREATE TEMP TABLE": each("CREATE TEMP TABLE x@ (id serial, a int);\n"),
    "20 CREATE TABLE with serial": each("CREATE TABLE ser@ (id serial, a int);\n"),
    "200 mixed": each(
        "CREATE TABLE m@ (id serial PRIMARY KEY, a int, b text DEFAULT 'x');\n"
        "CREATE INDEX ON m@ (a);\n"
        "CREATE VIEW v@ AS SELECT * FROM m@;\n"
        "ALTER TABLE m@ ADD COLUMN c timestamptz DEFAULT now();\n"
        "CREATE FUNCTION f@() RETURNS int LANGUAGE sql AS 'SELECT 1';\n"
        "CREATE TYPE e@ AS ENUM ('a');\n"
        "CREATE TABLE n@ (a int);\n"
        "ALTER TABLE n@ RENAME TO o@;\n"
        "CREATE SEQUENCE s@;\n"
        "INSERT INTO m@ (a) VALUES (1) RETURNING id;\n"
    ),
}
UNDO = each(
    "DROP TABLE IF EXISTS ser@, o@; DROP VIEW IF EXISTS v@; DROP TABLE IF EXISTS m@;\n"
    "DROP FUNCTION IF EXISTS f@; DROP TYPE IF EXISTS e@; DROP SEQUENCE IF EXISTS s@;\n"
)


def programs():
    config = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True)
    found = [config.stdout.strip(), *sorted(map(str, pathlib.Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)]
    return next(pathlib.Path(folder) for folder in found if folder and (pathlib.Path(folder) / "initdb").exists())


class Server:
    """A private Postgres, which ends with this program."""

    def __init__(self, folder, *more):
        self.bin, self.port = programs(), free_port()
        # Postgres refuses to run as root.
        self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        data = folder / "data"
        folder.chmod(0o777)
        self.call("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N")
        settings = ["-c", "fsync=off", "-c", f"unix_socket_directories={folder}", "-p", str(self.port)]
        settings += [word for setting in more for word in ("-c", setting)]
        self.process = subprocess.Popen([*self.user, self.bin / "postgres", "-D", data, *settings], stderr=subprocess.DEVNULL)
        wait_for("the server", lambda: listens(self.port))

    def call(self, program, *arguments):
        subprocess.run([*self.user, self.bin / program, *arguments], check=True, stdout=subprocess.DEVNULL)

    def psql(self, port, script, database="postgres"):
        command = [self.bin / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        start = time.monotonic()
        subprocess.run([*command, "-d", database, "-f", "-"], input=script, text=True, check=True, **quiet)
        return time.monotonic() - start

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


@contextlib.contextmanager
def gateway(binary, server, folder):
    port = free_port()
    command = [binary, "record", "--trace", tempfile.mkdtemp(dir=folder), "--listen", "127.0.0.1:0"]
    command += ["--app", "http://127.0.0.1:9", "--pg-listen", f"127.0.0.1:{port}", "--final-state", "never"]
    command += ["--postgres", f"postgres://postgres@127.0.0.1:{server.port}/many"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_for("the gateway", lambda: listens(port))
    yield port
    process.send_signal(signal.SIGINT)
    process.wait()


def measure(server, port, rounds):
    for name, script in SCRIPTS.items():
        times = []
        for _ in range(rounds):
            server.psql(server.port, UNDO, "many")
            times.append(server.psql(port, script, "many"))
        yield name, times
    server.psql(server.port, UNDO, "many")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tables", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--binary", action="append", default=[])
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        server = Server(folder)
        try:
            server.psql(server.port, "CREATE DATABASE many")
            for first in range(0, given.tables, 1000):
                tables = range(first, min(first + 1000, given.tables))
                script = "".join(f"CREATE TABLE t{number} (id serial PRIMARY KEY, a int);" for number in tables)
                server.psql(server.port, f"BEGIN;{script}COMMIT;VACUUM ANALYZE", "many")
            print(machine("fsync off") + f", {given.tables:,} tables with serials")
            for name, times in measure(server, server.port, given.rounds):
                print(f"{'direct':40} {name:30} {middle(times)}", flush=True)
            for binary in given.binary or [PROGRAMS / "hindcast"]:
                with gateway(binary, server, folder) as port:
                    for name, times in measure(server, port, given.rounds):
                        print(f"{str(binary)[-40:]:40} {name:30} {middle(times)}", flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
