"""A service of two processes: requests leave jobs in a broker that speaks Redis' protocol, and a worker takes them from there.

    queued.py PORT BROKER-PORT        the service, which starts its worker; the database is in DATABASE_URL
    queued.py --broker PORT           the broker

POST /job/TEXT leaves a job, and GET /job/ID answers what became of it. POST /ask/TEXT leaves one, and answers when the worker has published that it is
done. A job's message names the process that left it, and what the worker says has the time in it, so these are others in each run. What was done is
appended to the file DONE, a line each.
"""

import http.server
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time

import psycopg


class Broker(socketserver.StreamRequestHandler):
    values, lists, channels = {}, {}, {}
    changed = threading.Condition()

    def handle(self):
        queued = None
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2].decode())
            if words[0] == "MULTI":
                queued, answer = [], "+OK\r\n"
            elif words[0] == "EXEC":
                answer = f"*{len(queued)}\r\n" + "".join(self.answer(*each) for each in queued)
                queued = None
            elif queued is not None:
                queued.append(words)
                answer = "+QUEUED\r\n"
            else:
                answer = self.answer(*words)
            with self.changed:
                self.wfile.write(answer.encode())

    def answer(self, command, key, *rest):
        with self.changed:
            self.changed.notify_all()
            if command == "SET":
                if "NX" in rest and key in self.values:
                    return "$-1\r\n"
                self.values[key] = rest[0]
                return "+OK\r\n"
            if command == "GET":
                return bulk(self.values.get(key))
            if command == "LPUSH":
                self.lists.setdefault(key, []).append(rest[0])
                return f":{len(self.lists[key])}\r\n"
            if command == "BRPOP":
                own = self.lists.setdefault(key, [])
                if not self.changed.wait_for(lambda: own, float(rest[0])):
                    return "*-1\r\n"
                return "*2\r\n" + bulk(key) + bulk(own.pop(0))
            if command == "SUBSCRIBE":
                self.channels.setdefault(key, []).append(self.wfile)
                return "*3\r\n" + bulk("subscribe") + bulk(key) + ":1\r\n"
            if command == "PUBLISH":
                told = self.channels.get(key, [])
                for each in told:
                    each.write(("*3\r\n" + bulk("message") + bulk(key) + bulk(rest[0])).encode())
                return f":{len(told)}\r\n"


def bulk(text):
    return "$-1\r\n" if text is None else f"${len(text)}\r\n{text}\r\n"


class Client:
    def __init__(self):
        self.stream = socket.create_connection(("127.0.0.1", int(sys.argv[2]))).makefile("rwb", buffering=0)

    def ask(self, *commands):
        """Several run together."""
        commands = [("MULTI",), *commands, ("EXEC",)] if len(commands) > 1 else commands
        text = "".join(f"*{len(words)}\r\n" + "".join(map(bulk, words)) for words in commands)
        self.stream.write(text.encode())
        return [self.read() for _ in commands][-1]

    def read(self):
        line = self.stream.readline().decode().strip()
        if not line:
            raise EOFError("the broker closed the connection")
        if line[0] == "*":
            return [self.read() for _ in range(int(line[1:]))]
        if line[0] == "$":
            return None if line == "$-1" else self.stream.read(int(line[1:]) + 2)[:-2].decode()
        return line[1:]


def work():
    database, broker = psycopg.connect(os.environ["DATABASE_URL"]), Client()
    assert broker.ask(("SET", "worker", os.urandom(8).hex(), "NX")) == "OK"
    while True:
        found = broker.ask(("BRPOP", "jobs", "0.2"))
        if not found:
            continue
        job = json.loads(found[1])
        with open(os.environ["DONE"], "ab", buffering=0) as file:
            file.write(f"{job['id']} {job['text']}\n".encode())
        with database.transaction():
            database.execute("SELECT id FROM job WHERE id = %s FOR UPDATE", (job["id"],))
            database.execute("UPDATE job SET result = %s WHERE id = %s", (job["text"].upper(), job["id"]))
        key, result = f"result:{job['id']}", json.dumps({"result": job["text"].upper(), "at": time.time()})
        broker.ask(("SET", key, result), ("PUBLISH", key, result))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.database, self.broker = psycopg.connect(os.environ["DATABASE_URL"]), Client()

    def do_POST(self):
        _, what, text = self.path.split("/")
        with self.database.transaction():
            leave = "INSERT INTO job (text) VALUES (%s) RETURNING id"
            number = self.database.execute(leave, (text,)).fetchone()[0]
        listener = Client()
        if what == "ask":
            listener.ask(("SUBSCRIBE", f"result:{number}"))
        self.broker.ask(("LPUSH", "jobs", json.dumps({"id": number, "text": text, "by": os.getpid()})))
        self.answer(json.loads(listener.read()[2]) if what == "ask" else {"job": number})

    def do_GET(self):
        number = self.path.split("/")[2]
        with self.database.transaction():
            result = self.database.execute("SELECT result FROM job WHERE id = %s", (number,)).fetchone()[0]
        self.answer({"result": result, "told": self.broker.ask(("GET", f"result:{number}"))})

    def answer(self, what):
        body = json.dumps(what).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100


class Brokers(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True


if sys.argv[1] == "--broker":
    Brokers(("127.0.0.1", int(sys.argv[2])), Broker).serve_forever()
elif sys.argv[1] == "--worker":
    work()
else:
    worker = subprocess.Popen([sys.executable, __file__, "--worker", sys.argv[2]])

    def end(*_):
        worker.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
