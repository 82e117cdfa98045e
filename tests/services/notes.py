"""Notes of people who log in: sessions and times as applications have them, with threads and psycopg.

    notes.py PORT        the database is in DATABASE_URL

POST /login/NAME makes a session of LIFETIME seconds, whose token is a cookie. POST /note/TEXT writes a note and GET /notes
lists them, for who has a session that has not expired. With DRAWN_BY=database tokens and ids are drawn there, with DRAWN_BY=process they go by the
time, the number of the process and a count of all that it has made, as those of many libraries do, and each note has one more in a table `kept`. With
AFTERWARDS=1 it notes when it has answered, in a table `answered`.
"""

import datetime
import http.cookies
import http.server
import itertools
import json
import os
import queue
import random
import secrets
import signal
import socketserver
import sys
import time
import uuid

import psycopg

DRAWN_BY_DATABASE = os.environ.get("DRAWN_BY") == "database"
LIFETIME = datetime.timedelta(seconds=float(os.environ["LIFETIME"]))
DRAWN_BY_PROCESS = os.environ.get("DRAWN_BY") == "process"
pool = queue.LifoQueue()
counted = itertools.count(random.getrandbits(16))


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


def numbered():
    return uuid.UUID(f"{time.time_ns() // 1_000_000:012x}{os.getpid():08x}{next(counted):012x}")


def now():
    return datetime.datetime.now(datetime.timezone.utc)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        what, text = self.path[1:].split("/")
        if what == "login":
            return self.log_in(text)
        number = numbered() if DRAWN_BY_PROCESS else uuid.uuid4()

        def write(c):
            person = self.person(c)
            if person is None:
                return None
            if DRAWN_BY_DATABASE:
                insert = "INSERT INTO note (person, text, written) VALUES (%s, %s, %s) RETURNING id::text AS shown, id"
                return c.execute(insert, (person, text, now())).fetchone()[0]
            insert = "INSERT INTO note VALUES (%s, %s, %s, %s)"
            c.execute(insert, (number, person, text, now()))
            if DRAWN_BY_PROCESS:
                c.execute("INSERT INTO kept VALUES (%s)", (numbered(),))
            return str(number)

        written = transaction(write)
        self.answer(401 if written is None else 200, {"note": written, "at": time.time_ns(), "lot": random.random(), "error": random.gauss(0, 1)})
        if os.environ.get("AFTERWARDS"):
            for _ in range(2):
                transaction(lambda c: c.execute("INSERT INTO answered VALUES (%s, %s)", (text, time.time_ns())))

    def log_in(self, name):
        token = numbered().hex if DRAWN_BY_PROCESS else secrets.token_hex(16)
        expires = now() + LIFETIME
        insert = "INSERT INTO session VALUES (%s, %s, %s)"
        if DRAWN_BY_DATABASE:
            insert = "INSERT INTO session (token, person, expires) VALUES (gen_random_uuid(), %s, %s) RETURNING token"
            token = transaction(lambda c: c.execute(insert, (name, expires)).fetchone()[0])
        else:
            transaction(lambda c: c.execute(insert, (token, name, expires)))
        # A set goes through strings in an order that Python has drawn when it started.
        may = list({"read", "write", "share", "delete", "invite"})
        self.answer(200, {"until": expires.timestamp(), "may": may}, token)

    def do_GET(self):
        def read(c):
            person = self.person(c)
            query = "SELECT id::text, text, extract(epoch FROM written)::text FROM note WHERE person = %s ORDER BY written, id"
            return None if person is None else c.execute(query, (person,)).fetchall()

        notes = transaction(read)
        self.answer(401 if notes is None else 200, notes)

    def person(self, c):
        cookies = http.cookies.SimpleCookie(self.headers.get("Cookie", ""))
        token = cookies["session"].value if "session" in cookies else ""
        query = "SELECT person FROM session WHERE token = %s AND expires > %s"
        found = c.execute(query, (token, now())).fetchone()
        return found and found[0]

    def answer(self, status, what, token=None):
        body = json.dumps(what).encode()
        self.send_response(status)
        if token:
            self.send_header("Set-Cookie", f"session={token}; Max-Age=900")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 100


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
