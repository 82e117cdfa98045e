"""What recording costs the examples, which are services on frameworks as people have them.

Two copies of a service, each with a Postgres of its own, one of them recorded from inside with the extension. Clients send the rounds of the example's
`requests`, each as fast as it is answered.
"""

import contextlib
import http.client
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from common import PROGRAMS, ROOT, cpu_seconds, free_port, listens, middle, tree, wait_for
from ddl import Server

DATABASE = "rooms"


def parsed(name):
    """What is sent once, and what each round sends."""
    lines = (ROOT / "examples" / name / "requests").read_text().splitlines()
    lines = [line.split(" ", 2) for line in lines if line and not line.startswith("#")]
    at = lines.index(["---"])
    return lines[:at], lines[at + 1 :]


class Service:
    def __init__(self, name, folder, recorded):
        self.example, self.port = ROOT / "examples" / name, free_port()
        self.once, self.round = parsed(name)
        self.server = Server(folder, "shared_preload_libraries=hindcast", "wal_level=logical", "max_connections=200")
        url = f"postgres://postgres@127.0.0.1:{self.server.port}/{DATABASE}"
        self.server.psql(self.server.port, f"CREATE DATABASE {DATABASE};")
        self.server.psql(self.server.port, "CREATE EXTENSION hindcast;\n" + (self.example / "schema.sql").read_text(), DATABASE)
        command = [str(self.example / "run.sh")]
        if recorded:
            trace = ["--trace", str(folder / "trace"), "--postgres", url, "--transactions", "extension", "--final-state", "never"]
            command = [str(PROGRAMS / "hindcast"), "record", *trace, "--", *command]
        environment = os.environ | {"DATABASE_URL": url, "PORT": str(self.port), "HINDCAST_SECRETS_KEY": str(folder / "secrets.key")}
        self.recorded, self.rounds = recorded, 0
        self.process = subprocess.Popen(command, env=environment, stdout=open(folder / "log", "wb"), stderr=subprocess.STDOUT)
        wait_for(f"the service ({folder / 'log'})", lambda: listens(self.port), 240)
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        for line in self.once:
            self.send(connection, line, 0, 0)

    def send(self, connection, line, number, client):
        method, path, body = (*line, "")[:3]
        path, body = (text.replace("{round}", str(number)).replace("{client}", str(client)) for text in (path, body))
        connection.request(method, path, body or None, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 500:
            raise SystemExit(f"Error: {method} {path} was answered {answer.status}")

    def drive(self, clients, seconds):
        """How many requests a second were answered, how soon in the middle, and what each took of the service's and the recorder's processor time."""
        took, until, first = [], time.monotonic() + seconds, self.rounds

        def client(number):
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            at = first
            while time.monotonic() < until:
                at += 1
                for line in self.round:
                    began = time.perf_counter()
                    self.send(connection, line, at, number + 1)
                    took.append(time.perf_counter() - began)
            self.rounds = max(self.rounds, at)

        pids = tree(self.process.pid)
        recorder, service = (pids[:1], pids[1:]) if self.recorded else ([], pids)
        used = lambda: [sum(map(cpu_seconds, pids)) for pids in (service, recorder)]
        before, threads = used(), [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        of_service, of_recorder = ((b - a) / len(took) * 1e6 for a, b in zip(before, used()))
        return len(took) / seconds, statistics.median(took) * 1e6, of_service, of_recorder

    def stop(self):
        self.process.send_signal(signal.SIGINT if self.recorded else signal.SIGTERM)
        self.process.wait()
        self.server.process.send_signal(signal.SIGINT)
        self.server.process.wait()


def rows(options, clients):
    """Rows of the figure `inside`."""
    for name, framework in (("python", "FastAPI"), ("node", "Express")):
        subprocess.run([ROOT / "examples" / name / "run.sh", "--install"], check=True)
        with contextlib.ExitStack() as stack:
            sides = {}
            for side in ("direct", "extension"):
                folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hindcast-bench-")))
                folder.chmod(0o755)
                sides[side] = Service(name, folder, side == "extension")
                stack.callback(sides[side].stop)
                sides[side].drive(clients, 1)
            runs = {side: [] for side in sides}
            for turn in range(options.rounds):
                # Who goes first changes.
                for side in sorted(sides, reverse=turn % 2 == 1):
                    runs[side].append(sides[side].drive(clients, options.seconds))
            for side, each in runs.items():
                rates, p50, of_service, of_recorder = zip(*each)
                ratio = [rate / direct[0] for rate, direct in zip(rates, runs["direct"])]
                yield f"| {framework} | {side} | {statistics.median(rates):,.0f} | {middle(ratio)} | {statistics.median(p50):,.0f} | {middle(of_service, 0)} | {middle(of_recorder, 0)} |"
