"""A service that draws when it starts: the key by which it signs sessions, a counter and a prefix of ids, and what each worker draws.

    starts.py PORT       the database is in DATABASE_URL

The key is drawn when the service is loaded, as by services whose key nobody has configured; then WORKERS processes are forked, each of
which draws a fingerprint and serves with threads. POST /login/NAME answers a signed cookie, POST /note/TEXT writes a note, for who has
one, whose id is made of the prefix, the worker's fingerprint and a counter that begins anywhere. What was drawn at the start is
appended to the file DRAWN, a line each.
"""

import hashlib
import hmac
import http.server
import json
import os
import queue
import random
import secrets
import signal
import socketserver
import sys
import threading
import uuid

import psycopg

SECRET = os.urandom(32)
PREFIX = secrets.token_hex(4)
GENERATOR = random.Random()
COUNTER = random.randrange(10**9)
pool = queue.LifoQueue()


def note(what, *drawn):
    line = f"{what} {' '.join(map(str, drawn))}\n".encode()
    with open(os.environ["DRAWN"], "ab", buffering=0) as file:
        file.write(line)


def transaction(work):
    try:
        connection = pool.get_nowait()
    except queue.Empty:
        connection = psycopg.connect(os.environ["DATABASE_URL"])
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction():
            return work(connection)
    finally:
        pool.put(connection)


def signed(name):
    return name + "." + hmac.new(SECRET, name.encode(), hashlib.sha256).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global COUNTER
        what, text = self.path[1:].split("/")
        if what == "login":
            return self.answer(200, {"hello": text}, signed(text))
        cookie = self.headers.get("Cookie", "").removeprefix("session=")
        name = cookie.split(".")[0]
        if not hmac.compare_digest(cookie, signed(name)):
            return self.answer(401, {"error": "nobody knows you"})
        with lock:
            COUNTER += 1
            number = f"{PREFIX}-{FINGERPRINT}-{COUNTER}"
        transaction(lambda c: c.execute("INSERT INTO note VALUES (%s, %s, %s)", (number, name, text)))
        self.answer(200, {"note": number, "lot": GENERATOR.random()})

    def answer(self, status, what, token=None):
        body = json.dumps(what).encode()
        self.send_response(status)
        if token:
            self.send_header("Set-Cookie", f"session={token}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100


def work(server):
    global FINGERPRINT
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    # In a thread, as what a library prepares in the background.
    drawn = []
    thread = threading.Thread(target=lambda: drawn.append(secrets.token_hex(8)))
    thread.start()
    FINGERPRINT = uuid.uuid4().hex
    thread.join()
    note("worker", FINGERPRINT)
    note("thread", *drawn)
    server.serve_forever()


lock = threading.Lock()
note("start", SECRET.hex())
note("prefix", PREFIX, COUNTER)
server = Server(("127.0.0.1", int(sys.argv[1])), Handler)
workers = []
for _ in range(int(os.environ.get("WORKERS", "1"))):
    child = os.fork()
    if child == 0:
        work(server)
    workers.append(child)
server.socket.close()


def end(*_):
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
while True:
    signal.pause()
